import type { L7Decision, MatchedRule } from '../api/decision.ts';
import { refText } from '../api/object.ts';
import { type Answer, CONNECT_BODY, denial, invalidAnswer } from './denials.ts';
import { type Dial, dialOf, planOf } from './dial.ts';
import type { L7Rule } from './l7-policy.ts';
import { type MatchInput, readingOf, ruleMatches } from './match.ts';
import type { McpCall } from './mcp-verdict.ts';
import { domainCovers, hostOf } from './names.ts';
import { plansOf } from './plans.ts';
import type { Destination, PolicySet } from './policy-set.ts';
import { type Injection, type Matched, type WalkResult, walk } from './walk.ts';

/** One request to decide, as it was sent. */
export interface L7Request extends Omit<MatchInput, 'host'> {
  readonly destination: Destination;
}

/** The decision about a request, or that its body is needed first. */
export type Evaluation =
  | { readonly needsBody: true }
  | {
      readonly needsBody: false;
      readonly decision: L7Decision;
      /** null unless the request is forwarded. */
      readonly dial: Dial | null;
      /** Value of the plan header: which upstream injects the credentials; null when the default upstream will do. */
      readonly plan: string | null;
    };

const AUTHORITY = /^(?:[^,;@/\\\s:[\]]*|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?$/;

/** Whether an authority can be read in one way only; any other is denied before the rules (findings about Host). */
export function isPlainAuthority(authority: string): boolean {
  return AUTHORITY.test(authority);
}

/** RE2 source of the same test, for a match on the whole value. */
export const PLAIN_AUTHORITY = '(?:[^,;@/\\\\\\s:\\[\\]]*|\\[[0-9a-fA-F:.]+\\])(?::[0-9]{1,5})?';

/**
 * Decides one request from the intermediate form (egress-policy §3, §4, D4). `mcp` is what scanning the body found;
 * null means that it has not been read, and the answer may be that it is needed.
 */
export function evaluate(set: PolicySet, request: L7Request, mcp: McpCall | null): Evaluation {
  if (set.invalid !== null) {
    return answered(invalidAnswer(set.invalid), [], null);
  }
  const host = hostOf(request.authority);
  const { destination } = request;
  if (!isPlainAuthority(request.authority) || isMisled(request, host)) {
    return answered(denial('host-mismatch', null), [], null);
  }
  const rules = rulesOfHost(set, host);
  const result = walk(matchedRules(rules, { ...request, host }), mcp);
  if (result.kind === 'body') {
    return request.method === 'CONNECT' ? answered(CONNECT_BODY, [], null) : { needsBody: true };
  }
  const outcome = settle(result, {
    scheme: request.scheme,
    byName: destination.kind === 'virtual',
    isTrace: request.method.toUpperCase() === 'TRACE',
    plans: () => plansOf(rules),
  });
  if (outcome.kind === 'answer') {
    return answered(outcome.answer, outcome.walked, outcome.mcp);
  }
  if (request.method === 'CONNECT') {
    return answered(denial('unenforceable', null), outcome.walked, outcome.mcp);
  }
  const piece =
    destination.kind === 'virtual' && destination.name !== null
      ? destination.name.pieces.find(({ ports }) => ports.from <= request.port && request.port <= ports.to)
      : undefined;
  if (destination.kind === 'virtual' && piece === undefined) {
    return answered(denial('host-mismatch', null), outcome.walked, outcome.mcp);
  }
  const name = destination.kind === 'virtual' ? { name: destination.name!, piece: piece! } : null;
  const dial = dialOf(name, request.scheme === 'https', injectionList(outcome.injections));
  return {
    needsBody: false,
    decision: forwarded(outcome),
    dial,
    plan: dial.injections.length === 0 ? null : planOf(dial),
  };
}

/** A request that came for a name and asks for another one, or for another port (docs/egress-semantics.md 13). */
function isMisled({ destination, authority, port }: L7Request, host: string): boolean {
  if (destination.kind === 'address') {
    return false;
  }
  const written = /:([0-9]*)$/.exec(authority)?.[1];
  return destination.name?.name !== host || (written !== undefined && written !== String(port));
}

/** The rules that match, in order (egress-policy §3.3 step 2). */
function matchedRules(rules: readonly L7Rule[], input: MatchInput): readonly Matched[] {
  return rules
    .filter((rule) => ruleMatches(rule, input))
    .map((rule) => ({
      rule,
      schemeListed: rule.token !== null && ruleMatches(rule, input, readingOf(rule), true),
      bypass: rule.bypass && (!rule.strict || ruleMatches(rule, input, 'plain')),
    }));
}

const hostRules = new WeakMap<PolicySet, Map<string, readonly L7Rule[]>>();

/** The rules with a clause for this host, kept for the hosts that were asked for last. */
function rulesOfHost(set: PolicySet, host: string): readonly L7Rule[] {
  const known = hostRules.get(set) ?? new Map<string, readonly L7Rule[]>();
  hostRules.set(set, known);
  let rules = known.get(host);
  if (rules === undefined) {
    rules = set.rules.filter(({ clauses }) =>
      clauses.some(({ domains }) => domains.some((domain) => domainCovers(domain, host))),
    );
    if (known.size >= 256) {
      known.clear();
    }
    known.set(host, rules);
  }
  return rules;
}

type Settled = Exclude<WalkResult, { kind: 'body' }>;

/**
 * Applies what depends on where the request goes: a credential goes only to the name at whose virtual address the
 * request arrived, over plain HTTP only when the clause says so (D4, docs/architecture.md), and never with TRACE, by which
 * a server sends back what it got (RFC 9110 §9.3.8).
 */
export function settle(
  result: Settled,
  context: {
    readonly scheme: string;
    readonly byName: boolean;
    readonly isTrace: boolean;
    readonly plans: () => ReadonlyMap<string, unknown> | null;
  },
): Settled {
  if (result.kind === 'answer' || result.injections.length === 0) {
    return result;
  }
  const stop = ({ rule }: Injection, reason: 'credential-destination' | 'unenforceable'): Settled => {
    const answer = denial(reason, { profile: rule.profile, rule: rule.name });
    return { kind: 'answer', answer, walked: result.walked, mcp: result.mcp };
  };
  const misled =
    context.byName && !context.isTrace
      ? result.injections.find(({ plain }) => context.scheme === 'http' && !plain)
      : result.injections[0];
  if (misled !== undefined) {
    return stop(misled, 'credential-destination');
  }
  return context.plans() === null ? stop(result.injections[0]!, 'unenforceable') : result;
}

/** The injections in the form that a cluster is made of. */
export function injectionList(injections: readonly Injection[]): Dial['injections'] {
  return injections.map(({ header, credential }) => ({ header, id: credential.id }));
}

/** An {@link Answer}, or the end of a connection: then there is no status. */
type Refusal = Omit<Answer, 'status'> & { readonly status: number | null };

/** A denial or a block as a decision. */
export function answerDecision(answer: Refusal, matched: readonly MatchedRule[], mcp: L7Decision['mcp']): L7Decision {
  return {
    action: answer.reason === null ? 'block' : 'deny',
    reason: answer.reason,
    status: answer.status,
    body: answer.body,
    contentType: answer.contentType,
    headers: { set: {}, remove: [] },
    credentials: [],
    mcp,
    matched,
  };
}

function answered(answer: Answer, matched: readonly MatchedRule[], mcp: L7Decision['mcp']): Evaluation {
  return { needsBody: false, decision: answerDecision(answer, matched, mcp), dial: null, plan: null };
}

function forwarded(result: Extract<WalkResult, { kind: 'forward' }>): L7Decision {
  return {
    action: 'forward',
    reason: null,
    status: null,
    body: null,
    contentType: null,
    headers: { set: Object.fromEntries(result.set), remove: result.remove },
    credentials: result.injections.map(({ header, credential, rule }) => ({
      header,
      source: { kind: 'Secret', namespace: credential.namespace, name: credential.name },
      profile: refText(rule.profile),
      rule: rule.name,
    })),
    mcp: result.mcp,
    matched: result.walked,
  };
}
