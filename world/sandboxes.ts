import type { PolicyFacts, SandboxFacts } from '../api/facts.ts';
import { ownerLabels } from '../api/labels.ts';
import type { KubeObject } from '../api/object.ts';
import { canonicalAddress } from '../base/addresses.ts';

/**
 * The labels by which policies select a sandbox: those its Pod carries, which are the template's and the ones that the
 * controller adds (crds §12.1). Never from the wire, and not from the Sandbox's own metadata.
 */
export function subjectLabels(sandbox: KubeObject): Readonly<Record<string, string>> {
  const labels = member(member(member(sandbox.spec, 'template'), 'metadata'), 'labels');
  const own = labels !== null && typeof labels === 'object' ? Object.entries(labels) : [];
  return {
    ...Object.fromEntries(own.filter((entry): entry is [string, string] => typeof entry[1] === 'string')),
    ...ownerLabels(sandbox.metadata.name, sandbox.metadata.uid ?? ''),
  };
}

/** A Sandbox as a subject of policy; `pod` is the Pod of the same name, or undefined. */
export function sandboxFacts(sandbox: KubeObject, pod: KubeObject | undefined): SandboxFacts {
  const owned = pod !== undefined && ownerUids(pod).includes(sandbox.metadata.uid ?? '');
  return {
    uid: sandbox.metadata.uid ?? '',
    namespace: sandbox.metadata.namespace ?? '',
    name: sandbox.metadata.name,
    labels: subjectLabels(sandbox),
    addresses: owned ? podAddresses(pod) : [],
  };
}

/** A Pod as a destination of policy. */
export function podFacts(pod: KubeObject): PolicyFacts['pods'][number] {
  return {
    namespace: pod.metadata.namespace ?? '',
    labels: pod.metadata.labels ?? {},
    addresses: podAddresses(pod),
  };
}

/** Uid of the Pod that belongs to each Sandbox, by Sandbox uid. */
export function podUidsOf(pods: readonly KubeObject[]): ReadonlyMap<string, string> {
  const pairs = pods.flatMap((pod) => {
    const { uid = '' } = pod.metadata;
    const [owner] = uid === '' ? [] : ownerUids(pod, 'Sandbox');
    return owner === undefined ? [] : [[owner, uid] as const];
  });
  return new Map(pairs);
}

/** Uids of the owners that are written down in an object, of one kind or of any. */
function ownerUids(object: KubeObject, kind?: string): readonly string[] {
  const owners: unknown = object.metadata.ownerReferences;
  return (Array.isArray(owners) ? owners : [])
    .filter((owner: unknown) => kind === undefined || member(owner, 'kind') === kind)
    .map((owner: unknown) => member(owner, 'uid'))
    .filter((uid) => typeof uid === 'string');
}

/** Every address of a Pod, canonical, in the order of its status. */
export function podAddresses(pod: KubeObject): readonly string[] {
  const list = member(pod.status, 'podIPs');
  const texts = [
    member(pod.status, 'podIP'),
    ...(Array.isArray(list) ? list.map((entry: unknown) => member(entry, 'ip')) : []),
  ];
  const found = texts.map((text) => (typeof text === 'string' ? canonicalAddress(text) : null));
  return [...new Set(found.filter((address) => address !== null))];
}

/** A member of something that may be no object at all. */
export function member(value: unknown, key: string): unknown {
  return value !== null && typeof value === 'object' && Object.hasOwn(value, key)
    ? (value as Record<string, unknown>)[key]
    : undefined;
}
