import type { DenyReason, L7Decision, MatchedRule } from '../../api/decision.ts';
import { type ObjectRef, refText } from '../../api/object.ts';

/** Who ends a request: a rule of a profile, or nobody's rule. */
export interface Author {
  readonly profile: ObjectRef;
  readonly rule: string;
}

/** What the walk had seen when it ended. */
export interface Seen {
  readonly matched: readonly MatchedRule[];
  readonly mcp: L7Decision['mcp'];
}

export const NOTHING_SEEN: Seen = { matched: [], mcp: null };

/** Status and body of an answer given instead of the upstream's. */
interface Answer {
  readonly status: number | null;
  readonly body: string | null;
  readonly contentType: string | null;
}

const NO_ANSWER: Answer = { status: null, body: null, contentType: null };

/** The text of the specification for a credential that cannot be had (egress-policy §3.4). */
export const CREDENTIAL_UNAVAILABLE: Answer = {
  status: 403,
  body: 'tokentransform: credential unavailable',
  contentType: 'text/plain',
};

/** A CONNECT has no body that an MCP policy could judge; the specification gives the answer no body (§3.4). */
export const CONNECT_WITHOUT_BODY: Answer = { ...NO_ANSWER, status: 500 };

/** A denial that the policy gave no body for: JSON that says who denied and why (D10). */
export function jsonAnswer(
  status: number,
  error: 'blocked' | 'denied',
  reason: 'block' | DenyReason,
  author: Author | null,
): Answer {
  const policy = author === null ? '' : refText(author.profile);
  const body = JSON.stringify({ error, policy, rule: author?.rule ?? '', reason, retryable: false });
  return { status, body, contentType: 'application/json' };
}

/** A body that the policy wrote. */
export function policyAnswer(status: number, body: string): Answer {
  return { status, body, contentType: 'text/plain' };
}

/** The request goes on, changed as `headers` and `credentials` say. */
export function forward(
  seen: Seen,
  headers: L7Decision['headers'] = { set: {}, remove: [] },
  credentials: L7Decision['credentials'] = [],
): L7Decision {
  return { action: 'forward', reason: null, ...NO_ANSWER, headers, credentials, ...seen };
}

/** A block rule's own answer. Every pending change is dropped (§3.3). */
export function block(seen: Seen, answer: Answer): L7Decision {
  return ended('block', null, seen, answer);
}

/** Every other refusal of a request that can be answered. Every pending change is dropped (§3.3). */
export function deny(seen: Seen, reason: DenyReason, answer: Answer): L7Decision {
  return ended('deny', reason, seen, answer);
}

/** A refusal of a connection in which there is no request to answer: it is closed. */
export function close(reason: DenyReason): L7Decision {
  return ended('deny', reason, NOTHING_SEEN, NO_ANSWER);
}

function ended(action: 'block' | 'deny', reason: DenyReason | null, seen: Seen, answer: Answer): L7Decision {
  return { action, reason, ...answer, headers: { set: {}, remove: [] }, credentials: [], ...seen };
}
