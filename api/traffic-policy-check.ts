import { parseRange } from '../base/addresses.ts';
import type { FieldError } from '../base/errors.ts';
import { type Findings, NO_FINDINGS } from './findings.ts';
import { fqdnProblem } from './http-rules.ts';
import { isDnsLabel, isDnsSubdomain, labelErrors } from './names.ts';
import { selectorErrors } from './selector.ts';
import type { TrafficPeer, TrafficPolicySpec, TrafficRule } from './traffic-policy.ts';

/** The rules of TrafficPolicy that its schema does not hold (egress-policy §1.4, §2, D2). `spec` fits the schema. */
export function checkTrafficPolicy(spec: TrafficPolicySpec): Findings {
  const invalid = selectorErrors(spec.selector, 'spec.selector');
  const omitted: FieldError[] = [];
  for (const direction of ['ingress', 'egress'] as const) {
    for (const [index, rule] of (spec[direction]?.rules ?? []).entries()) {
      const path = `spec.${direction}.rules[${index}]`;
      invalid.push(...ruleErrors(rule, path));
      // Left out, an allow is stricter than it reads, but a reject weaker: nobody knows what it was to shut.
      const level = rule.action === 'reject' ? invalid : omitted;
      level.push(...unreadPeers(rule, direction === 'egress' ? 'to' : 'from', path));
    }
  }
  return { ...NO_FINDINGS, invalid, omitted };
}

function ruleErrors(rule: TrafficRule, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const list of ['from', 'to'] as const) {
    for (const [index, { fqdn }] of (rule[list] ?? []).entries()) {
      const problem = fqdn === undefined ? null : fqdnProblem(fqdn);
      if (problem !== null) {
        errors.push({ path: `${path}.${list}[${index}].fqdn`, reason: problem });
      }
    }
  }
  for (const [index, port] of (rule.ports ?? []).entries()) {
    if (port.protocol === 'ICMP' && port.port !== undefined) {
      errors.push({ path: `${path}.ports[${index}].port`, reason: 'must be absent: ICMP has no ports' });
    }
  }
  return errors;
}

/** Peers that can stand for no address, whatever there is in the cluster, and a rule without any. */
function unreadPeers(rule: TrafficRule, needs: 'to' | 'from', path: string): FieldError[] {
  const missing = (rule[needs] ?? []).length === 0;
  return [
    ...(missing ? [{ path: `${path}.${needs}`, reason: 'is required: a rule without its peers has no effect' }] : []),
    ...(['from', 'to'] as const).flatMap((list) =>
      (rule[list] ?? []).flatMap((peer, index) => peerErrors(peer, `${path}.${list}[${index}]`)),
    ),
  ];
}

function peerErrors({ cidr, service, workload }: TrafficPeer, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (cidr !== undefined && parseRange(cidr) === null) {
    const reason = `${JSON.stringify(cidr)} is no address range such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32`;
    errors.push({ path: `${path}.cidr`, reason });
  }
  if (service !== undefined && service.name !== '*' && !isDnsSubdomain(service.name)) {
    const reason = `${JSON.stringify(service.name)} can be the name of no Service; * means every one`;
    errors.push({ path: `${path}.service.name`, reason });
  }
  for (const [kind, namespace] of [
    ['service', service?.namespace],
    ['workload', workload?.namespace],
  ] as const) {
    if (namespace !== undefined && !isDnsLabel(namespace)) {
      const reason = `${JSON.stringify(namespace)} can be the name of no namespace`;
      errors.push({ path: `${path}.${kind}.namespace`, reason });
    }
  }
  return [...errors, ...(workload === undefined ? [] : labelErrors(workload.selector, `${path}.workload.selector`))];
}
