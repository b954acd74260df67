import type { DecisionRequest } from '../../api/decision.ts';
import { addressFamily } from '../../base/addresses.ts';
import { withoutDot } from './destination.ts';

/** An HTTP request as policies see it (egress-policy §3.1). */
export interface HttpView {
  readonly method: string;
  readonly scheme: 'http' | 'https';
  /** Host without port, brackets and one trailing dot, lower case; may be empty. */
  readonly host: string;
  /** The port written in the authority, as text; null when there is none. */
  readonly hostPort: string | null;
  /** Whether the authority is more, or other, than a host and a port. */
  readonly isMalformed: boolean;
  /** Destination port: it overrides the one in the authority. */
  readonly port: number;
  /** Raw path up to the first `?`. */
  readonly path: string;
  /** Values by lower-case name, in the order sent. */
  readonly headers: ReadonlyMap<string, readonly string[]>;
  /** Form-decoded values by name, in the order sent. */
  readonly query: ReadonlyMap<string, readonly string[]>;
  /** Every value that some server could read for a name. */
  readonly anyQuery: ReadonlyMap<string, readonly string[]>;
  readonly body: Uint8Array;
}

/** Reads the HTTP part of a request. */
export function readHttp(http: NonNullable<DecisionRequest['http']>, scheme: 'http' | 'https', port: number): HttpView {
  const mark = http.path.indexOf('?');
  const { host, hostPort, isMalformed } = readAuthority(http.authority);
  return {
    method: http.method,
    scheme,
    host,
    hostPort,
    isMalformed,
    port,
    path: mark < 0 ? http.path : http.path.slice(0, mark),
    headers: gather([
      ...http.headers.map(([name, value]) => [name.toLowerCase(), value] as const),
      ...(http.headers.some(([name]) => name.toLowerCase() === 'host') ? [] : [['host', http.authority] as const]),
    ]),
    query: gather(mark < 0 ? [] : readQuery(http.path.slice(mark + 1))),
    anyQuery: gather(mark < 0 ? [] : readAnyQuery(http.path.slice(mark + 1))),
    body: http.body ?? new Uint8Array(),
  };
}

/**
 * §3.1: the host before the first colon, or the IPv6 address in brackets. Malformed is everything that programs read in
 * different ways: other characters than those of host names (`user@host`, `a,b`), brackets around something else or left
 * open, and a port that is not one to five digits. An empty authority is a host without a name.
 */
function readAuthority(authority: string): Pick<HttpView, 'host' | 'hostPort' | 'isMalformed'> {
  const [, address, name, port = null] = /^(?:\[(.*?)\]|([^:]*))(?::(.*))?$/s.exec(authority) ?? [];
  const host = address ?? name ?? authority;
  const hostIsGood = address === undefined ? /^[A-Za-z0-9._-]*$/.test(host) : addressFamily(address) === 6;
  const portIsGood = port === null || /^[0-9]{1,5}$/.test(port);
  return { host: withoutDot(host.toLowerCase()), hostPort: port, isMalformed: !hostIsGood || !portIsGood };
}

/** Form decoding; a pair with a bad escape or a `;` is dropped and the others are kept. */
function readQuery(raw: string): readonly (readonly [string, string])[] {
  return raw.split('&').flatMap((pair) => {
    if (pair === '' || pair.includes(';')) {
      return [];
    }
    const equals = pair.indexOf('=');
    const name = formDecode(equals < 0 ? pair : pair.slice(0, equals));
    const value = formDecode(equals < 0 ? '' : pair.slice(equals + 1));
    return name === null || value === null ? [] : [[name, value] as const];
  });
}

/** What servers make of a query that decode loosely: `;` separates as `&` does or is a character, escapes may be broken. */
function readAnyQuery(raw: string): readonly (readonly [string, string])[] {
  return [...raw.split('&'), ...raw.split('&').flatMap((pair) => pair.split(';'))]
    .filter((pair) => pair !== '')
    .map((pair) => {
      const [, name = '', value = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
      return [looseDecode(name), looseDecode(value)] as const;
    });
}

/** Percent escapes and `+`; the bytes are read as UTF-8. Null when an escape is broken. */
function formDecode(text: string): string | null {
  return /%(?![0-9a-fA-F]{2})/.test(text) ? null : looseDecode(text);
}

/** The same with a broken escape left as it stands. */
function looseDecode(text: string): string {
  return text
    .replaceAll('+', ' ')
    .replaceAll(/(?:%[0-9a-fA-F]{2})+/g, (run) => Buffer.from(run.replaceAll('%', ''), 'hex').toString('utf8'));
}

function gather(pairs: readonly (readonly [string, string])[]): ReadonlyMap<string, readonly string[]> {
  const gathered = new Map<string, string[]>();
  for (const [name, value] of pairs) {
    gathered.set(name, [...(gathered.get(name) ?? []), value]);
  }
  return gathered;
}

/** The path without any escape that stands for such a character or for `%`, however often escaped (D8). */
export function fullyDecoded(raw: string): string {
  const decoded = raw.replaceAll(/%(2[5def]|3\d|4[1-9a-f]|5[\dacf]|6[1-9a-f]|7[\dae])/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  return decoded === raw ? raw : fullyDecoded(decoded);
}

/**
 * The normalised form of a path (D8): escapes of unreserved characters, `/` and `\` decoded, `\` read as `/`,
 * parameters after `;` dropped, slashes merged, dot segments removed. Parameters go before slashes and dots are looked
 * at, since a server that drops them reads `/x/..;a/admin` as `/admin`. What does not begin with `/` stays as it is.
 */
export function normalisedPath(raw: string): string {
  if (!raw.startsWith('/')) {
    return raw;
  }
  const decoded = raw.replaceAll(/%([0-9a-fA-F]{2})/g, (sequence, hex: string) => {
    const character = String.fromCharCode(Number.parseInt(hex, 16));
    return /[A-Za-z0-9\-._~/\\]/.test(character) ? character : sequence;
  });
  const segments = decoded
    .replaceAll('\\', '/')
    .split('/')
    .map((segment) => segment.split(';')[0]!);
  const kept: string[] = [];
  for (const segment of segments) {
    if (segment === '..') {
      kept.pop();
    } else if (segment !== '.' && segment !== '') {
      kept.push(segment);
    }
  }
  const last = segments.at(-1)!;
  const directory = last === '' || last === '.' || last === '..';
  return `/${kept.join('/')}${directory && kept.length > 0 ? '/' : ''}`;
}
