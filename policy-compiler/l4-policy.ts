import type { PolicyFacts, PolicyRecord } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import type { TrafficPeer, TrafficPort, TrafficRule } from '../api/traffic-policy.ts';
import { type AddressRange, parseRange, rangeText } from '../base/addresses.ts';
import { compareText } from '../base/canonical.ts';
import { canonicalName } from './names.ts';

/** An inclusive range of TCP ports. */
export interface Ports {
  readonly from: number;
  readonly to: number;
}

export const ALL_PORTS: Ports = { from: 0, to: 65535 };

/** One destination that a rule names. */
export type Peer =
  | { readonly kind: 'range'; readonly range: AddressRange }
  | { readonly kind: 'name'; readonly name: string };

/** An egress rule with its peers resolved from the facts, as far as TCP is concerned. */
export interface L4Rule {
  readonly ref: ObjectRef;
  /** Position in `spec.egress.rules`. */
  readonly index: number;
  readonly action: 'allow' | 'reject';
  /** Empty: the rule never matches. Sorted, without duplicates. */
  readonly peers: readonly Peer[];
  /** Empty: the rule never matches TCP. */
  readonly ports: readonly Ports[];
}

/** The egress side of one policy in force. */
export interface L4Policy {
  readonly ref: ObjectRef;
  /** Whether it has an `egress` direction, which makes denial the default (egress-policy §2.3, D2). */
  readonly governs: boolean;
  readonly rules: readonly L4Rule[];
  /** Peers that were left out, and why; for a condition (D2). */
  readonly omitted: readonly string[];
}

/** Where peers of kind service and workload find their addresses. */
export interface PeerAddresses {
  service(namespace: string, name: string): readonly string[];
  workload(namespace: string, labels: Readonly<Record<string, string>>): readonly string[];
}

/** Finds services and pods by namespace (egress-policy §2.2); they are indexed once somebody asks. */
export function peerAddresses(facts: PolicyFacts): PeerAddresses {
  const services = once(() => Map.groupBy(facts.services, ({ namespace }) => namespace));
  const pods = once(() => Map.groupBy(facts.pods, ({ namespace }) => namespace));
  return {
    service: (namespace, name) =>
      (services().get(namespace) ?? [])
        .filter((service) => name === '' || name === '*' || service.name === name)
        .flatMap(({ addresses }) => addresses),
    workload: (namespace, labels) =>
      (pods().get(namespace) ?? [])
        .filter((pod) => Object.entries(labels).every(([key, value]) => pod.labels[key] === value))
        .flatMap(({ addresses }) => addresses),
  };
}

function once<T extends object>(make: () => T): () => T {
  let made: T | null = null;
  return () => {
    made ??= make();
    return made;
  };
}

/** Whether the policy's meaning depends on services or pods. */
export function dependsOnAddresses(record: PolicyRecord): boolean {
  return egressRules(record).some(({ to = [] }) =>
    to.some(({ service, workload }) => service !== undefined || workload !== undefined),
  );
}

/**
 * Reads a TrafficPolicy or GlobalTrafficPolicy in force (egress-policy §2). A rule without `to` and a `cidr` that
 * cannot be parsed are left out, the direction counts as governed all the same (D2, D13 for vector 25).
 */
export function compileTrafficPolicy(record: PolicyRecord, addresses: PeerAddresses, root: string): L4Policy {
  const omitted: string[] = [];
  const namespace = record.ref.namespace === '' ? root : record.ref.namespace;
  const rules = egressRules(record).map((rule, index): L4Rule => {
    if ((rule.to ?? []).length === 0) {
      omitted.push(`spec.egress.rules[${index}] has no peers`);
    }
    const peers = (rule.to ?? []).flatMap((peer, at) => {
      const resolved = resolvePeer(peer, addresses, namespace);
      if (resolved === null) {
        omitted.push(`spec.egress.rules[${index}].to[${at}].cidr is no address range`);
      }
      return resolved ?? [];
    });
    return {
      ref: record.ref,
      index,
      action: rule.action,
      peers: uniquePeers(peers),
      ports: tcpPorts(rule.ports ?? []),
    };
  });
  return { ref: record.ref, governs: hasEgress(record), rules, omitted };
}

function egressRules(record: PolicyRecord): readonly TrafficRule[] {
  const spec = record.inForce?.spec;
  return spec !== undefined && 'egress' in spec ? (spec.egress?.rules ?? []) : [];
}

function hasEgress(record: PolicyRecord): boolean {
  const spec = record.inForce?.spec;
  return spec !== undefined && 'egress' in spec && spec.egress !== undefined;
}

function resolvePeer(peer: TrafficPeer, addresses: PeerAddresses, namespace: string): readonly Peer[] | null {
  if (peer.cidr !== undefined) {
    const range = parseRange(peer.cidr);
    return range === null ? null : [{ kind: 'range', range }];
  }
  if (peer.fqdn !== undefined) {
    return [{ kind: 'name', name: canonicalName(peer.fqdn) }];
  }
  const found =
    peer.service !== undefined
      ? addresses.service(peer.service.namespace ?? namespace, peer.service.name)
      : peer.workload !== undefined
        ? addresses.workload(peer.workload.namespace, peer.workload.selector)
        : [];
  return found.map(parseRange).flatMap((range) => (range === null ? [] : [{ kind: 'range', range }]));
}

/** Text that identifies a peer. */
export function peerText(peer: Peer): string {
  return peer.kind === 'name' ? peer.name : rangeText(peer.range);
}

function uniquePeers(peers: readonly Peer[]): readonly Peer[] {
  const byText = new Map(peers.map((peer) => [`${peer.kind} ${peerText(peer)}`, peer]));
  return [...byText].sort(([a], [b]) => compareText(a, b)).map(([, peer]) => peer);
}

/** The TCP part of `ports` (egress-policy §2.3): no entry at all means every port, entries of other protocols nothing. */
function tcpPorts(ports: readonly TrafficPort[]): readonly Ports[] {
  if (ports.length === 0) {
    return [ALL_PORTS];
  }
  const ranges = ports
    .filter(({ protocol }) => protocol === undefined || protocol === 'TCP')
    .map(({ port, endPort }) => (port === undefined ? ALL_PORTS : { from: port, to: endPort ?? port }));
  const byText = new Map(ranges.map((range) => [portsText(range), range]));
  return [...byText.values()].sort((a, b) => a.from - b.from || a.to - b.to);
}

/** `80`, `8000-8100`, or `*`. */
export function portsText({ from, to }: Ports): string {
  return from === to ? String(from) : from === 0 && to === 65535 ? '*' : `${from}-${to}`;
}

/** Whether two port ranges share a port. */
export function portsOverlap(a: Ports, b: Ports): boolean {
  return a.from <= b.to && b.from <= a.to;
}
