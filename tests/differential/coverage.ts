import type { Decision } from '../../api/decision.ts';
import type { SecurityProfileSpec } from '../../api/security-profile.ts';
import type { TrafficPolicySpec } from '../../api/traffic-policy.ts';
import type { Pair } from './generate.ts';

/** Every action, field and verdict that the pairs have to hold (D28). */
export const FEATURES: readonly string[] = [
  ...['rule/allow', 'rule/reject', 'default/reject', 'unselected/allow'].map((verdict) => `l4 ${verdict}`),
  ...['private-address', 'own-address', 'policy-invalid', 'unresolved'].map((reason) => `l4 ${reason}/reject`),
  ...['plain', 'intercepted', 'passthrough'].map((tls) => `tls ${tls}`),
  ...['forward', 'block', 'deny'].map((action) => `l7 ${action}`),
  ...['mcp', 'tls-not-intercepted', 'not-http', 'host-mismatch', 'unenforceable'].map((reason) => `reason ${reason}`),
  ...['credential-unavailable', 'credential-destination'].map((reason) => `reason ${reason}`),
  ...['bypass', 'block', 'mcpToolPolicy', 'headerManipulation', 'tokenTransformation'].map((name) => `action ${name}`),
  ...['header set', 'header removed', 'credential injected'],
  ...['cidr', 'fqdn', 'service', 'workload'].map((peer) => `peer ${peer}`),
  ...['no peers', 'port', 'endPort', 'protocol', 'priority', 'selector', 'global', 'namespaced'],
  ...['exact', 'suffix', 'any'].map((domain) => `domain ${domain}`),
  ...['methods', 'schemes', 'ports', 'paths', 'headers', 'queryParams'].map((field) => `clause ${field}`),
  ...['Prefix', 'Exact', 'Regex'].map((type) => `path ${type}`),
  ...['hosts', 'http', 'https', 'tcp', 'by name', 'by address'],
];

/** The features of one pair: what its policies use, and what was decided. */
export function featuresOf({ facts, request }: Pair, { l4, tls, l7 }: Decision): ReadonlySet<string> {
  const found = new Set<string>([`l4 ${l4.reason}/${l4.action}`, request.scheme]);
  const add = (present: boolean, feature: string) => (present ? found.add(feature) : found);
  const virtual = request.destination.kind === 'name' || request.destination.address.startsWith('240.');
  found.add(virtual ? 'by name' : 'by address');
  add(tls !== null, `tls ${tls}`);
  add(Object.keys(facts.hosts).length > 0, 'hosts');
  if (l7 !== null) {
    found.add(`l7 ${l7.action}`);
    add(l7.reason !== null, `reason ${l7.reason}`);
    for (const { actions } of l7.matched) {
      for (const action of actions) {
        found.add(`action ${action}`);
      }
    }
    add(Object.keys(l7.headers.set).length > 0, 'header set');
    add(l7.headers.remove.length > 0, 'header removed');
    add(l7.credentials.length > 0, 'credential injected');
  }
  for (const { ref, inForce } of facts.policies) {
    if (inForce?.spec !== undefined) {
      found.add(ref.namespace === '' ? 'global' : 'namespaced');
      add(inForce.spec.priority !== 1000, 'priority');
      add(Object.keys(inForce.spec.selector).length > 0, 'selector');
      const fields = ref.kind.endsWith('TrafficPolicy')
        ? trafficFields(inForce.spec as TrafficPolicySpec)
        : profileFields(inForce.spec as SecurityProfileSpec);
      for (const field of fields) {
        found.add(field);
      }
    }
  }
  return found;
}

function trafficFields({ egress }: TrafficPolicySpec): readonly string[] {
  return (egress?.rules ?? []).flatMap(({ to = [], ports = [] }) => [
    ...(to.length === 0 ? ['no peers'] : []),
    ...to.flatMap((peer) => Object.keys(peer).map((kind) => `peer ${kind}`)),
    ...ports.flatMap((port) => Object.keys(port)),
  ]);
}

function profileFields({ rules = [] }: SecurityProfileSpec): readonly string[] {
  return rules
    .flatMap(({ match }) => match)
    .flatMap((clause) => [
      ...Object.keys(clause).map((field) => `clause ${field}`),
      ...(clause.paths ?? []).map(({ type }) => `path ${type}`),
      ...clause.domains.map(
        (domain) => `domain ${domain === '*' ? 'any' : domain.startsWith('*.') ? 'suffix' : 'exact'}`,
      ),
    ]);
}

/** Counts features over many pairs. */
export class Coverage {
  readonly #counts = new Map<string, number>();
  #pairs = 0;

  add(pair: Pair, decision: Decision): void {
    this.#pairs += 1;
    for (const feature of featuresOf(pair, decision)) {
      this.#counts.set(feature, (this.#counts.get(feature) ?? 0) + 1);
    }
  }

  /** Features below this share of the pairs, with their share. */
  below(share: number): readonly string[] {
    return FEATURES.map((feature) => [feature, (this.#counts.get(feature) ?? 0) / this.#pairs] as const)
      .filter(([, part]) => part < share)
      .map(([feature, part]) => `${feature}: ${(100 * part).toFixed(1)} %`);
  }
}
