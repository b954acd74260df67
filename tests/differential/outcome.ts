import type { Decision, DecisionRequest } from '../../api/decision.ts';
import type { Arrived } from './sniffing-upstream.ts';

/** What a decision means for whoever sends the request. */
export type Outcome =
  | { readonly kind: 'closed' }
  | { readonly kind: 'through' }
  | {
      readonly kind: 'answered';
      readonly status: number;
      readonly body: string;
      /** Null: the answer has no body, and says nothing about it. */
      readonly contentType: string | null;
    }
  | {
      readonly kind: 'forwarded';
      readonly set: Readonly<Record<string, string>>;
      readonly absent: readonly string[];
      /** Headers that carry a credential, with the Secret it comes from. */
      readonly credentials: Readonly<Record<string, string>>;
    };

/** The outcome that a decision asks for. */
export function expected({ l4, l7 }: Decision): Outcome {
  if (l4.action === 'reject') {
    return { kind: 'closed' };
  }
  if (l7 === null) {
    return { kind: 'through' };
  }
  if (l7.action !== 'forward') {
    const { status, body, contentType } = l7;
    return status === null ? { kind: 'closed' } : { kind: 'answered', status, body: body ?? '', contentType };
  }
  const credentials = l7.credentials.map(
    ({ header, source }) => [header, `${source.namespace}/${source.name}`] as const,
  );
  return {
    kind: 'forwarded',
    set: l7.headers.set,
    absent: l7.headers.remove,
    credentials: Object.fromEntries(credentials),
  };
}

/** Bytes that are neither HTTP nor the beginning of a TLS handshake. */
export const RAW = '\u0001\u0002raw bytes\r\n';

/** The request as the bytes of HTTP/1.1. */
export function bytesOf({ http }: DecisionRequest): string {
  if (http === undefined) {
    return RAW;
  }
  const body = Buffer.from(http.body ?? []).toString('latin1');
  const lines = [
    `${http.method} ${http.path} HTTP/1.1`,
    `Host: ${http.authority}`,
    ...http.headers.map(([name, value]) => `${name}: ${value}`),
    ...(body === '' ? [] : [`content-length: ${body.length}`]),
  ];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

/**
 * Why what a pod saw is not the outcome; null when it is. `answer` is what came back: `closed …`, `timeout`, raw bytes,
 * or an HTTP answer, in TLS behind a line that says whose certificate was shown. `secrets` are the values by
 * `namespace/name`.
 */
export function mismatch(
  outcome: Outcome,
  request: DecisionRequest,
  tls: Decision['tls'],
  answer: string,
  secrets: Readonly<Record<string, string>>,
): string | null {
  const text = request.scheme === 'https' ? answer.slice(answer.indexOf('\n') + 1) : answer;
  const peer = request.scheme === 'https' && answer.includes('\n') ? answer.slice(0, answer.indexOf('\n')) : null;
  // A server name has no trailing dot (RFC 6066). Envoy ends such a handshake where names are listed: never weaker.
  if (request.sni?.endsWith('.') === true && text.startsWith('closed')) {
    return null;
  }
  const status = Number(/^HTTP\/1\.[01] ([0-9]+)/.exec(text)?.[1] ?? 0);
  const body = text.slice(text.indexOf('\r\n\r\n') + 4);
  if (peer !== null && status !== 0 && (peer === 'intercepted') !== (tls === 'intercepted')) {
    return `the certificate was that of ${peer}`;
  }
  switch (outcome.kind) {
    case 'closed':
      return answer.startsWith('closed') || text.startsWith('closed') ? null : 'it was not closed';
    case 'through':
      return request.scheme === 'tcp'
        ? text.startsWith('echo ')
          ? null
          : 'the bytes did not come back'
        : status === 200
          ? changedRequest(request, JSON.parse(body) as Arrived, [])
          : 'it did not pass';
    case 'answered':
      return status === outcome.status && body === outcome.body ? wrongContentType(outcome, text) : 'another answer';
    case 'forwarded':
      return status === 200
        ? wrongRequest(outcome, request, JSON.parse(body) as Arrived, secrets)
        : 'it was not forwarded';
  }
}

function wrongRequest(
  outcome: Extract<Outcome, { readonly kind: 'forwarded' }>,
  request: DecisionRequest,
  arrived: Arrived,
  secrets: Readonly<Record<string, string>>,
): string | null {
  const { headers } = arrived;
  const written = [...Object.keys(outcome.set), ...outcome.absent, ...Object.keys(outcome.credentials)];
  const changed = changedRequest(request, arrived, written);
  if (changed !== null) {
    return changed;
  }
  for (const [name, value] of Object.entries(outcome.set)) {
    if (headers[name] !== value && !(name in outcome.credentials)) {
      return `${name} arrived as ${String(headers[name])}`;
    }
  }
  const left = outcome.absent.find((name) => headers[name] !== undefined);
  if (left !== undefined) {
    return `${left} arrived`;
  }
  for (const [name, secret] of Object.entries(outcome.credentials)) {
    if (!String(headers[name]).includes(secrets[secret] ?? 'no such secret')) {
      return `${name} does not carry the credential`;
    }
  }
  const stray = Object.entries(headers).find(
    ([name, value]) =>
      !(name in outcome.credentials) && Object.values(secrets).some((key) => String(value).includes(key)),
  );
  return stray === undefined ? null : `${stray[0]} carries a credential`;
}

/** What changed on the way though no decision says so; null when nothing did. `written` are headers that may differ. */
function changedRequest(
  { http }: DecisionRequest,
  { method, url, headers }: Arrived,
  written: readonly string[],
): string | null {
  if (http === undefined) {
    return null;
  }
  if (url !== http.path || method !== http.method) {
    return `it arrived as ${method} ${url}`;
  }
  const names = new Set(http.headers.map(([name]) => name).filter((name) => !written.includes(name)));
  for (const name of names) {
    const sent = http.headers.filter(([other]) => other === name).map(([, value]) => value);
    if (headers[name] !== sent.join(', ')) {
      return `${name} arrived as ${String(headers[name])}`;
    }
  }
  return null;
}

function wrongContentType({ contentType, body }: Extract<Outcome, { readonly kind: 'answered' }>, text: string) {
  const sent = /^content-type: *(.*?)\r$/im.exec(text.slice(0, text.indexOf('\r\n\r\n') + 2))?.[1] ?? null;
  return body === '' || sent === contentType ? null : `the content type is ${sent}`;
}
