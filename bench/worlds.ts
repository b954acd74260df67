/** The objects that are measured with: sandboxes that run, and the policies that select them. */
import { createHash } from 'node:crypto';
import type { KubeObject } from '../api/object.ts';
import type { ObjectStore } from '../store/object-store.ts';

export const NAMESPACE = 'bench';
const VERSION = 'agents.kruise.io/v1alpha1';

/** A world to load into a store, in the order of creation. */
export interface BenchWorld {
  readonly policies: readonly KubeObject[];
  readonly sandboxes: readonly KubeObject[];
}

/** Rules of one profile of the egress world. */
const RULES_A_PROFILE = 10;

/**
 * 100 profiles of 10 rules for a host each, and sandboxes in 10 groups: 10 profiles select all of them, the others a
 * group each. So every sandbox's table holds 19 of the hosts and more than 1,000 routes, and there are 10 tables.
 */
export function egressWorld(sandboxes: number): BenchWorld {
  const profiles = Array.from({ length: 100 }, (_, index) =>
    policy('SecurityProfile', `profile-${index}`, index < 10 ? { app: 'agent' } : { group: `g${index % 10}` }, {
      rules: hostRules(apiHost(index), RULES_A_PROFILE),
    }),
  );
  return {
    policies: [
      policy('TrafficPolicy', 'reach', { app: 'agent' }, { egress: { rules: [allow({ cidr: '0.0.0.0/0' })] } }),
      ...profiles,
      secret('api-key'),
    ],
    sandboxes: Array.from({ length: sandboxes }, (_, index) =>
      sandbox(index, { app: 'agent', group: `g${index % 10}` }),
    ),
  };
}

/** Sandboxes with an id and a token each, and no policies: what the ingress is measured with. */
export function ingressWorld(sandboxes: number): BenchWorld {
  return { policies: [], sandboxes: Array.from({ length: sandboxes }, (_, index) => sandbox(index, { app: 'agent' })) };
}

/**
 * 1,000 policies and as many policy sets as groups: each of 300 groups has a TrafficPolicy and two SecurityProfiles of
 * its own, and each of 10 tiers of groups ten profiles.
 */
export function fleetWorld(sandboxes: number): BenchWorld {
  const groups = Array.from({ length: 300 }, (_, group) => group);
  const own = groups.flatMap((group) => {
    const selector = { group: `g${group}` };
    const host = `own-${group}.bench.test`;
    const shared = Array.from({ length: 10 }, (_, index) => ({ fqdn: apiHost(index * 10 + (group % 10)) }));
    const rules = [allow({ fqdn: host }), allow({ fqdn: `cdn-${group}.bench.test` }), allow(...shared)];
    return [
      policy('TrafficPolicy', `reach-${group}`, selector, { egress: { rules } }),
      policy('SecurityProfile', `limits-${group}`, selector, { rules: hostRules(host, 3) }),
      policy('SecurityProfile', `marks-${group}`, selector, { rules: [mark(host, `group-${group}`)] }),
    ];
  });
  const tiers = Array.from({ length: 100 }, (_, index) =>
    policy('SecurityProfile', `tier-${index}`, { tier: `t${index % 10}` }, { rules: hostRules(apiHost(index), 4) }),
  );
  return {
    policies: [...own, ...tiers, secret('api-key')],
    sandboxes: Array.from({ length: sandboxes }, (_, index) =>
      sandbox(index, { app: 'agent', group: `g${index % 300}`, tier: `t${(index % 300) % 10}` }),
    ),
  };
}

/** Puts a world into a store, as controllers and people would have. */
export async function load(store: ObjectStore, world: BenchWorld): Promise<void> {
  await Promise.all(world.policies.map((object) => store.create(object)));
  const stored = await Promise.all(
    world.sandboxes.map(async ({ status, ...object }) => {
      const made = await store.create(object as KubeObject);
      const { namespace = '', name } = made.metadata;
      return store.patchStatus('Sandbox', { namespace, name }, { type: 'merge', body: { status } });
    }),
  );
  await Promise.all(stored.map((object, index) => store.create(podOf(object, index))));
}

/** Host of the n-th profile. */
export function apiHost(index: number): string {
  return `api-${index}.bench.test`;
}

/** Id of the n-th sandbox, as it stands in a host name. */
export function sandboxId(index: number): string {
  return `s${index.toString(36).padStart(7, '0')}`;
}

/** Access token of the n-th sandbox. */
export function accessToken(index: number): string {
  return createHash('sha256').update(`token ${index}`).digest('hex').slice(0, 40);
}

