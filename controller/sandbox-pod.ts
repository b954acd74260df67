import {
  ANNOTATION_FREEZE,
  CONDITION_CONTAINERS_PAUSED,
  CONDITION_CONTAINERS_RESUMED,
  FINALIZER_WITHDRAWAL,
  LABEL_CREATED_BY,
  LABEL_POD_TEMPLATE_HASH,
  ownerLabels,
} from '../api/labels.ts';
import type { KubeObject, OwnerReference } from '../api/object.ts';
import type { PodStatus, PodTemplate } from '../api/pod.ts';
import { isMap } from '../api/schema-check.ts';
import type { SandboxView } from './sandbox-view.ts';

/** The Pod of a Sandbox: same name, owned by it, held until its address is withdrawn (lifecycle §1.8, D12). */
export function podOf(view: SandboxView, template: PodTemplate, revision: string): KubeObject {
  const { namespace, name, kind } = view.ref;
  const owner: OwnerReference = {
    apiVersion: view.object.apiVersion,
    kind,
    name,
    uid: view.uid,
    controller: true,
    blockOwnerDeletion: true,
  };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      namespace,
      labels: {
        ...template.metadata?.labels,
        ...ownerLabels(name, view.uid),
        [LABEL_POD_TEMPLATE_HASH]: revision,
      },
      annotations: { ...template.metadata?.annotations, [LABEL_CREATED_BY]: 'sandbox' },
      ownerReferences: [owner],
      finalizers: [FINALIZER_WITHDRAWAL],
    },
    spec: template.spec,
  };
}

/** What the state machine looks at of the Pod that has a Sandbox's name. */
export interface PodView {
  /** Whether it belongs to this Sandbox, and not to one that had the name before. */
  readonly own: boolean;
  readonly uid: string;
  readonly deleting: boolean;
  readonly phase: string;
  /** Whether the node agent was asked to freeze it. */
  readonly freezeAsked: boolean;
  /** Whether its processes are frozen, as the node agent says. */
  readonly frozen: boolean;
  /** Whether the node agent says that they run again after a freeze. */
  readonly resumed: boolean;
  readonly revision: string | undefined;
  /** The node that it is on; undefined while it is on none. */
  readonly nodeName: string | undefined;
  readonly status: PodStatus;
}

/** Reads a stored Pod; null stays null. */
export function viewPod(pod: KubeObject | null, sandboxUid: string): PodView | null {
  if (pod === null) {
    return null;
  }
  const status = isMap(pod.status) ? (pod.status as PodStatus) : {};
  const owners = Array.isArray(pod.metadata.ownerReferences) ? pod.metadata.ownerReferences : [];
  return {
    own: owners.some((owner) => owner.kind === 'Sandbox' && owner.uid === sandboxUid),
    uid: pod.metadata.uid ?? '',
    deleting: pod.metadata.deletionTimestamp !== undefined,
    phase: status.phase ?? '',
    freezeAsked: pod.metadata.annotations?.[ANNOTATION_FREEZE] === 'true',
    frozen: conditionTrue(status, CONDITION_CONTAINERS_PAUSED),
    resumed: conditionTrue(status, CONDITION_CONTAINERS_RESUMED),
    nodeName: nodeName(pod),
    revision: pod.metadata.labels?.[LABEL_POD_TEMPLATE_HASH],
    status,
  };
}

function conditionTrue(status: PodStatus, type: string): boolean {
  const list = Array.isArray(status.conditions) ? status.conditions : [];
  return list.some((condition) => condition.type === type && condition.status === 'True');
}

function nodeName(pod: KubeObject): string | undefined {
  const name = isMap(pod.spec) ? pod.spec['nodeName'] : undefined;
  return typeof name === 'string' && name !== '' ? name : undefined;
}
