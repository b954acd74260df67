import type { ConditionValue } from '../api/conditions.ts';
import type { ContainerStatus, PodStatus } from '../api/pod.ts';

/** Waiting reasons that another try does not heal (lifecycle §1.9). */
const DEFINITIVE = new Set([
  'CreateContainerConfigError',
  'CreateContainerError',
  'RunContainerError',
  'InvalidImageName',
  'ErrImageNeverPull',
]);
const MANY_RESTARTS = 5;

/** Condition `Ready` of a Sandbox as its Pod has it, with the time since when; null when the Pod says nothing yet. */
export function readiness(
  status: PodStatus,
  known: boolean,
): { readonly value: ConditionValue; readonly since: string | undefined } | null {
  const ready = listOf(status.conditions).find((condition) => condition.type === 'Ready');
  if (ready?.status === 'True') {
    return { value: { type: 'Ready', status: 'True', reason: 'PodReady' }, since: ready.lastTransitionTime };
  }
  const failure = startFailure(status);
  if (failure !== null) {
    return { value: { type: 'Ready', status: 'False', ...failure }, since: undefined };
  }
  return ready === undefined && !known
    ? null
    : { value: { type: 'Ready', status: 'False', reason: 'PodReady' }, since: ready?.lastTransitionTime };
}

function startFailure(status: PodStatus): { readonly reason: string; readonly message: string } | null {
  for (const container of [...listOf(status.initContainerStatuses), ...listOf(status.containerStatuses)]) {
    const message = containerFailure(container);
    if (message !== null) {
      return { reason: 'StartContainerFailed', message };
    }
  }
  const scheduled = listOf(status.conditions).find((condition) => condition.type === 'PodScheduled');
  return scheduled?.status === 'False' && scheduled.reason === 'Unschedulable'
    ? { reason: 'Unschedulable', message: scheduled.message ?? '' }
    : null;
}

function containerFailure(container: ContainerStatus): string | null {
  const { waiting } = container.state ?? {};
  if (waiting?.reason !== undefined && DEFINITIVE.has(waiting.reason)) {
    return waiting.message ?? waiting.reason;
  }
  const restarts = container.restartCount ?? 0;
  return container.ready !== true && restarts >= MANY_RESTARTS
    ? `container "${container.name}" has restarted ${restarts} times and is not ready`
    : null;
}

function listOf<T>(list: readonly T[] | undefined): readonly T[] {
  return Array.isArray(list) ? list : [];
}
