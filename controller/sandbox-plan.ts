import type { Condition } from '../api/common.ts';
import {
  type ConditionValue,
  findCondition,
  isConditionTrue,
  setCondition,
  withoutConditions,
} from '../api/conditions.ts';
import { notedFields } from '../api/field-classes.ts';
import {
  ANNOTATION_CLEANUP,
  ANNOTATION_CLEANUP_ENABLED,
  ANNOTATION_UPGRADE_TRIGGER,
  FINALIZER_SANDBOX,
} from '../api/labels.ts';
import type { SandboxStatus } from '../api/sandbox.ts';
import type { ObjectEvent } from './events.ts';
import { templateRevision } from './revision.ts';
import type { PodView } from './sandbox-pod.ts';
import { readiness } from './sandbox-readiness.ts';
import type { SandboxView } from './sandbox-view.ts';

/**
 * What is done to the world, in order, after the status is stored. `withdraw` waits until no gateway leads to the Pod
 * any more; the rest says what it does. Every action may be done again.
 */
export type SandboxAction =
  | 'add-finalizer'
  | 'remove-finalizer'
  | 'withdraw'
  | 'freeze'
  | 'thaw'
  | 'create-pod'
  | 'delete-pod';

export interface SandboxPlan {
  readonly status: SandboxStatus;
  readonly actions: readonly SandboxAction[];
  readonly events: readonly ObjectEvent[];
}

type Phase = (view: SandboxView, pod: PodView | null, draft: Draft) => void;

/** A status being worked out. Rows are those of lifecycle §1.5. */
class Draft {
  phase: string;
  message: string;
  conditions: readonly Condition[];
  revision: string;
  podInfo: SandboxStatus['podInfo'];
  readonly actions: SandboxAction[] = [];
  readonly events: ObjectEvent[] = [];
  readonly #view: SandboxView;
  readonly #now: string;

  constructor(view: SandboxView, now: number) {
    const { status } = view;
    this.#view = view;
    this.#now = `${new Date(now).toISOString().slice(0, 19)}Z`;
    this.phase = status.phase ?? '';
    this.message = status.message ?? '';
    this.conditions = status.conditions ?? [];
    this.revision = status.updateRevision ?? '';
    this.podInfo = status.podInfo;
  }

