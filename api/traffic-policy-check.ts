import { parseRange } from '../base/addresses.ts';
import type { FieldError } from '../base/errors.ts';
import type { Findings } from './findings.ts';
import { fqdnProblem } from './http-rules.ts';
import { selectorErrors } from './selector.ts';
import type { TrafficPeer, TrafficPolicySpec, TrafficRule } from './traffic-policy.ts';

/** The rules of TrafficPolicy that its schema does not hold (egress-policy §1.4, §2, D2). `spec` fits the schema. */
export function checkTrafficPolicy(spec: TrafficPolicySpec): Findings {
  const invalid = selectorErrors(spec.selector, 'spec.selector');
  const omitted: FieldError[] = [];
  for (const direction of ['ingress', 'egress'] as const) {
    for (const [index, rule] of (spec[direction]?.rules ?? []).entries()) {
      const found = checkRule(rule, direction === 'egress' ? 'to' : 'from', `spec.${direction}.rules[${index}]`);
      invalid.push(...found.invalid);
      omitted.push(...found.omitted);
    }
  }
  return { invalid, omitted };
}

function checkRule(rule: TrafficRule, needs: 'to' | 'from', path: string): Findings {
  const invalid: FieldError[] = [];
  const omitted: FieldError[] = [];
  if ((rule[needs] ?? []).length === 0) {
    omitted.push({ path: `${path}.${needs}`, reason: 'is required: a rule without its peers has no effect' });
  }
  for (const list of ['from', 'to'] as const) {
    for (const [index, peer] of (rule[list] ?? []).entries()) {
      const found = checkPeer(peer, `${path}.${list}[${index}]`);
      invalid.push(...found.invalid);
      omitted.push(...found.omitted);
    }
  }
  for (const [index, port] of (rule.ports ?? []).entries()) {
    if (port.protocol === 'ICMP' && port.port !== undefined) {
      invalid.push({ path: `${path}.ports[${index}].port`, reason: 'must be absent: ICMP has no ports' });
    }
  }
  return { invalid, omitted };
}

function checkPeer(peer: TrafficPeer, path: string): Findings {
  const invalid: FieldError[] = [];
  const omitted: FieldError[] = [];
  if (peer.cidr !== undefined && parseRange(peer.cidr) === null) {
    const reason = `${JSON.stringify(peer.cidr)} is no address range such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32`;
    omitted.push({ path: `${path}.cidr`, reason });
  }
  const problem = peer.fqdn === undefined ? null : fqdnProblem(peer.fqdn);
  if (problem !== null) {
    invalid.push({ path: `${path}.fqdn`, reason: problem });
  }
  return { invalid, omitted };
}
