import type { DecisionRequest } from '../../api/decision.ts';
import { type PolicyFacts, VIRTUAL_RANGE } from '../../api/facts.ts';
import { canonicalFqdn } from '../../api/http-rules.ts';
import { canonicalAddress, parseRange, rangeContains } from '../../base/addresses.ts';
import { CodedError } from '../../base/errors.ts';
import type { SelectedPolicy, SelectedProfile } from './selection.ts';

/**
 * What a connection goes to: an address of the real world, a name (asked for by its virtual address or as such), or a
 * virtual address that is nobody's (D4). Only a listed name has a virtual address by which the gateway knows where the
 * connection goes; of any other it sees one of the real addresses, which are not known here.
 */
export type Destination =
  | { readonly kind: 'address'; readonly address: string; readonly port: number }
  | { readonly kind: 'name'; readonly name: string; readonly listed: boolean; readonly port: number }
  | { readonly kind: 'unknown-virtual'; readonly port: number };

const VIRTUAL = parseRange(VIRTUAL_RANGE)!;

/** Reads the destination of a request; throws `invalid-request` for a text that is no address or a port out of range. */
export function readDestination(
  facts: PolicyFacts,
  listed: ReadonlySet<string>,
  { destination }: DecisionRequest,
): Destination {
  const { port } = destination;
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw new CodedError('invalid-request', `destination.port: ${port} is no port`);
  }
  const text = destination.kind === 'address' ? destination.address : destination.name;
  const address = canonicalAddress(text);
  if (address === null) {
    if (destination.kind === 'address') {
      throw new CodedError('invalid-request', `destination.address: ${JSON.stringify(text)} is no address`);
    }
    const name = canonicalFqdn(text);
    return { kind: 'name', name, listed: listed.has(name), port };
  }
  if (!rangeContains(VIRTUAL, address)) {
    return { kind: 'address', address, port };
  }
  const owner = Object.entries(facts.virtualAddresses).find(([, virtual]) => virtual === address);
  // The sandbox never learns the virtual address of a name that is not listed for it.
  return owner !== undefined && listed.has(owner[0])
    ? { kind: 'name', name: owner[0], listed: true, port }
    : { kind: 'unknown-virtual', port };
}

/**
 * The names listed for a sandbox (D4): exact `fqdn` peers and exact `domains` of the policies that select it, and all
 * `hosts` names.
 */
export function listedNames(
  facts: PolicyFacts,
  policies: readonly SelectedPolicy[],
  profiles: readonly SelectedProfile[],
): ReadonlySet<string> {
  const peers = policies.flatMap(({ rules }) => rules.flatMap((rule) => rule.to ?? []));
  const clauses = profiles.flatMap(({ rules }) => rules.flatMap((rule) => rule.match));
  return new Set([
    ...Object.keys(facts.hosts),
    ...peers.flatMap(({ fqdn }) => (fqdn === undefined ? [] : [canonicalFqdn(fqdn)])),
    ...clauses.flatMap(({ domains }) => domains.map(readDomain).flatMap((d) => (d.kind === 'exact' ? [d.name] : []))),
  ]);
}

/** The name that the gateway knows a connection to go to; null for a real address, given or behind a name. */
export function knownName(destination: Destination): string | null {
  return destination.kind === 'name' && destination.listed ? destination.name : null;
}

/** One of a clause's `domains` (egress-policy §3.2). */
export type Domain =
  | { readonly kind: 'any' }
  | { readonly kind: 'suffix'; readonly suffix: string }
  | { readonly kind: 'exact'; readonly name: string };

/** `*`, `*.suffix`, or a name; lower case, one trailing dot removed. A `*` elsewhere is a literal character. */
export function readDomain(text: string): Domain {
  if (text === '*') {
    return { kind: 'any' };
  }
  const name = withoutDot(text.toLowerCase());
  return name.startsWith('*.') ? { kind: 'suffix', suffix: name.slice(1) } : { kind: 'exact', name };
}

/** Whether a domain covers a host in canonical form; a suffix covers any number of labels and never its apex. */
export function covers(domain: Domain, host: string): boolean {
  switch (domain.kind) {
    case 'any':
      return true;
    case 'suffix':
      return host.endsWith(domain.suffix) && host.length > domain.suffix.length;
    case 'exact':
      return host === domain.name;
  }
}

/** The text without one dot at its end. */
export function withoutDot(text: string): string {
  return text.endsWith('.') ? text.slice(0, -1) : text;
}
