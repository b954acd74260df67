import * as assert from 'node:assert/strict';
import type { Decision, DecisionRequest } from '../../api/decision.ts';
import type { PolicyFacts } from '../../api/facts.ts';
import type { World } from './facts.ts';
import { factsOf } from './facts.ts';

/** What a vector demands of a decision; what is absent is left open. */
export interface Expected {
  readonly l4?: 'allow' | 'reject';
  readonly reason?: Decision['l4']['reason'];
  /** `Kind namespace/name#index` of the deciding L4 rule. */
  readonly by?: string;
  readonly tls?: Decision['tls'];
  /** `none`: there is no L7 decision. */
  readonly l7?: 'forward' | 'block' | 'deny' | 'none';
  readonly why?: NonNullable<Decision['l7']>['reason'];
  readonly status?: number | null;
  readonly body?: string | null;
  readonly contentType?: string | null;
  readonly set?: Readonly<Record<string, string>>;
  readonly remove?: readonly string[];
  /** `header=namespace/name` of every credential. */
  readonly credentials?: readonly string[];
  /** Names of the matched rules, `*` after the terminal one. */
  readonly matched?: readonly string[];
  readonly mcp?: {
    readonly method: string | null;
    readonly tool: string | null;
    readonly action: 'allow' | 'deny';
  } | null;
}

/** One row of a table of cases: a world, a request or several with the same answer, and the answer. */
export interface VectorCase {
  /** Row of the specification's table, or a word for one of our own. */
  readonly row: string;
  readonly about: string;
  readonly world: World;
  /** A request, or one that needs the facts (a virtual address). */
  readonly request: DecisionRequest | ((facts: PolicyFacts) => DecisionRequest);
  readonly expect: Expected;
}

/** Runs one case against a decider (`decide()`, or the compiler's `explain`); throws an assertion error. */
export function runCase(
  { world, request, expect }: VectorCase,
  decider: (facts: PolicyFacts, request: DecisionRequest) => Decision,
): void {
  const facts = factsOf(world);
  const got = summary(decider(facts, typeof request === 'function' ? request(facts) : request));
  const wanted = Object.fromEntries(Object.keys(expect).map((key) => [key, got[key as keyof Expected]]));
  assert.deepEqual(wanted, expect);
}

function summary({ l4, tls, l7 }: Decision): Required<{ [K in keyof Expected]: unknown }> {
  const rule = l4.rule;
  return {
    l4: l4.action,
    reason: l4.reason,
    by:
      rule === null
        ? null
        : `${rule.kind} ${rule.namespace === '' ? '' : `${rule.namespace}/`}${rule.name}#${rule.index}`,
    tls,
    l7: l7?.action ?? 'none',
    why: l7?.reason ?? null,
    status: l7?.status ?? null,
    body: l7?.body ?? null,
    contentType: l7?.contentType ?? null,
    set: l7?.headers.set ?? null,
    remove: l7?.headers.remove ?? null,
    credentials: l7?.credentials.map(({ header, source }) => `${header}=${source.namespace}/${source.name}`) ?? null,
    matched: l7?.matched.map((unit) => `${unit.rule}${unit.terminal ? '*' : ''}`) ?? null,
    mcp: l7?.mcp ?? null,
  };
}
