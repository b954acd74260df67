import type { KubeObject, ObjectRef } from '../api/object.ts';

/** Label that marks a ControllerRevision as the kept form of a policy. */
export const LAST_GOOD_LABEL = 'sandgate.dev/last-good-of';

/** The last form of a policy that every Envoy took, kept across restarts (D2). */
export interface LastGood {
  /** Uid of the policy; a policy made anew under the same name starts without a kept form. */
  readonly uid: string;
  readonly generation: number;
  readonly spec: unknown;
}

/**
 * A policy's last good form as a ControllerRevision, the kind that Kubernetes keeps for exactly this. It is named by
 * the policy's uid and owned by it, so that it goes when the policy goes.
 */
export function lastGoodRevision(policy: KubeObject, rootNamespace: string): KubeObject {
  const { uid = '', generation = 0, name } = policy.metadata;
  return {
    apiVersion: 'apps/v1',
    kind: 'ControllerRevision',
    metadata: {
      name: revisionName(policy),
      namespace: policy.metadata.namespace ?? rootNamespace,
      labels: { [LAST_GOOD_LABEL]: policy.kind.toLowerCase(), 'app.kubernetes.io/managed-by': 'sandgate' },
      ownerReferences: [{ apiVersion: policy.apiVersion, kind: policy.kind, name, uid, controller: true }],
    },
    revision: generation,
    data: { uid, spec: policy.spec ?? null },
  };
}

/** Name of the ControllerRevision that keeps the policy's last good form. */
export function revisionName(policy: KubeObject): string {
  return `${policy.kind.toLowerCase()}-${policy.metadata.uid ?? ''}`;
}

/** Reads a kept form back; null for a ControllerRevision that is not ours. */
export function readLastGood(revision: KubeObject): LastGood | null {
  const data = revision['data'];
  if (revision.metadata.labels?.[LAST_GOOD_LABEL] === undefined || data === null || typeof data !== 'object') {
    return null;
  }
  const { uid, spec } = data as { uid?: unknown; spec?: unknown };
  const generation = revision['revision'];
  return typeof uid === 'string' && typeof generation === 'number' ? { uid, generation, spec } : null;
}

/** What the kept form stands for. */
export function lastGoodOwner(revision: KubeObject): ObjectRef | null {
  const owner = revision.metadata.ownerReferences?.[0];
  return owner === undefined
    ? null
    : { kind: owner.kind, namespace: revision.metadata.namespace ?? '', name: owner.name };
}
