import type { Compilation } from '../../policy-compiler/compilation.ts';
import type { Evaluation, L7Request } from '../../policy-compiler/evaluate.ts';
import { PLAN_HEADER, STATE_IP, STATE_PORT, STATE_UID } from '../../policy-compiler/output.ts';
import { destinationOf } from '../../policy-compiler/policy-set.ts';
import type { Answer } from '../answer.ts';
import { encodeDetails } from '../details.ts';
import type { Handler, HandlerContext } from '../exchange.ts';
import type { RequestHead } from '../request.ts';
import { scanMcp } from './mcp-scan.ts';

/** What the processor decides from: its own compilation of its own world. */
export type Decider = Pick<Compilation, 'evaluate' | 'policySetOf'>;

/**
 * Decides the requests that Envoy cannot decide alone, from the same intermediate form as its tables. Whose request it
 * is comes from the verified filter state of the tunnel; labels and names on the wire are never read. `decider` gives
 * the present compilation, and null while there is none: then everything is refused.
 */
export function egressHandler(decider: () => Decider | null): Handler {
  return async (head, context) => {
    const current = decider();
    if (current === null) {
      return refusal(503, 'policy_not_ready', true);
    }
    const uid = attribute(head, STATE_UID);
    const request = requestOf(current, uid, head);
    if (request === null) {
      return refusal(403, 'unknown-sandbox', true);
    }
    const first = current.evaluate(uid, request, null);
    const evaluation = first?.needsBody === true ? await withBody(current, uid, request, head, context) : first;
    return evaluation === null || evaluation.needsBody ? refusal(403, 'unknown-sandbox', true) : answerOf(evaluation);
  };
}

async function withBody(
  decider: Decider,
  uid: string,
  request: L7Request,
  head: RequestHead,
  context: HandlerContext,
): Promise<Evaluation | null> {
  return decider.evaluate(uid, request, scanMcp(await context.readBody(), head.headers));
}

function attribute(head: RequestHead, key: string): string {
  return head.attributes[`filter_state['${key}']`] ?? '';
}

function requestOf(decider: Decider, uid: string, head: RequestHead): L7Request | null {
  const set = decider.policySetOf(uid);
  const port = Number(attribute(head, STATE_PORT));
  const address = attribute(head, STATE_IP);
  if (set === null || address === '' || !(port >= 1 && port <= 65_535)) {
    return null;
  }
  return {
    scheme: head.scheme === 'https' ? 'https' : 'http',
    method: head.method,
    authority: head.authority,
    port,
    target: head.path,
    headers: head.headers.filter(([name]) => name !== 'host'),
    destination: destinationOf(set, address),
  };
}

function answerOf(evaluation: Extract<Evaluation, { readonly needsBody: false }>): Answer {
  const { decision, plan } = evaluation;
  if (decision.action !== 'forward') {
    return {
      kind: 'respond',
      status: decision.status ?? 403,
      headers: {
        ...(decision.contentType === null ? {} : { 'content-type': decision.contentType }),
        'x-sandgate-reason': decision.reason ?? 'block',
      },
      body: decision.body ?? '',
      details: encodeDetails(decision.reason ?? 'block', decision.matched.find(({ terminal }) => terminal) ?? null),
    };
  }
  return {
    kind: 'continue',
    set: { ...decision.headers.set, ...(plan === null ? {} : { [PLAN_HEADER]: plan }) },
    remove: decision.headers.remove,
    clearRouteCache: plan !== null,
  };
}

function refusal(status: number, reason: string, retryable: boolean): Answer {
  return {
    kind: 'respond',
    status,
    headers: { 'content-type': 'application/json', 'x-sandgate-reason': reason },
    body: JSON.stringify({ error: 'denied', policy: '', rule: '', reason, retryable }),
    details: encodeDetails(reason, null),
  };
}
