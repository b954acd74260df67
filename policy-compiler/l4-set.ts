import type { L4Decision, L4Reason } from '../api/decision.ts';
import { type HostEntry, VIRTUAL_RANGE } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import {
  type AddressRange,
  inRanges,
  LINK_LOCAL_RANGES,
  LOOPBACK_RANGES,
  PRIVATE_RANGES,
  parseRange,
  rangeContains,
  rangeText,
} from '../base/addresses.ts';
import { contentHash } from '../base/canonical.ts';
import { ALL_PORTS, type L4Policy, type L4Rule, type Ports, peerText, portsText } from './l4-policy.ts';
import { PROXY_PORTS } from './output.ts';

/** A name that the sandbox's resolver answers with a virtual address (D4). */
export interface NameFacts {
  readonly name: string;
  readonly virtual: string;
  /** The operator's address for it, or null: then the gateway resolves it. */
  readonly host: HostEntry | null;
}

/** Everything that decides connections of the sandboxes that share it. */
export interface L4Set {
  readonly hash: string;
  /** Rules of the selected policies, in order. */
  readonly rules: readonly L4Rule[];
  /** Whether some selected policy governs egress: then what no rule matches is denied. */
  readonly governed: boolean;
  /** Sorted by name. */
  readonly names: readonly NameFacts[];
  /** Link-local addresses that a rule names exactly, and that the rules decide therefore (D3). */
  readonly linkLocal: readonly AddressRange[];
  /** The object because of which everything is denied (D2), or null. */
  readonly invalid: ObjectRef | null;
  /** The policies it was made from. */
  readonly origins: readonly ObjectRef[];
}

export const VIRTUAL = parseRange(VIRTUAL_RANGE)!;

/** IPv4-mapped addresses would be another spelling of loopback; nothing legitimate arrives in that form. */
const MAPPED: AddressRange = { family: 6, address: '::ffff:0:0', prefix: 96 };

/** Destinations that are refused before any rule (D3). */
export const OWN_RANGES: readonly AddressRange[] = [...LOOPBACK_RANGES, MAPPED];

/** Merges the selected policies into a set; the hash covers the rules with their owners, and the names. */
export function l4Set(policies: readonly L4Policy[], names: readonly NameFacts[], invalid: ObjectRef | null): L4Set {
  const rules = invalid === null ? policies.flatMap((policy) => policy.rules) : [];
  const governed = policies.some(({ governs }) => governs);
  const linkLocal = rules
    .flatMap(({ peers }) => peers)
    .flatMap((peer) => (peer.kind === 'range' && isLinkLocalAddress(peer.range) ? [peer.range] : []));
  const content = { rules: rules.map(ruleContent), governed, names, invalid };
  return {
    hash: contentHash(content),
    rules,
    governed,
    names,
    linkLocal: [...new Map(linkLocal.map((range) => [rangeText(range), range])).values()],
    invalid,
    origins: invalid === null ? policies.map(({ ref }) => ref) : [invalid],
  };
}

function ruleContent({ ref, index, action, peers, ports }: L4Rule): unknown {
  return { ref, index, action, peers: peers.map((peer) => [peer.kind, peerText(peer)]), ports: ports.map(portsText) };
}

function isLinkLocalAddress(range: AddressRange): boolean {
  return range.prefix === (range.family === 4 ? 32 : 128) && inRanges(LINK_LOCAL_RANGES, range.address);
}

function decision(action: 'allow' | 'reject', reason: L4Reason, rule: L4Rule | null = null): L4Decision {
  return { action, reason, rule: rule === null ? null : { ...rule.ref, index: rule.index } };
}

function invalidDecision(ref: ObjectRef): L4Decision {
  return { action: 'reject', reason: 'policy-invalid', rule: { ...ref, index: 0 } };
}

function portsMatch(rule: L4Rule, port: number): boolean {
  return rule.ports.some(({ from, to }) => from <= port && port <= to);
}

/**
 * Decides a connection to a canonical address (egress-policy §2.3, D3). `own` are the sandbox's own addresses. An
 * address of the virtual range is decided by the name behind it, and refused when the set has no such name.
 */
export function decideAddress(set: L4Set, own: readonly string[], address: string, port: number): L4Decision {
  if (set.invalid !== null) {
    return invalidDecision(set.invalid);
  }
  if (rangeContains(VIRTUAL, address)) {
    const name = set.names.find(({ virtual }) => virtual === address);
    return name === undefined ? decision('reject', 'unresolved') : decideName(set, name.name, port).decision;
  }
  if (PROXY_PORTS.includes(port) || own.includes(address) || inRanges(OWN_RANGES, address)) {
    return decision('reject', 'own-address');
  }
  if (inRanges(LINK_LOCAL_RANGES, address) && !set.linkLocal.some((range) => range.address === address)) {
    return decision('reject', 'private-address');
  }
  const rule = set.rules.find(
    ({ peers, ...rest }) =>
      portsMatch({ peers, ...rest }, port) &&
      peers.some((peer) => peer.kind === 'range' && rangeContains(peer.range, address)),
  );
  if (rule !== undefined) {
    return decision(rule.action, 'rule', rule);
  }
  return set.governed ? decision('reject', 'default') : decision('allow', 'unselected');
}

