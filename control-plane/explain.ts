import type { DecisionRequest, ExplainedDecision } from '../api/decision.ts';
import type { PolicyFacts, SandboxFacts } from '../api/facts.ts';
import { addressFamily, canonicalAddress } from '../base/addresses.ts';
import { CodedError, type FieldError } from '../base/errors.ts';
import type { Compilation } from '../policy-compiler/compilation.ts';

/** A question of `sandgate explain`, as the command and the API take it. */
export interface ExplainQuery {
  /** `namespace/name`. */
  readonly sandbox: string;
  /** `http://…`, `https://…`, or `tcp://host:port` for L4 alone; absent: the effective policy. */
  readonly url?: string;
  readonly method?: string;
  /** In order; names in any case. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Base64. */
  readonly body?: string;
  /** `IP` or `IP:PORT`: where the connection goes, instead of where the name leads. */
  readonly to?: string;
}

/** The body of `explain -o json` (architecture, D23). */
export type Explanation = ExplainedDecision & { readonly sandbox: string };

/** Answers one question from the compiled form. Throws `not-found` for an unknown sandbox, `invalid` with the field. */
export function explainRequest(facts: PolicyFacts, compilation: Compilation, query: ExplainQuery): Explanation {
  const sandbox = findSandbox(facts, query.sandbox);
  const decision = compilation.explain(decisionRequest(sandbox, query));
  return { sandbox: `${sandbox.namespace}/${sandbox.name}`, ...decision };
}

/** The sandbox that a person means by `namespace/name`, or by a name alone in namespace `default`. */
export function findSandbox(facts: PolicyFacts, text: string): SandboxFacts {
  const [namespace, name] = text.includes('/') ? text.split('/', 2) : ['default', text];
  const found = facts.sandboxes.find((sandbox) => sandbox.namespace === namespace && sandbox.name === name);
  if (found === undefined) {
    throw new CodedError('not-found', `there is no Sandbox ${namespace}/${name}`);
  }
  return found;
}

/** The request that a question stands for. */
export function decisionRequest(sandbox: SandboxFacts, query: ExplainQuery): DecisionRequest {
  const url = parseUrl(query.url ?? '');
  const scheme = url.protocol.slice(0, -1);
  if (scheme !== 'http' && scheme !== 'https' && scheme !== 'tcp') {
    throw invalid('url', `the scheme ${scheme} is not known: use http, https or tcp`);
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (scheme === 'https' ? 443 : scheme === 'http' ? 80 : 0) : Number(url.port);
  if (port === 0) {
    throw invalid('url', 'tcp:// needs a port');
  }
  const destination = query.to === undefined ? named(host, port) : captured(query.to, port);
  if (scheme === 'tcp') {
    return { sandbox: sandbox.uid, destination, scheme };
  }
  return {
    sandbox: sandbox.uid,
    destination,
    scheme,
    ...(scheme === 'https' ? { sni: addressFamily(host) === null ? host : '' } : {}),
    http: {
      method: query.method ?? 'GET',
      authority: hostHeader(query) ?? url.host,
      path: rawPath(query.url ?? ''),
      headers: (query.headers ?? [])
        .map(([name, value]) => [name.toLowerCase(), value] as const)
        .filter(([name]) => name !== 'host'),
      ...(query.body === undefined ? {} : { body: Buffer.from(query.body, 'base64') }),
    },
  };
}

function hostHeader(query: ExplainQuery): string | undefined {
  return query.headers?.find(([name]) => name.toLowerCase() === 'host')?.[1];
}

/** Path and query as they stand in the URL: a policy sees the raw path, which `URL` would have normalised (D8). */
function rawPath(url: string): string {
  const match = /^[a-z]+:\/\/[^/?#]*([^#]*)/i.exec(url);
  const rest = match?.[1] ?? '';
  return rest.startsWith('/') ? rest : `/${rest}`;
}

function named(host: string, port: number): DecisionRequest['destination'] {
  const address = canonicalAddress(host);
  return address === null
    ? { kind: 'name', name: host.toLowerCase().replace(/\.$/, ''), port }
    : { kind: 'address', address, port };
}

function captured(to: string, port: number): DecisionRequest['destination'] {
  const bare = canonicalAddress(to);
  if (bare !== null) {
    return { kind: 'address', address: bare, port };
  }
  const match = /^(?:\[([^\]]+)\]|([^:]+)):([0-9]{1,5})$/.exec(to);
  const address = canonicalAddress(match?.[1] ?? match?.[2] ?? '');
  const given = Number(match?.[3]);
  if (address === null || !(given >= 1 && given <= 65_535)) {
    throw invalid('to', `${JSON.stringify(to)} is no IP or IP:PORT`);
  }
  return { kind: 'address', address, port: given };
}

function parseUrl(text: string): URL {
  try {
    return new URL(text);
  } catch {
    throw invalid('url', `${JSON.stringify(text)} is no URL such as https://api.example.com/v1`);
  }
}

function invalid(path: string, reason: string): CodedError {
  const fields: FieldError[] = [{ path, reason }];
  return new CodedError('invalid', `${path}: ${reason}`, { fields });
}
