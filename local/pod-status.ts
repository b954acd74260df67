import { setTimeout as sleep } from 'node:timers/promises';
import type { Pod, PodCondition } from '../api/pod.ts';
import { errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { type ContainerRunner, timeText } from './container-runner.ts';

/** What a worker knows about its Pod. */
export interface PodState {
  /** null before it has one. */
  readonly addresses: readonly string[] | null;
  /** Set when it cannot be run at all, or never again. */
  readonly failure: { readonly reason: string; readonly message: string } | null;
  /** Why its namespaces or sidecar are not there yet; null when nothing is wrong. */
  readonly waiting: { readonly reason: string; readonly message: string } | null;
  /** null: no sidecar belongs to it; otherwise whether its `outbound` listener is up. */
  readonly sidecarLive: boolean | null;
  readonly runners: readonly ContainerRunner[];
  /** Restarts of a container before it has a runner. */
  readonly restarts: (container: string) => number;
  /** `frozen`, `thawed` after having been frozen, or `never`. */
  readonly freeze: 'never' | 'frozen' | 'thawed';
  /** What has no effect here (D19), for a person. */
  readonly notes: readonly string[];
  readonly ending: boolean;
  readonly startTime: string;
}

export type PodPhase = 'Pending' | 'Running' | 'Succeeded' | 'Failed';

/** The phase, from the states of the containers. */
export function phaseOf(pod: Pod, state: PodState): PodPhase {
  if (state.failure !== null) {
    return 'Failed';
  }
  const ends = state.runners.map(({ final }) => final);
  if (ends.length === pod.spec.containers.length && ends.every((end) => end !== null)) {
    return ends.every((end) => end.exitCode === 0) ? 'Succeeded' : 'Failed';
  }
  const hasRun = state.runners.some(
    (runner) => 'running' in runner.state || runner.lastState.terminated !== undefined || runner.final !== null,
  );
  return hasRun ? 'Running' : 'Pending';
}

/** The status of a Pod as Kubernetes writes it; conditions that others set stay. */
export function podStatus(pod: Pod, state: PodState): Record<string, unknown> {
  const phase = phaseOf(pod, state);
  const { addresses } = state;
  return {
    phase,
    reason: state.failure?.reason ?? null,
    message: state.failure?.message ?? null,
    podIP: addresses?.[0] ?? null,
    podIPs: addresses === null ? null : addresses.map((ip) => ({ ip })),
    startTime: state.startTime,
    observedGeneration: pod.metadata.generation ?? null,
    conditions: conditionsOf(pod, state, phase),
    containerStatuses: pod.spec.containers.map(({ name, image }) => {
      const runner = state.runners.find((known) => known.name === name);
      return {
        name,
        image: image ?? '',
        imageID: '',
        ready: runner?.ready === true && state.freeze !== 'frozen',
        started: runner?.started ?? false,
        restartCount: runner?.restartCount ?? state.restarts(name),
        state: runner?.state ?? { waiting: state.waiting ?? { reason: 'ContainerCreating' } },
        lastState: runner?.lastState ?? {},
      };
    }),
  };
}

function conditionsOf(pod: Pod, state: PodState, phase: PodPhase): PodCondition[] {
  const running = phase === 'Running';
  const notReady = state.runners.find(({ ready }) => !ready);
  const all = state.runners.length > 0 && notReady === undefined;
  const over = phase === 'Succeeded' ? 'PodCompleted' : phase === 'Failed' ? 'PodFailed' : null;
  const why =
    over ??
    (state.freeze === 'frozen'
      ? 'ContainersPaused'
      : state.sidecarLive === false
        ? 'SidecarNotReady'
        : 'ContainersNotReady');
  const ready = running && all && state.sidecarLive !== false && state.freeze !== 'frozen' && !state.ending;
  const detail =
    notReady === undefined || notReady.detail === '' ? '' : `container ${notReady.name}: ${notReady.detail}`;
  const wanted: PodCondition[] = [
    truth('PodScheduled', true, '', ''),
    truth('PodReadyToStartContainers', state.addresses !== null, 'NoNetwork', ''),
    truth('Initialized', state.failure === null, 'PodFailed', ''),
    truth('ContainersReady', ready, why, detail),
    truth('Ready', ready, why, detail),
  ];
  if (state.freeze !== 'never') {
    wanted.push(truth('ContainersPaused', state.freeze === 'frozen', 'Thawed', ''));
    wanted.push(truth('ContainersResumed', state.freeze === 'thawed', 'Frozen', ''));
  }
  if (state.notes.length > 0) {
    wanted.push({ type: 'FieldsNoted', status: 'True', reason: 'NoEffect', message: state.notes.join('; ') });
  }
  return merge(pod, wanted);
}

function truth(type: string, value: boolean, reason: string, message: string): PodCondition {
  return {
    type,
    status: value ? 'True' : 'False',
    ...(value || reason === '' ? {} : { reason }),
    ...(message === '' ? {} : { message }),
  };
}

const OWN = ['ContainersPaused', 'ContainersResumed', 'FieldsNoted'];

/** Times move only with the status; conditions of others stay where they are. */
function merge(pod: Pod, wanted: readonly PodCondition[]): PodCondition[] {
  const known = pod.status?.conditions ?? [];
  const mine = wanted.map((condition) => {
    const before = known.find(({ type }) => type === condition.type);
    const kept = before?.status === condition.status ? before.lastTransitionTime : undefined;
    return { ...condition, lastTransitionTime: kept ?? timeText() };
  });
  const others = known.filter(
    ({ type }) => !OWN.includes(type) && !wanted.some((condition) => condition.type === type),
  );
  return [...mine, ...others];
}

const RETRY_MS = 500;

/** Writes a Pod's status when told to, never two at once, the newest state last. */
export class StatusWriter {
  readonly #store: ObjectStore;
  readonly #logger: Logger;
  readonly #compute: () => { readonly pod: Pod; readonly status: Record<string, unknown> };
  #dirty = false;
  #writing: Promise<void> | null = null;
  #closed = false;
  #last = '';

  constructor(
    store: ObjectStore,
    logger: Logger,
    compute: () => { readonly pod: Pod; readonly status: Record<string, unknown> },
  ) {
    this.#store = store;
    this.#logger = logger;
    this.#compute = compute;
  }

  /** The status has changed. */
  touch(): void {
    this.#dirty = true;
    this.#writing ??= this.#write().finally(() => {
      this.#writing = null;
    });
  }

  /** Resolves when everything told so far is written or given up. */
  async settled(): Promise<void> {
    await this.#writing;
  }

  /** Writes no more. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#writing;
  }

  async #write(): Promise<void> {
    // Changes come in bunches.
    await sleep(2);
    while (this.#dirty && !this.#closed) {
      this.#dirty = false;
      const { pod, status } = this.#compute();
      const text = JSON.stringify(status);
      if (text === this.#last) {
        continue;
      }
      const key = { namespace: pod.metadata.namespace ?? '', name: pod.metadata.name };
      const body = { metadata: { uid: pod.metadata.uid }, status };
      try {
        await this.#store.patchStatus('Pod', key, { type: 'merge', body });
        this.#last = text;
      } catch (error) {
        if (isCoded(error, 'not-found') || isCoded(error, 'conflict')) {
          return; // It is gone, or another one has its name.
        }
        this.#logger.warn(
          { pod: `${key.namespace}/${key.name}`, error: errorText(error) },
          'the status was not written',
        );
        this.#dirty = true;
        await sleep(RETRY_MS);
      }
    }
  }
}