/** The decision about a name, and where it may not be dialled although it is admitted. */
export interface NameDecision {
  readonly decision: L4Decision;
  /** Texts of ranges that the gateway must not dial for this name, beyond the private ones; sorted. */
  readonly notDialled: readonly string[];
}

/** How a rule stands to a name (D4). */
export type Standing =
  | { readonly kind: 'decides'; readonly v4Only: boolean }
  /** A reject of ranges that the name may resolve into. */
  | { readonly kind: 'narrows'; readonly ranges: readonly AddressRange[] }
  /** An allow of ranges: it does not admit a name whose address is not known. */
  | { readonly kind: 'unresolved' }
  | { readonly kind: 'none' };

/** How a rule, whose ports match, stands to a name; `host` is the operator's address for it. */
export function standingOf(rule: L4Rule, name: string, host: HostEntry | null): Standing {
  if (rule.peers.some((peer) => peer.kind === 'name' && peer.name === name)) {
    return { kind: 'decides', v4Only: false };
  }
  const ranges = rule.peers.flatMap((peer) => (peer.kind === 'range' ? [peer.range] : []));
  if (ranges.some(({ family, prefix }) => family === 4 && prefix === 0)) {
    return { kind: 'decides', v4Only: true };
  }
  if (ranges.length === 0) {
    return { kind: 'none' };
  }
  if (host !== null) {
    const inside = ranges.some((range) => rangeContains(range, host.address));
    return inside ? { kind: 'decides', v4Only: false } : { kind: 'none' };
  }
  return rule.action === 'reject' ? { kind: 'narrows', ranges } : { kind: 'unresolved' };
}

/** Decides a connection to a name whose address the gateway will resolve, or that has an operator's address (D4). */
export function decideName(set: L4Set, name: string, port: number): NameDecision {
  if (set.invalid !== null) {
    return { decision: invalidDecision(set.invalid), notDialled: [] };
  }
  const host = set.names.find((known) => known.name === name)?.host ?? null;
  const narrowed: AddressRange[] = [];
  let unresolved = false;
  for (const rule of set.rules.filter((candidate) => portsMatch(candidate, port))) {
    const standing = standingOf(rule, name, host);
    if (standing.kind === 'decides') {
      const ranges = standing.v4Only && host === null ? [...narrowed, ANY_V6] : narrowed;
      const notDialled = rule.action === 'allow' ? beyondPrivate(ranges) : [];
      return { decision: decision(rule.action, 'rule', rule), notDialled };
    }
    if (standing.kind === 'narrows') {
      narrowed.push(...standing.ranges);
    }
    unresolved ||= standing.kind === 'unresolved';
  }
  if (set.governed) {
    return { decision: decision('reject', unresolved ? 'unresolved' : 'default'), notDialled: [] };
  }
  return { decision: decision('allow', 'unselected'), notDialled: [] };
}

const ANY_V6: AddressRange = { family: 6, address: '::', prefix: 0 };

/** Sorted texts of the ranges that the private ranges do not cover already. */
function beyondPrivate(ranges: readonly AddressRange[]): readonly string[] {
  const beyond = ranges.filter((range) => !PRIVATE_RANGES.some((known) => covers(known, range)));
  return [...new Set(beyond.map(rangeText))].sort();
}

/**
 * Whether some connection to a real address could be allowed: only then is the sandbox to learn the addresses of names
 * that are not listed, and only then do such names leave it (D4).
 */
export function reachesAddresses(set: L4Set): boolean {
  if (set.invalid !== null || !set.governed) {
    return set.invalid === null;
  }
  const refused = [...OWN_RANGES, VIRTUAL, ...(set.linkLocal.length === 0 ? LINK_LOCAL_RANGES : [])];
  // No connection goes to port 0.
  return [1, ...portStarts(set).filter((start) => start > 1)].some((port) => {
    const shut = [...refused];
    for (const rule of set.rules.filter((candidate) => portsMatch(candidate, port))) {
      const ranges = rule.peers.flatMap((peer) => (peer.kind === 'range' ? [peer.range] : []));
      if (rule.action === 'reject') {
        shut.push(...ranges);
      } else if (ranges.some((range) => !shut.some((other) => covers(other, range)))) {
        return true;
      }
    }
    return false;
  });
}

function covers(outer: AddressRange, inner: AddressRange): boolean {
  return outer.prefix <= inner.prefix && rangeContains(outer, inner.address);
}

/** The first port of each run of ports to which the same rules apply, ascending. */
function portStarts(set: L4Set): readonly number[] {
  const starts = new Set([ALL_PORTS.from]);
  for (const { from, to } of set.rules.flatMap(({ ports }) => ports)) {
    starts.add(from);
    starts.add(to + 1);
  }
  return [...starts].filter((start) => start <= ALL_PORTS.to).sort((a, b) => a - b);
}

/** A run of ports for which a name is decided alike. */
export interface NamePiece extends NameDecision {
  readonly ports: Ports;
}

/** The decision about a name for every port, as runs in ascending order. */
export function namePieces(set: L4Set, name: string): readonly NamePiece[] {
  const starts = portStarts(set);
  return starts.map((from, index) => ({
    ports: { from, to: (starts[index + 1] ?? ALL_PORTS.to + 1) - 1 },
    ...decideName(set, name, from),
  }));
}