  set(value: ConditionValue, since?: string): void {
    const at = { now: since ?? this.#now, generation: this.#view.generation };
    this.conditions = setCondition(this.conditions, value, at);
  }

  remove(...types: readonly string[]): void {
    this.conditions = withoutConditions(this.conditions, ...types);
  }

  /** Ready becomes False; the reason stays when there is one. */
  notReady(message: string): void {
    const reason = findCondition(this.conditions, 'Ready')?.reason ?? 'PodReady';
    this.set({ type: 'Ready', status: 'False', reason, message });
  }

  enter(phase: string, message = ''): void {
    this.phase = phase;
    this.message = message;
  }

  event(reason: string, message: string, warning = false): void {
    this.events.push({ reason, message, warning });
  }

  /** Address, node and uid of the Pod. */
  copy(pod: PodView): void {
    this.podInfo = {
      ...(pod.nodeName === undefined ? {} : { nodeName: pod.nodeName }),
      ...(typeof pod.status.podIP === 'string' && pod.status.podIP !== '' ? { podIP: pod.status.podIP } : {}),
      podUID: pod.uid,
    };
  }

  status(): SandboxStatus {
    const { podInfo } = this;
    return {
      ...omitOwned(this.#view.status),
      observedGeneration: this.#view.generation,
      ...(this.phase === '' ? {} : { phase: this.phase }),
      ...(this.message === '' ? {} : { message: this.message }),
      conditions: this.conditions,
      ...(podInfo === undefined ? {} : { podInfo }),
      ...(podInfo?.nodeName === undefined ? {} : { nodeName: podInfo.nodeName }),
      ...(podInfo?.podIP === undefined ? {} : { sandboxIp: podInfo.podIP }),
      ...(this.revision === '' ? {} : { updateRevision: this.revision }),
    };
  }
}

/** The members of a status that others write. */
function omitOwned(status: SandboxStatus): SandboxStatus {
  const { observedGeneration, phase, message, conditions, podInfo, nodeName, sandboxIp, updateRevision, ...rest } =
    status;
  return rest;
}

/**
 * The next status of a Sandbox and what is to be done, from the Sandbox, the Pod of its name and the time alone. It is
 * for Sandboxes that have a template and are not being deleted. Planning again before anything else changed gives the
 * same status.
 */
export function planSandbox(view: SandboxView, pod: PodView | null, now: number): SandboxPlan {
  const draft = new Draft(view, now);
  const before = draft.phase;
  judgeSpec(view, draft);
  const keepsRevision = before === 'Paused' && !isConditionTrue(draft.conditions, 'SandboxPaused');
  if (!keepsRevision && before !== 'Succeeded' && before !== 'Failed') {
    draft.revision = templateRevision(view.rawTemplate);
  }
  if (before === '') {
    draft.enter('Pending');
  }
  const own = pod?.own === true ? pod : null;
  if (pod !== null && !pod.own && draft.phase !== 'Succeeded' && draft.phase !== 'Failed') {
    draft.event('PodOwnerMismatch', 'a Pod of this name belongs to another Sandbox; it is left alone', true);
  }
  // A foreign Pod stands in the way of a new one, and is otherwise none of ours.
  const blocked = pod !== null && !pod.own;
  PHASES.get(draft.phase)?.(view, own, draft);
  const actions = blocked ? draft.actions.filter((action) => action !== 'create-pod') : draft.actions;
  if (draft.phase !== before && before !== '') {
    draft.event(
      `Sandbox${draft.phase}`,
      draft.message === '' ? `Sandbox is ${draft.phase}` : draft.message,
      draft.phase === 'Failed',
    );
  }
  return { status: draft.status(), actions, events: draft.events };
}

/** Conditions about the spec itself: whether it can be carried out, and which of its fields have no effect (D19). */
function judgeSpec(view: SandboxView, draft: Draft): void {
  if (view.errors.length === 0) {
    draft.set({ type: 'Accepted', status: 'True', reason: 'Accepted' });
  } else {
    const message = view.errors.map(({ path, reason }) => `${path} ${reason}`).join('; ');
    draft.set({ type: 'Accepted', status: 'False', reason: 'InvalidSpec', message });
    draft.event('SandboxRefused', message, true);
  }
  const noted = notedFields('Sandbox', view.object.spec).map(({ path }) => path);
  if (noted.length === 0) {
    draft.remove('FieldsWithoutEffect');
  } else {
    draft.set({ type: 'FieldsWithoutEffect', status: 'True', reason: 'NotCarriedOut', message: noted.join(', ') });
  }
}

/** Asks for a Pod, unless the spec is refused: then the Sandbox waits and says why. */
function create(view: SandboxView, draft: Draft): void {
  if (view.errors.length > 0 || view.template === null) {
    const message = findCondition(draft.conditions, 'Accepted')?.message ?? '';
    draft.set({ type: 'Ready', status: 'False', reason: 'PodCreateFailed', message });
    return;
  }
  draft.actions.push('create-pod');
}

/** Rows 4 and 10: a Pod that has ended ends its Sandbox. */
function ended(pod: PodView, draft: Draft): boolean {
  if (pod.deleting || (pod.phase !== 'Succeeded' && pod.phase !== 'Failed')) {
    return false;
  }
  draft.enter(pod.phase, `Pod status phase is ${pod.phase}`);
  draft.notReady(draft.message);
  return true;
}

function copyReadiness(pod: PodView, draft: Draft): void {
  const ready = readiness(pod.status, findCondition(draft.conditions, 'Ready') !== undefined);
  if (ready !== null) {
    draft.set(ready.value, ready.since);
  }
}

/** Rows 2 to 6. */
const pending: Phase = (view, pod, draft) => {
  if (pod === null) {
    create(view, draft);
  } else if (pod.deleting || ended(pod, draft)) {
    return;
  } else if (pod.phase === 'Running') {
    draft.enter('Running');
    draft.copy(pod);
    copyReadiness(pod, draft);
  } else {
    copyReadiness(pod, draft);
  }
};

/** Rows 9, 10, 12 and 13; 7, 8 and 11 are refused. */
const running: Phase = (view, pod, draft) => {
  if (pod === null || pod.deleting) {
    draft.enter('Failed', 'Pod Not Found');
    draft.notReady('Pod Not Found');
    draft.podInfo = undefined;
    return;
  }
  if (ended(pod, draft)) {
    return;
  }
  rejectRecycle(view, draft, 'is not carried out yet');
  if (view.paused && view.pauseKind !== 'refused') {
    draft.remove('SandboxResumed');
    draft.enter('Paused');
    draft.set({ type: 'SandboxPaused', status: 'False', reason: 'Pending' });
    draft.notReady('');
    draft.actions.push('add-finalizer');
    pause(view, pod, draft);
    return;
  }
  if (pod.freezeAsked) {
    draft.actions.push('thaw');
  }
  draft.copy(pod);
  refuseUpdate(pod, draft);
  const initialized = findCondition(draft.conditions, 'RuntimeInitialized');
  if (initialized !== undefined && initialized.status !== 'True') {
    // After a resume the Sandbox is ready only when its runtime is; there is none to be initialised.
    const ready = readiness(pod.status, true);
    if (ready?.value.status !== 'True') {
      draft.notReady('');
      return;
    }
    draft.set({ type: 'RuntimeInitialized', status: 'True', reason: 'Succeeded' });
  }
  copyReadiness(pod, draft);
};

/** A changed template reaches the next Pod only; a running one is not updated (§1.10 is not carried out). */
function refuseUpdate(pod: PodView, draft: Draft): void {
  if (pod.revision === undefined || pod.revision === draft.revision) {
    draft.remove('InplaceUpdate');
    return;
  }
  const message = 'spec.template has changed; a running Pod is not updated, the next one will be made from it';
  draft.set({ type: 'InplaceUpdate', status: 'False', reason: 'Failed', message });
  draft.event('InplaceUpdateForbidden', message, true);
}

function rejectRecycle(view: SandboxView, draft: Draft, why: string): void {
  if (view.annotations[ANNOTATION_CLEANUP] !== 'true' || view.annotations[ANNOTATION_CLEANUP_ENABLED] !== 'true') {
    draft.remove('Recycling');
    return;
  }
  const message = `metadata.annotations["${ANNOTATION_CLEANUP}"] ${why}`;
  draft.set({ type: 'Recycling', status: 'False', reason: 'RecyclingRejected', message });
  draft.event('RecyclingRejected', message, true);
}

/** Rows 14 to 17. Pausing that has begun is finished, also when it is no longer asked for. */
const paused: Phase = (view, pod, draft) => {
  rejectRecycle(view, draft, 'has no effect: recycle is not supported in Paused state');
  if (!isConditionTrue(draft.conditions, 'SandboxPaused')) {
    if (!view.finalizers.includes(FINALIZER_SANDBOX)) {
      draft.actions.push('add-finalizer');
    }
    pause(view, pod, draft);
    return;
  }
  if (view.paused) {
    keepPaused(view, pod, draft);
    return;
  }
  draft.enter('Resuming');
  draft.set({ type: 'SandboxResumed', status: 'False', reason: 'CreatePod' });
  resuming(view, pod, draft);
};

/** Row 14: freezes or removes the Pod, and sees when that is done. */
function pause(view: SandboxView, pod: PodView | null, draft: Draft): void {
  if (pod === null) {
    const frozen = view.pauseKind === 'freeze';
    const message = frozen ? 'the Pod is gone; a new one is started on resume' : '';
    draft.set({ type: 'SandboxPaused', status: 'True', reason: 'StopPauseSucceed', message });
    draft.podInfo = undefined;
    if (frozen) {
      draft.event('PodLost', message, true);
    }
  } else if (pod.deleting || view.pauseKind === 'refused') {
    return;
  } else if (view.pauseKind === 'freeze' && (pod.phase === 'Running' || pod.freezeAsked)) {
    if (!pod.freezeAsked) {
      draft.actions.push('withdraw', 'freeze');
    } else if (pod.frozen) {
      draft.set({ type: 'SandboxPaused', status: 'True', reason: 'FreezePauseSucceed' });
    }
  } else {
    // Stop, or a Pod that has ended: nothing of it is left to freeze.
    draft.actions.push('withdraw', 'delete-pod');
  }
}

/** A paused Sandbox stays as it is; when its frozen Pod was removed, it says so and gives its address up. */
function keepPaused(view: SandboxView, pod: PodView | null, draft: Draft): void {
  if (view.annotations[ANNOTATION_UPGRADE_TRIGGER] === 'true') {
    draft.event('UpgradeRefused', `metadata.annotations["${ANNOTATION_UPGRADE_TRIGGER}"] is not carried out yet`, true);
  }
  const condition = findCondition(draft.conditions, 'SandboxPaused')!;
  if (pod === null && condition.reason === 'FreezePauseSucceed') {
    pause(view, null, draft);
  } else if (pod !== null && !pod.deleting && condition.reason === 'StopPauseSucceed') {
    draft.actions.push('delete-pod');
  }
}

/** Rows 18 to 20. A pause that is asked for meanwhile comes when Running is reached. */
const resuming: Phase = (view, pod, draft) => {
  if (pod === null) {
    draft.podInfo = undefined;
    create(view, draft);
    return;
  }
  if (pod.deleting) {
    draft.message = 'the pods created in the previous stage are still in the terminating state';
    return;
  }
  if (ended(pod, draft)) {
    return;
  }
  draft.message = '';
  if (pod.freezeAsked) {
    draft.actions.push('thaw');
    return;
  }
  const wasFrozen =
    findCondition(draft.conditions, 'SandboxPaused')?.reason === 'FreezePauseSucceed' &&
    draft.podInfo?.podUID === pod.uid;
  if (pod.phase !== 'Running' || pod.frozen || (wasFrozen && !pod.resumed)) {
    copyStartFailure(pod, draft);
    return;
  }
  draft.enter('Running');
  draft.set({ type: 'SandboxResumed', status: 'True', reason: 'ResumePod' });
  draft.set({ type: 'RuntimeInitialized', status: 'False', reason: 'Pending' });
  draft.remove('SandboxPaused');
  draft.copy(pod);
  draft.actions.push('remove-finalizer');
};

/** Failures of a start are seen while resuming too; readiness is not. */
function copyStartFailure(pod: PodView, draft: Draft): void {
  const ready = readiness(pod.status, true);
  if (ready !== null && ready.value.status === 'False') {
    draft.set(ready.value, ready.since);
  }
}

const PHASES: ReadonlyMap<string, Phase> = new Map([
  ['Pending', pending],
  ['Running', running],
  ['Paused', paused],
  ['Resuming', resuming],
]);
