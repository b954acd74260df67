import type { DenyReason, L7Decision, MatchedRule } from '../api/decision.ts';
import { type Answer, blockAnswer, denial, mcpAnswer } from './denials.ts';
import type { Credential, L7Rule } from './l7-policy.ts';
import { MCP_CALL, type McpCall, mcpVerdict } from './mcp-verdict.ts';

/** A rule that matched, and whether some matching clause lists the request's scheme. */
export interface Matched {
  readonly rule: L7Rule;
  readonly schemeListed: boolean;
  /** Whether its `bypass` takes part: it has one, and matches plainly too (docs/egress-semantics.md 15). */
  readonly bypass: boolean;
}

/** A credential that the request would carry. */
export interface Injection {
  readonly header: string;
  readonly credential: Credential;
  readonly rule: L7Rule;
  /** Whether it may go over plain HTTP: the matching clause lists the scheme `http`. */
  readonly plain: boolean;
}

/** What the walk over the matched rules comes to, before it is known where the request goes. */
export type WalkResult =
  | { readonly kind: 'answer'; readonly answer: Answer; readonly walked: readonly MatchedRule[]; readonly mcp: McpFact }
  | {
      readonly kind: 'forward';
      /** Sorted by name; a header is in one of the three lists only. */
      readonly set: readonly (readonly [name: string, value: string])[];
      readonly remove: readonly string[];
      readonly injections: readonly Injection[];
      readonly walked: readonly MatchedRule[];
      readonly mcp: McpFact;
    }
  /** An MCP policy is reached and the body is not known yet. */
  | { readonly kind: 'body' };

type McpFact = L7Decision['mcp'];

type Change =
  | { readonly kind: 'set'; readonly value: string }
  | { readonly kind: 'remove' }
  | { readonly kind: 'inject'; readonly injection: Injection };

/**
 * Walks the matched rules in order, inside a rule bypass → block → mcpToolPolicy → headerManipulation →
 * tokenTransformation (egress-policy §3.3). A stop drops every pending change, a bypass keeps them; the changes of one
 * header fold to the last one. `mcp` is the scanned body, or null when it has not been read.
 */
export function walk(matched: readonly Matched[], mcp: McpCall | null): WalkResult {
  const changes = new Map<string, Change>();
  const walked: MatchedRule[] = [];
  let fact: McpFact = null;
  const stop = (match: Matched, answer: Answer): WalkResult => {
    walked.push(matchedRule(match, true));
    return { kind: 'answer', answer, walked, mcp: fact };
  };
  for (const match of matched) {
    const { rule } = match;
    if (match.bypass) {
      walked.push(matchedRule(match, true));
      break;
    }
    const blame = { profile: rule.profile, rule: rule.name };
    if (rule.block !== null) {
      return stop(match, blockAnswer(rule.block, blame));
    }
    if (rule.mcp !== null) {
      if (mcp === null) {
        return { kind: 'body' };
      }
      const verdict = mcpVerdict(rule.mcp, mcp);
      fact = mcpFact(mcp, verdict);
      if (verdict === 'deny') {
        return stop(match, mcpAnswer(rule.mcp.denyResponse, blame));
      }
    }
    const failure = applyChanges(rule, match.schemeListed, changes);
    if (failure !== null) {
      return stop(match, denial(failure, blame));
    }
    walked.push(matchedRule(match, false));
  }
  return { kind: 'forward', ...fold(changes), walked, mcp: fact };
}

/** Records the rule's changes; a reason when its credential cannot be had. */
function applyChanges(rule: L7Rule, plain: boolean, changes: Map<string, Change>): DenyReason | null {
  for (const name of rule.remove) {
    changes.set(name, { kind: 'remove' });
  }
  for (const [name, value] of rule.set) {
    changes.set(name, { kind: 'set', value });
  }
  if (rule.token === null) {
    return null;
  }
  if ('unenforceable' in rule.token) {
    return 'unenforceable';
  }
  if (!rule.token.available) {
    return 'credential-unavailable';
  }
  for (const header of rule.token.headers) {
    const injection: Injection = { header, credential: rule.token.credential, rule, plain };
    changes.set(header, { kind: 'inject', injection });
  }
  return null;
}

function fold(changes: ReadonlyMap<string, Change>): {
  set: readonly (readonly [string, string])[];
  remove: readonly string[];
  injections: readonly Injection[];
} {
  const sorted = [...changes].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    set: sorted.flatMap(([name, change]) => (change.kind === 'set' ? [[name, change.value] as const] : [])),
    remove: sorted.flatMap(([name, change]) => (change.kind === 'remove' ? [name] : [])),
    injections: sorted.flatMap(([, change]) => (change.kind === 'inject' ? [change.injection] : [])),
  };
}

function matchedRule({ rule, bypass }: Matched, terminal: boolean): MatchedRule {
  const actions = bypass ? rule.actions : rule.actions.filter((action) => action !== 'bypass');
  return { profile: rule.profile, rule: rule.name, actions, terminal };
}

function mcpFact(call: McpCall, action: 'allow' | 'deny'): McpFact {
  return call.kind === 'call' ? { method: MCP_CALL, tool: call.tool, action } : { method: null, tool: null, action };
}
