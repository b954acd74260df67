import { canonicalAddress } from '../base/addresses.ts';

/** What an HTTP header name, a header value and a domain of a policy may be. */

/** Names that belong to one connection, not to the request (egress-policy §5). */
const CONNECTION_HEADERS = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'upgrade',
  'te',
  'trailer',
  'proxy-authenticate',
  'content-encoding',
]);
const FRAMING_HEADERS = new Set(['content-length', 'transfer-encoding']);

/** Why a policy may not write or remove a header, or null when it may (egress-policy §5, §6.1). */
export function headerNameProblem(name: string, use: 'set' | 'remove'): string | null {
  const lower = name.toLowerCase();
  if (lower === 'host') {
    return 'must not be host: a policy cannot change where a request goes';
  }
  if (lower.startsWith('x-envoy')) {
    return 'must not begin with x-envoy: these headers control the proxy';
  }
  if (CONNECTION_HEADERS.has(lower)) {
    return `must not be ${lower}: it belongs to one connection or describes the body`;
  }
  if (use === 'set' && FRAMING_HEADERS.has(lower)) {
    return `must not be ${lower}: it frames the body; it can only be removed`;
  }
  return null;
}

/** Why a text cannot be the value of a header, or null when it can. */
export function headerValueProblem(value: string): string | null {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  return /[\u0000-\u0008\u000a-\u001f\u007f]/.test(value)
    ? 'must not hold a line break or another control character'
    : null;
}

/** Why a text cannot be one of a clause's `domains`, or null when it can (egress-policy §3.2, D2). */
export function domainProblem(domain: string): string | null {
  if (domain === '') {
    return 'must not be empty; * means every host';
  }
  if (canonicalAddress(domain) !== null) {
    return null;
  }
  if (/[/\s]/.test(domain)) {
    return `${JSON.stringify(domain)} must be a host name alone, without scheme, path or white space`;
  }
  if (domain.includes(':')) {
    return `${JSON.stringify(domain)} must not have a port; put it into ports`;
  }
  return null;
}

const HOST_NAME = /^[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?)*$/;

/** Why a well-formed `domains` entry can cover no host, or null when it can: it would look like a rule and be none. */
export function domainWithoutHosts(domain: string): string | null {
  const name = canonicalFqdn(domain);
  if (domain === '*' || canonicalAddress(domain) !== null || HOST_NAME.test(name.replace(/^\*\./, ''))) {
    return null;
  }
  return `${JSON.stringify(domain)} can be the host of no request; write a host name (xn--… if it is not ASCII), *.suffix or *`;
}

/** Why no path can be, or begin with, this text, or null when one can. */
export function pathOfNoRequest(value: string): string | null {
  if (!value.startsWith('/')) {
    return `${JSON.stringify(value)} must begin with /, as every path does`;
  }
  if (value.includes('?')) {
    return `${JSON.stringify(value)} must not hold a query, which is no part of a path; use queryParams`;
  }
  return /^[!-"$->@-~]*$/.test(value)
    ? null
    : `${JSON.stringify(value)} must be written as it is sent: escaped (%20), and without a fragment`;
}

/** Why no header's value can be, or begin with, this text, or null when one can: values arrive without white space around. */
export function headerOfNoRequest(value: string, isPrefix: boolean): string | null {
  if (!/^[\t\x20-\x7e]*$/.test(value)) {
    return 'must be ASCII without control characters: other bytes of a header are read in different ways';
  }
  return value.trimStart() === value && (isPrefix || value.trimEnd() === value)
    ? null
    : `${JSON.stringify(value)} must not have white space around it: it is no part of a header's value`;
}

/** Why a regular expression for a path or a header cannot mean what it says, or null when it can. */
export function regexOfNoText(source: string): string | null {
  return /^[\x20-\x7e]*$/.test(source) ? null : 'must be ASCII, as paths and headers are compared';
}

/** The form in which an `fqdn` peer is compared: trimmed, one trailing dot removed, lower case (egress-policy §2.2). */
export function canonicalFqdn(fqdn: string): string {
  return fqdn.trim().replace(/\.$/, '').toLowerCase();
}

/** Why a text cannot be an `fqdn` peer, or null when it can. */
export function fqdnProblem(fqdn: string): string | null {
  const name = canonicalFqdn(fqdn);
  if (name.includes('*')) {
    return `${JSON.stringify(fqdn)}: wildcards are not carried out yet; name each host`;
  }
  if (canonicalAddress(name) !== null) {
    return `${JSON.stringify(fqdn)} is an address; use cidr`;
  }
  return HOST_NAME.test(name)
    ? null
    : `${JSON.stringify(fqdn)} must be a host name alone, without scheme, port or path`;
}
