import type { Answer } from '../answer.ts';
import { headerValues, type RequestHead } from '../request.ts';

/** A local answer of the ingress: status, text and details of ingress-gateway §0.4, byte for byte (D10). */
export interface Refusal {
  readonly status: number;
  readonly text: string;
  readonly details: string;
  /** `x-sandgate-reason`; the details where it says nothing else. */
  readonly reason: string;
}

export const UNAUTHORIZED: Refusal = refusal(401, 'unauthorized: invalid or missing access token', 'unauthorized');
export const NO_VERIFIER: Refusal = refusal(
  503,
  'service unavailable: traffic access token verifier is not ready',
  'jwt_verifier_not_ready',
);
export const NOT_READY: Refusal = refusal(503, 'sandbox gateway is not ready', 'gateway_not_ready');
export const WAKE_FAILED: Refusal = refusal(503, 'sandbox wake failed', 'sandbox_wake_failed');
export const TOO_MANY_HELD: Refusal = {
  ...WAKE_FAILED,
  reason: 'too_many_held',
};
export const UNMAPPED: Refusal = refusal(404, 'no sandbox is addressed by this request', 'no_sandbox_addressed');
export const BAD_PORT: Refusal = refusal(400, 'invalid sandbox port', 'invalid_port');

export function notFound(id: string): Refusal {
  return refusal(502, `sandbox not found: ${id}`, 'sandbox_not_found');
}

export function notRunning(id: string): Refusal {
  return refusal(502, `healthy sandbox not found: ${id}`, 'sandbox_not_running');
}

function refusal(status: number, text: string, details: string): Refusal {
  return { status, text, details, reason: details };
}

const RETRY_AFTER_SECONDS = '5';

/** The answer in the form that the caller asked for: text, or JSON when `Accept` names it (D10). */
export function refuse({ status, text, details, reason }: Refusal, head: RequestHead): Answer {
  const isJson = headerValues(head, 'accept').some((value) => /\bapplication\/(?:[a-z.+-]+\+)?json\b/i.test(value));
  return {
    kind: 'respond',
    status,
    headers: {
      'content-type': isJson ? 'application/json' : 'text/plain',
      'x-sandgate-reason': reason,
      ...(status === 503 ? { 'retry-after': RETRY_AFTER_SECONDS } : {}),
    },
    body: isJson ? JSON.stringify({ error: details, message: text, retryable: status === 503 }) : text,
    details,
  };
}
