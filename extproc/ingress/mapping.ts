import type { RequestHead } from '../request.ts';

/** What a request asks for: a port of a sandbox, or why that cannot be read from it. */
export type Mapping =
  | {
      readonly kind: 'sandbox';
      readonly id: string;
      /** Not checked against the range of ports yet. */
      readonly port: number;
      /** The path to forward when the path form took a part of it. */
      readonly path: string | null;
    }
  /** No form of address is in it, or the one that is cannot be read. */
  | { readonly kind: 'none' };

const NONE: Mapping = { kind: 'none' };
const PATH_FORM = '/kruise';
const DEFAULT_PORT = 49_983;
const HOST_FORM = /^([0-9]+)-([A-Za-z0-9-]+)\./;

/**
 * Maps a request to sandbox and port (ingress-gateway §1): a path that begins with `/kruise` is the path form and
 * nothing else; otherwise the headers of the header form, then the host form `<port>-<id>.<domain>`.
 */
export function mapRequest(head: RequestHead): Mapping {
  if (head.path.startsWith(PATH_FORM)) {
    return pathForm(head.path);
  }
  const id = lastValue(head, 'e2b-sandbox-id');
  if (id !== '') {
    const port = lastValue(head, 'e2b-sandbox-port');
    return mapped(id, port === '' ? DEFAULT_PORT : atoi(port), null);
  }
  const match = HOST_FORM.exec(head.authority);
  return match === null ? NONE : mapped(match[2]!, atoi(match[1]!), null);
}

/** `/kruise/<id>/<port>[/<rest>]`, query included in the rest (§1.3). */
function pathForm(path: string): Mapping {
  if (path.length <= PATH_FORM.length + 1) {
    return NONE;
  }
  const rest = path.slice(PATH_FORM.length + 1);
  const first = rest.indexOf('/');
  if (first < 0) {
    return NONE;
  }
  const second = rest.indexOf('/', first + 1);
  const port = rest.slice(first + 1, second < 0 ? undefined : second);
  return mapped(rest.slice(0, first), atoi(port), second < 0 ? '/' : rest.slice(second));
}

function mapped(id: string, port: number | null, path: string | null): Mapping {
  return port === null ? NONE : { kind: 'sandbox', id, port, path };
}

/** Decimal digits with an optional sign (§1.6). */
function atoi(text: string): number | null {
  return /^[+-]?[0-9]{1,18}$/.test(text) ? Number(text) : null;
}

/** Of a header that was sent several times the last value counts (§1.1). */
function lastValue(head: RequestHead, name: string): string {
  return head.headers.findLast(([key]) => key === name)?.[1] ?? '';
}