/** Address of the n-th sandbox's Pod, in 10.244.0.0/16. */
export function podAddress(index: number): string {
  const offset = index + 2;
  return `10.244.${offset >> 8}.${offset & 255}`;
}

/** A header that some rule sets, so that a changed request is seen at the upstream. */
export const MARK_HEADER = 'x-tenant';

function hostRules(host: string, count: number): readonly object[] {
  const paths = (type: string, value: string) => ({ domains: [host], paths: [{ type, value }] });
  const rules: readonly object[] = [
    { name: 'no-admin', match: [paths('Prefix', '/admin')], actions: { block: { statusCode: 403, body: 'no admin' } } },
    mark(host, host),
    { name: 'no-delete', match: [{ domains: [host], methods: ['DELETE'] }], actions: { block: {} } },
    {
      name: 'key',
      match: [{ ...paths('Prefix', '/secure'), schemes: ['http', 'https'] }],
      actions: {
        tokenTransformation: {
          credentialRef: { secret: { name: 'api-key' } },
          apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
        },
      },
    },
    { name: 'no-keys', match: [paths('Exact', '/v1/keys')], actions: { block: { statusCode: 403 } } },
    { name: 'no-internal', match: [paths('Prefix', '/internal')], actions: { block: {} } },
    { name: 'users', match: [paths('Regex', '/v[0-9]+/users/[0-9]+')], actions: { block: { statusCode: 404 } } },
    {
      name: 'preview',
      match: [{ domains: [host], headers: [{ name: 'x-preview', type: 'Exact', value: 'on' }] }],
      actions: { block: { statusCode: 409 } },
    },
    {
      name: 'no-put',
      match: [{ ...paths('Prefix', '/v1/billing'), methods: ['PUT', 'PATCH'] }],
      actions: { block: {} },
    },
    { name: 'no-export', match: [paths('Prefix', '/v1/export')], actions: { block: {} } },
  ];
  return rules.slice(0, count);
}

function mark(host: string, value: string): object {
  return {
    name: 'mark',
    match: [{ domains: [host] }],
    actions: { headerManipulation: { set: [{ name: MARK_HEADER, value }], remove: ['x-debug'] } },
  };
}

function allow(...peers: readonly object[]): object {
  return { action: 'allow', to: peers };
}

function policy(kind: string, name: string, matchLabels: Readonly<Record<string, string>>, spec: object): KubeObject {
  return {
    apiVersion: VERSION,
    kind,
    metadata: { namespace: NAMESPACE, name },
    spec: { selector: { matchLabels }, ...spec },
  };
}

function secret(name: string): KubeObject {
  const apiKey = Buffer.from('bench-credential').toString('base64');
  return { apiVersion: 'v1', kind: 'Secret', metadata: { namespace: NAMESPACE, name }, data: { apiKey } };
}

/** A Sandbox as the controllers would have it while its Pod runs. */
function sandbox(index: number, labels: Readonly<Record<string, string>>): KubeObject {
  const now = '2026-01-01T00:00:00Z';
  return {
    apiVersion: VERSION,
    kind: 'Sandbox',
    metadata: {
      namespace: NAMESPACE,
      name: `sandbox-${index}`,
      labels: { 'agents.kruise.io/sandbox-id': sandboxId(index), 'app.kubernetes.io/managed-by': 'sandgate' },
      annotations: { 'agents.kruise.io/runtime-access-token': accessToken(index) },
    },
    spec: {
      template: {
        metadata: { labels },
        spec: { containers: [{ name: 'main', image: 'bench', ports: [{ containerPort: 3000 }] }] },
      },
    },
    status: {
      phase: 'Running',
      podInfo: { podIP: podAddress(index), nodeName: 'local' },
      conditions: [{ type: 'Ready', status: 'True', reason: 'PodReady', message: '', lastTransitionTime: now }],
    },
  };
}

/** The Pod of a stored Sandbox. */
function podOf(stored: KubeObject, index: number): KubeObject {
  const { namespace = '', name, uid = '' } = stored.metadata;
  const template = (stored.spec as { template: { metadata: { labels: Record<string, string> }; spec: object } })
    .template;
  const address = podAddress(index);
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      namespace,
      name,
      labels: template.metadata.labels,
      ownerReferences: [{ apiVersion: VERSION, kind: 'Sandbox', name, uid, controller: true }],
    },
    spec: template.spec,
    status: { phase: 'Running', podIP: address, podIPs: [{ ip: address }] },
  };
}
