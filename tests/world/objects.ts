import type { KubeObject } from '../../api/object.ts';

const V1ALPHA1 = 'agents.kruise.io/v1alpha1';

/** A SecurityProfile that blocks a path; an array of rules that are broken makes it invalid. */
export function profile(
  name: string,
  path: string,
  more: { readonly uid?: string; readonly generation?: number; readonly status?: unknown } = {},
): KubeObject {
  const { uid = `uid-${name}`, generation = 1, status } = more;
  const match = [{ domains: ['api.test'], paths: [{ type: path === BROKEN ? 'Regex' : 'Prefix', value: path }] }];
  return {
    apiVersion: V1ALPHA1,
    kind: 'SecurityProfile',
    metadata: { name, namespace: 'default', uid, generation, creationTimestamp: '2026-01-01T00:00:00Z' },
    spec: { selector: {}, rules: [{ name: 'stop', match, actions: { block: {} } }] },
    ...(status === undefined ? {} : { status }),
  };
}

/** No regular expression. */
export const BROKEN = '(';

/** The status of an object that an Envoy refused in a generation. */
export function refusedStatus(generation: number): unknown {
  const condition = { type: 'Programmed', status: 'False', reason: 'EnvoyRejected', message: 'too large' };
  return { conditions: [{ ...condition, observedGeneration: generation }] };
}

export function sandbox(name: string, labels: Readonly<Record<string, string>> = {}): KubeObject {
  return {
    apiVersion: V1ALPHA1,
    kind: 'Sandbox',
    metadata: { name, namespace: 'default', uid: `uid-${name}`, labels: { own: 'metadata' } },
    spec: { template: { metadata: { labels }, spec: { containers: [{ name: 'main', image: 'x' }] } } },
  };
}

export function pod(name: string, ips: readonly string[], ownerUid = `uid-${name}`): KubeObject {
  const owner = { apiVersion: V1ALPHA1, kind: 'Sandbox', name, uid: ownerUid };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'default', uid: `pod-${name}`, labels: { app: name }, ownerReferences: [owner] },
    status: { podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) },
  };
}

export function service(name: string, spec: object): KubeObject {
  return { apiVersion: 'v1', kind: 'Service', metadata: { name, namespace: 'default' }, spec };
}

export function slice(name: string, serviceName: string, addresses: readonly string[]): KubeObject {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace: 'default', labels: { 'kubernetes.io/service-name': serviceName } },
    endpoints: [{ addresses, conditions: { ready: false } }],
  };
}
