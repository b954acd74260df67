import type { DenyReason } from '../api/decision.ts';
import { type ObjectRef, refText } from '../api/object.ts';

/** An answer that is given instead of forwarding. */
export interface Answer {
  readonly status: number;
  /** null: no body. */
  readonly body: string | null;
  readonly contentType: string | null;
  /** null for a `block` rule's own answer (D23). */
  readonly reason: DenyReason | null;
}

/** The rule on whose account a request is denied. */
export interface Blame {
  readonly profile: ObjectRef;
  readonly rule: string;
}

const TEXT = 'text/plain';
const JSON_TYPE = 'application/json';

/** The JSON body of an answer that the policy gives no body (D10, docs/egress-semantics.md 20). */
export function denialBody(error: string, reason: string, blame: Blame | null): string {
  return JSON.stringify({
    error,
    policy: blame === null ? '' : refText(blame.profile),
    rule: blame?.rule ?? '',
    reason,
    retryable: false,
  });
}

/** The answer of a `block` rule: its status and body as they are, JSON when it has none (egress-policy §3.4, D10). */
export function blockAnswer(block: { readonly status: number; readonly body: string | null }, blame: Blame): Answer {
  return ownAnswer(block.status, block.body, blame, 'block', null);
}

/** The answer of a denying MCP policy; an empty `body` counts as none (egress-policy §3.4). */
export function mcpAnswer(
  response: { readonly statusCode?: number | undefined; readonly body?: string | undefined } | undefined,
  blame: Blame,
): Answer {
  return ownAnswer(response?.statusCode || 403, response?.body || null, blame, 'mcp', 'mcp');
}

/** A status below 200 announces an answer and is none: such a policy answers 403. */
function ownAnswer(wanted: number, body: string | null, blame: Blame, why: string, reason: DenyReason | null): Answer {
  const status = wanted < 200 ? 403 : wanted;
  const json = () => denialBody(reason === null ? 'blocked' : 'denied', why, blame);
  return body === null
    ? { status, body: json(), contentType: JSON_TYPE, reason }
    : { status, body, contentType: TEXT, reason };
}

/** A denial that no policy words. `credential-unavailable` keeps the specification's text (egress-policy §3.4). */
export function denial(reason: DenyReason, blame: Blame | null): Answer {
  if (reason === 'credential-unavailable') {
    return { status: 403, body: CREDENTIAL_UNAVAILABLE, contentType: TEXT, reason };
  }
  return { status: 403, body: denialBody('denied', reason, blame), contentType: JSON_TYPE, reason };
}

/** A CONNECT inside the tunnel whose body an MCP policy would need (egress-policy §3.4). */
export const CONNECT_BODY: Answer = { status: 500, body: null, contentType: null, reason: 'mcp' };

export const CREDENTIAL_UNAVAILABLE = 'tokentransform: credential unavailable';

/** The answer to every request of a sandbox that an object without a form in force selects (D2). */
export function invalidAnswer(ref: ObjectRef): Answer {
  const body = JSON.stringify({
    error: 'policy_invalid',
    policy: refText(ref),
    rule: '',
    reason: 'policy-invalid',
    retryable: false,
  });
  return { status: 403, body, contentType: JSON_TYPE, reason: 'unenforceable' };
}
