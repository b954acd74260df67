import type { L4Decision, L4Reason } from '../../api/decision.ts';
import type { PolicyFacts, SandboxFacts } from '../../api/facts.ts';
import { canonicalFqdn } from '../../api/http-rules.ts';
import type { ObjectRef } from '../../api/object.ts';
import type { TrafficPeer, TrafficPort, TrafficRule } from '../../api/traffic-policy.ts';
import {
  type AddressRange,
  canonicalAddress,
  inRanges,
  LINK_LOCAL_RANGES,
  LOOPBACK_RANGES,
  parseRange,
  rangeContains,
  rangeText,
} from '../../base/addresses.ts';
import type { Destination } from './destination.ts';
import { type SelectedPolicy, selects } from './selection.ts';

/** The connection's verdict (egress-policy §2.3, D3, D4), for a sandbox that no invalid object selects. */
export function decideL4(
  facts: PolicyFacts,
  sandbox: SandboxFacts,
  policies: readonly SelectedPolicy[],
  destination: Destination,
): L4Decision {
  switch (destination.kind) {
    case 'unknown-virtual':
      return without('reject', 'unresolved');
    case 'name':
      return decideName(facts, policies, destination.name, destination.port);
    case 'address':
      return decideAddress(facts, sandbox, policies, destination.address, destination.port);
  }
}

/** The verdict for a sandbox that an invalid object selects (D2). */
export function rejectInvalid(object: ObjectRef): L4Decision {
  return { action: 'reject', reason: 'policy-invalid', rule: { ...object, index: 0 } };
}

function decideAddress(
  facts: PolicyFacts,
  sandbox: SandboxFacts,
  policies: readonly SelectedPolicy[],
  address: string,
  port: number,
): L4Decision {
  // D3: own addresses first. The proxy's ports are ports of own addresses, so they need no test of their own.
  if (inRanges(LOOPBACK_RANGES, address) || sandbox.addresses.some((own) => canonicalAddress(own) === address)) {
    return without('reject', 'own-address');
  }
  // D3: link-local unless a selected rule, whatever its action, names exactly this address.
  const peers = policies.flatMap(({ rules }) => rules.flatMap((rule) => rule.to ?? []));
  if (inRanges(LINK_LOCAL_RANGES, address) && !peers.some((peer) => namesExactly(peer, address))) {
    return without('reject', 'private-address');
  }
  for (const { policy, rule, index } of rulesFor(policies, port)) {
    if (peerRanges(facts, policy.ref, rule.to!).some((range) => rangeContains(range, address))) {
      return byRule(policy, rule, index);
    }
  }
  return policies.length > 0 ? without('reject', 'default') : without('allow', 'unselected');
}

/** A name is decided by the rules alone, whatever it resolves to (D4). */
function decideName(facts: PolicyFacts, policies: readonly SelectedPolicy[], name: string, port: number): L4Decision {
  const operator = Object.hasOwn(facts.hosts, name) ? canonicalAddress(facts.hosts[name]!.address) : null;
  let passedAllow = false;
  for (const { policy, rule, index } of rulesFor(policies, port)) {
    const named = rule.to!.some(({ fqdn }) => fqdn !== undefined && canonicalFqdn(fqdn) === name);
    const ranges = peerRanges(facts, policy.ref, rule.to!);
    const everything = ranges.some((range) => rangeText(range) === '0.0.0.0/0');
    const atOperator = operator !== null && ranges.some((range) => rangeContains(range, operator));
    if (named || everything || atOperator) {
      return byRule(policy, rule, index);
    }
    // A narrower reject only constrains which addresses are dialled; a narrower allow does not admit the name.
    if (operator === null && ranges.length > 0 && rule.action === 'allow') {
      passedAllow = true;
    }
  }
  if (policies.length === 0) {
    return without('allow', 'unselected');
  }
  return without('reject', passedAllow ? 'unresolved' : 'default');
}

interface PlacedRule {
  readonly policy: SelectedPolicy;
  readonly rule: TrafficRule;
  readonly index: number;
}

/** Rules that apply to a TCP connection to this port, in order; a rule without peers is skipped (§1.4). */
function rulesFor(policies: readonly SelectedPolicy[], port: number): readonly PlacedRule[] {
  return policies.flatMap((policy) =>
    policy.rules
      .map((rule, index) => ({ policy, rule, index }))
      .filter(({ rule }) => (rule.to ?? []).length > 0 && portMatches(rule.ports ?? [], port)),
  );
}

/** §2.3: no entries match every port; an entry of another protocol than TCP never matches a connection. */
function portMatches(entries: readonly TrafficPort[], port: number): boolean {
  return (
    entries.length === 0 ||
    entries.some(
      (entry) =>
        (entry.protocol === undefined || entry.protocol === 'TCP') &&
        (entry.port === undefined || (entry.port <= port && port <= (entry.endPort ?? entry.port))),
    )
  );
}

/** The addresses of the peers of one rule (§2.2). `fqdn` peers have none here: names are matched as names (D4). */
function peerRanges(facts: PolicyFacts, policy: ObjectRef, peers: readonly TrafficPeer[]): readonly AddressRange[] {
  return peers.flatMap((peer) => {
    if (peer.cidr !== undefined) {
      return ranges([peer.cidr]);
    }
    if (peer.service !== undefined) {
      const { name, namespace } = peer.service;
      const home = namespace ?? (policy.namespace === '' ? facts.rootNamespace : policy.namespace);
      const services = facts.services.filter((s) => s.namespace === home && (name === '*' || s.name === name));
      return ranges(services.flatMap((service) => service.addresses));
    }
    if (peer.workload !== undefined) {
      const { namespace, selector } = peer.workload;
      const pods = facts.pods.filter((pod) => pod.namespace === namespace);
      const chosen = pods.filter((pod) => selects({ matchLabels: selector }, pod.labels));
      return ranges(chosen.flatMap((pod) => pod.addresses));
    }
    return [];
  });
}

function ranges(texts: readonly string[]): readonly AddressRange[] {
  return texts.map(parseRange).filter((range) => range !== null);
}

function namesExactly(peer: TrafficPeer, address: string): boolean {
  const range = peer.cidr === undefined ? null : parseRange(peer.cidr);
  return range !== null && range.prefix === (range.family === 4 ? 32 : 128) && range.address === address;
}

function byRule({ ref }: SelectedPolicy, { action }: TrafficRule, index: number): L4Decision {
  return { action, reason: 'rule', rule: { ...ref, index } };
}

function without(action: 'allow' | 'reject', reason: L4Reason): L4Decision {
  return { action, reason, rule: null };
}
