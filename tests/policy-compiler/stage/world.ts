/** Facts in few words, for tests. */
import type { HostEntry, PolicyFacts, PolicyRecord, SandboxFacts } from '../../../api/facts.ts';
import type { CompilerSettings } from '../../../policy-compiler/compilation.ts';

type Spec = NonNullable<PolicyRecord['inForce']>['spec'];

/** A policy in force; `name` is `namespace/name` or, for a Global kind, `name`. */
export function policy(
  kind: 'TrafficPolicy' | 'GlobalTrafficPolicy' | 'SecurityProfile' | 'GlobalSecurityProfile',
  name: string,
  spec: unknown,
  created = '2026-01-01T00:00:00Z',
): PolicyRecord {
  const [last = '', namespace = ''] = name.split('/').reverse();
  const ref = { kind, namespace, name: last };
  const inForce = {
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind,
    metadata: { name: last, ...(namespace === '' ? {} : { namespace }) },
    spec: { priority: 1000, selector: {}, ...(spec as object) } as Spec,
  };
  return { ref, created, generation: 1, inForce: inForce as PolicyRecord['inForce'], errors: [] };
}

export function sandbox(
  uid: string,
  labels: Readonly<Record<string, string>> = {},
  namespace = 'team-a',
): SandboxFacts {
  return { uid, namespace, name: uid, labels, addresses: [] };
}

/** Facts with these parts; every name gets a virtual address in the order of `names`. */
export function world(
  parts: Partial<PolicyFacts> & {
    readonly names?: readonly string[];
    readonly hosts?: Readonly<Record<string, HostEntry>>;
  },
): PolicyFacts {
  const { names = [], ...facts } = parts;
  const all = [...new Set([...names, ...Object.keys(parts.hosts ?? {})])];
  return {
    sandboxes: [sandbox('s1')],
    policies: [],
    services: [],
    pods: [],
    invalidSpecs: {},
    secretKeys: {},
    hosts: {},
    virtualAddresses: Object.fromEntries(all.map((name, index) => [name, `240.0.${1 + (index >> 8)}.${index & 255}`])),
    rootNamespace: 'sandbox-system',
    ...facts,
  };
}

export const SETTINGS: CompilerSettings = {
  trustDomain: 'sandgate.local',
  tokenIssuer: 'sandgate',
  tokenAudience: 'egress',
  tokenJwks: '{"keys":[]}',
  egressSocket: '/run/egress.sock',
  gatewayCaFile: '/pki/ca.crt',
  resolver: { address: '127.0.0.1', port: 53, relay: '/run/resolver.sock' },
  originCaFile: '/pki/roots.pem',
};
