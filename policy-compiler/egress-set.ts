import type { HostEntry } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import { contentHash } from '../base/canonical.ts';
import { ALL_PORTS, type Ports } from './l4-policy.ts';
import { type ListedNames, listNames, type PolicySet, portsListed } from './policy-set.ts';

/** A name as the inner listener needs it for traffic that it does not read. */
export interface TunnelName {
  readonly name: string;
  readonly virtual: string;
  readonly host: HostEntry | null;
  /** Where the gateway may not dial it, by port. */
  readonly pieces: readonly { readonly ports: Ports; readonly notDialled: readonly string[] }[];
  /** Ports at which a rule for https lists it: TLS that is not intercepted is denied there. */
  readonly https: readonly Ports[];
  /** Ports at which a rule for http lists it exactly: bytes that are no HTTP are denied there. */
  readonly http: readonly Ports[];
}

/** What the inner listener of some sandboxes depends on. */
export interface EgressSet {
  readonly hash: string;
  readonly names: readonly TunnelName[];
  readonly listed: ListedNames;
  readonly invalid: ObjectRef | null;
}

const UNCONSTRAINED: TunnelName['pieces'] = [{ ports: ALL_PORTS, notDialled: [] }];

/** The connection side of a policy set (D1, D4). Equal sets are one listener. */
export function egressSet(set: PolicySet): EgressSet {
  const listed = listNames(set.invalid === null ? set.rules : []);
  const names = [...set.names.values()].map((name) => ({
    ...name,
    // Whether a name is allowed is the sidecar's to say: if it changed this set, a tunnel to any other name of the
    // sandbox would end with it, since an open tunnel belongs to the listener that took it (D14, D33).
    pieces: name.pieces.length === 0 ? UNCONSTRAINED : name.pieces,
    https: portsListed([...listed.intercepted, ...listed.withoutLeaf], listed.httpsSuffixes, name.name),
    http: portsListed(listed.http, [], name.name),
  }));
  return {
    hash: contentHash({ names, listed: relevant(listed), invalid: set.invalid }),
    names,
    listed,
    invalid: set.invalid,
  };
}

/** Names of cleartext rules matter to the listener only where they have a virtual address. */
function relevant({ exact: _exact, suffixes: _suffixes, http: _http, ...rest }: ListedNames): unknown {
  return rest;
}

/** What becomes of a connection that is TLS, by its server name (empty: none) and destination (D1). */
export function tlsVerdict(
  set: EgressSet,
  sni: string,
  name: string | null,
  port: number,
): 'intercepted' | 'passthrough' | 'denied' {
  const { listed } = set;
  if (set.invalid !== null || (sni === '' && covers(listed.restrictedHttps, port))) {
    return 'denied';
  }
  if (covers(portsListed(listed.intercepted, [], sni), port)) {
    return 'intercepted';
  }
  const behind = set.names.find((known) => known.name === name)?.https ?? [];
  const restricted = [behind, portsListed(listed.withoutLeaf, listed.httpsSuffixes, sni), listed.anyHttps];
  return restricted.some((ports) => covers(ports, port)) ? 'denied' : 'passthrough';
}

/** Whether bytes that are neither TLS nor HTTP are denied (docs/architecture.md "Egress gateway"). */
export function deniesRaw(set: EgressSet, name: string | null, port: number): boolean {
  const behind = set.names.find((known) => known.name === name)?.http ?? [];
  return set.invalid !== null || covers(behind, port) || covers(set.listed.wildcards, port);
}

function covers(ranges: readonly Ports[], port: number): boolean {
  return ranges.some(({ from, to }) => from <= port && port <= to);
}
