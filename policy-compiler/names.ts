import { canonicalAddress } from '../base/addresses.ts';

const HOST_NAME = /^[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?)*$/;

/** Lower case, trimmed, one trailing dot removed: the form in which all names are compared (egress-policy §2.2, D13). */
export function canonicalName(name: string): string {
  return name.trim().replace(/\.$/, '').toLowerCase();
}

/** The canonical form of an address, or null; quick for what cannot be one. */
function addressOf(name: string): string | null {
  return name.includes(':') || /^[0-9.]+$/.test(name) ? canonicalAddress(name) : null;
}

/** Whether a canonical name can have a DNS answer, and so a virtual address (D4). Addresses and wildcards cannot. */
export function isResolvable(name: string): boolean {
  return name.length <= 253 && HOST_NAME.test(name) && addressOf(name) === null;
}

const LDH_LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** Whether a canonical name can have an interception certificate: letters, digits and `-`, no number at the end. */
export function canHaveLeaf(name: string): boolean {
  const labels = name.split('.');
  return name.length <= 253 && labels.every((label) => LDH_LABEL.test(label)) && !/^[0-9]+$/.test(labels.at(-1)!);
}

/** What an entry of a clause's `domains` covers (egress-policy §3.2). */
export type Domain =
  | { readonly kind: 'any' }
  /** Every host that ends with `.suffix`, at any depth, without the apex. */
  | { readonly kind: 'suffix'; readonly suffix: string }
  /** A name, or an address in its canonical form. */
  | { readonly kind: 'exact'; readonly name: string }
  /** Nothing: a `*` anywhere but as the first label is a literal that no host name holds. */
  | { readonly kind: 'never' };

/** Reads one `domains` entry. */
export function parseDomain(text: string): Domain {
  if (text === '*') {
    return { kind: 'any' };
  }
  const name = canonicalName(text);
  if (name.startsWith('*.')) {
    const suffix = name.slice(2);
    return suffix === '' || suffix.includes('*') ? { kind: 'never' } : { kind: 'suffix', suffix };
  }
  if (name === '' || name.includes('*')) {
    return { kind: 'never' };
  }
  return { kind: 'exact', name: addressOf(name) ?? name };
}

/** Whether a host (of {@link hostOf}) lies under `*.suffix`. */
export function underSuffix(host: string, suffix: string): boolean {
  return host.length > suffix.length + 1 && host.endsWith(`.${suffix}`);
}

/** Whether a domain covers a host. */
export function domainCovers(domain: Domain, host: string): boolean {
  switch (domain.kind) {
    case 'any':
      return true;
    case 'suffix':
      return underSuffix(host, domain.suffix);
    case 'exact':
      return domain.name === host;
    case 'never':
      return false;
  }
}

/**
 * The host of an `:authority` in the form that the tables compare: lower case, without port and brackets, one trailing
 * dot removed (egress-policy §3.1; the trailing dot as D13 says for vector 63).
 */
export function hostOf(authority: string): string {
  const lower = authority.toLowerCase();
  if (lower.startsWith('[')) {
    const end = lower.indexOf(']');
    return end < 0 ? lower : (canonicalAddress(lower.slice(1, end)) ?? lower.slice(1, end));
  }
  const colon = lower.indexOf(':');
  const host = colon < 0 ? lower : lower.slice(0, colon);
  return host.endsWith('.') ? host.slice(0, -1) : host;
}
