import { randomUUID } from 'node:crypto';
import { setCondition } from '../api/conditions.ts';
import {
  ANNOTATION_ACCESS_TOKEN,
  ANNOTATION_FREEZE,
  ANNOTATION_GRACE,
  ANNOTATION_IMMUTABLE_HASH,
  ANNOTATION_RETENTION,
  FINALIZER_SANDBOX,
  LABEL_SANDBOX_ID,
} from '../api/labels.ts';
import type { KubeObject } from '../api/object.ts';
import type { SandboxStatus } from '../api/sandbox.ts';
import { canonicalJson } from '../base/canonical.ts';
import type { Clock } from '../base/clock.ts';
import { CodedError, errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ObjectKey, ObjectStore } from '../store/object-store.ts';
import { EventLog } from './events.ts';
import { immutableRevision } from './revision.ts';
import { planSandbox, type SandboxAction } from './sandbox-plan.ts';
import { podOf, viewPod } from './sandbox-pod.ts';
import { dueTimer, nextTimer } from './sandbox-timers.ts';
import { type SandboxView, viewSandbox } from './sandbox-view.ts';
import { shortIdMaker } from './short-id.ts';
import { type Withdrawal, withdrawn } from './withdrawal.ts';
import type { WorkResult } from './work-queue.ts';

export interface SandboxSettings {
  /** Whether a Sandbox without a short id gets one (D17). */
  readonly shortIds: boolean;
  /** How long a Pod waits for gateways to withdraw it, in milliseconds; default 5,000. */
  readonly withdrawalDeadlineMs?: number;
}

export interface SandboxReconcilerOptions {
  readonly store: ObjectStore;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly settings: SandboxSettings;
  readonly withdrawal: Withdrawal;
}

const WITHDRAWAL_DEADLINE_MS = 5000;
/** Pause after a lost race: the other writer's change is read then. */
const CONFLICT_MS = 5;
/** Seconds that the processes of a Pod get when its Sandbox is paused by `Stop` (lifecycle §1.7). */
const STOP_GRACE = '5';

/**
 * Brings one Sandbox to what it asks for (lifecycle §1). It keeps nothing between passes but the last event: each pass
 * reads what is stored, stores the next status under the version that it has read, and only then acts. So a pass may
 * be cut off anywhere and be begun again by another process.
 */
export class SandboxReconciler {
  readonly #store: ObjectStore;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #settings: SandboxSettings;
  readonly #withdrawal: Withdrawal;
  readonly #events: EventLog;
  readonly #shortId: () => string;

  constructor(options: SandboxReconcilerOptions) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#settings = options.settings;
    this.#withdrawal = options.withdrawal;
    this.#events = new EventLog(options.logger);
    this.#shortId = shortIdMaker(options.clock);
  }

  /** One pass. Throws what should be tried again with a growing pause. */
  async reconcile(key: ObjectKey): Promise<WorkResult> {
    try {
      return await this.#pass(key);
    } catch (error) {
      if (isCoded(error, 'conflict')) {
        return { againAfterMs: CONFLICT_MS };
      }
      throw error;
    }
  }

  /** Waits for a Sandbox's withdrawal from every gateway, up to the deadline. */
  async withdraw(sandboxUid: string): Promise<void> {
    const deadline = this.#settings.withdrawalDeadlineMs ?? WITHDRAWAL_DEADLINE_MS;
    await withdrawn(this.#withdrawal, sandboxUid, deadline, this.#logger);
  }

  async #pass(key: ObjectKey): Promise<WorkResult> {
    const stored = await this.#find('Sandbox', key);
    if (stored === null) {
      return undefined;
    }
    const view = viewSandbox(stored);
    if (view.deleting) {
      await this.#finish(view, key);
      return undefined;
    }
    if (await this.#fireTimer(view, key)) {
      return undefined;
    }
    if (view.hasTemplate) {
      await this.#advance(await this.#prepared(view, key), key);
    }
    const next = nextTimer(view, this.#clock.now());
    return next === null ? undefined : { againAfterMs: next };
  }

  /** §1.11: with our finalizer the Pod goes first; without it the store removes what the Sandbox owns. */
  async #finish(view: SandboxView, key: ObjectKey): Promise<void> {
    if (!view.finalizers.includes(FINALIZER_SANDBOX)) {
      return;
    }
    const pod = viewPod(await this.#find('Pod', key), view.uid);
    if (pod?.own === true) {
      if (!pod.deleting) {
        const message = `Sandbox deletion is in progress from phase ${view.status.phase ?? ''}`;
        this.#events.record(view.ref, { reason: 'SandboxTerminating', message });
        await this.#deletePod(key, pod.uid);
      }
      return;
    }
    await this.#setFinalizers(view.object, key, (names) => names.filter((name) => name !== FINALIZER_SANDBOX));
  }

  /** §1.6; a timer that fired ends the pass. */
  async #fireTimer(view: SandboxView, key: ObjectKey): Promise<boolean> {
    const due = dueTimer(view, this.#clock.now());
    if (due.kind === 'delete') {
      this.#events.record(view.ref, {
        reason: 'ShutdownTimeReached',
        message: 'the Sandbox is deleted: its shutdownTime is past',
      });
      await this.#ignoreMissing(this.#store.delete('Sandbox', key, { uid: view.uid }));
      return true;
    }
    if (due.kind === 'none') {
      return false;
    }
    if (due.badRetention) {
      const message = `metadata.annotations["${ANNOTATION_RETENTION}"] is no positive duration and counts as forever`;
      this.#events.record(view.ref, { reason: 'BadRetention', message, warning: true });
    }
    const metadata = { resourceVersion: view.resourceVersion };
    await this.#store.patch('Sandbox', key, { type: 'merge', body: { metadata, spec: due.spec } });
    return true;
  }

  /** Gives a Sandbox what it must carry before it runs: an access token, a short id, the hash of its fixed part (D17). */
  async #prepared(view: SandboxView, key: ObjectKey): Promise<SandboxView> {
    if (view.template === null) {
      return view;
    }
    const annotations = {
      ...(Object.hasOwn(view.annotations, ANNOTATION_ACCESS_TOKEN) ? {} : { [ANNOTATION_ACCESS_TOKEN]: randomUUID() }),
      ...(Object.hasOwn(view.annotations, ANNOTATION_IMMUTABLE_HASH)
        ? {}
        : { [ANNOTATION_IMMUTABLE_HASH]: immutableRevision(view.rawTemplate) }),
    };
    const wantsId = this.#settings.shortIds && (view.labels[LABEL_SANDBOX_ID] ?? '') === '';
    if (Object.keys(annotations).length === 0 && !wantsId) {
      return view;
    }
    const labels = wantsId ? { labels: { [LABEL_SANDBOX_ID]: this.#shortId() } } : {};
    const metadata = { resourceVersion: view.resourceVersion, annotations, ...labels };
    return viewSandbox(await this.#store.patch('Sandbox', key, { type: 'merge', body: { metadata } }));
  }

  async #advance(view: SandboxView, key: ObjectKey): Promise<void> {
    const pod = viewPod(await this.#find('Pod', key), view.uid);
    const plan = planSandbox(view, pod, this.#clock.now());
    let object = view.object;
    if (canonicalJson(plan.status) !== canonicalJson(view.object.status ?? null)) {
      object = await this.#storeStatus(object, key, plan.status);
    }
    for (const event of plan.events) {
      this.#events.record(view.ref, event);
    }
    for (const action of plan.actions) {
      object = await this.#act(action, view, object, key, pod?.uid ?? '', plan.status);
    }
  }

  #storeStatus(object: KubeObject, key: ObjectKey, status: SandboxStatus): Promise<KubeObject> {
    const body = [
      { op: 'test', path: '/metadata/uid', value: object.metadata.uid },
      { op: 'test', path: '/metadata/resourceVersion', value: object.metadata.resourceVersion },
      { op: 'add', path: '/status', value: status },
    ];
    return this.#store.patchStatus('Sandbox', key, { type: 'json', body });
  }

  async #act(
    action: SandboxAction,
    view: SandboxView,
    object: KubeObject,
    key: ObjectKey,
    podUid: string,
    status: SandboxStatus,
  ): Promise<KubeObject> {
    switch (action) {
      case 'add-finalizer':
        return this.#setFinalizers(object, key, (names) => [...new Set([...names, FINALIZER_SANDBOX])]);
      case 'remove-finalizer':
        return this.#setFinalizers(object, key, (names) => names.filter((name) => name !== FINALIZER_SANDBOX));
      case 'withdraw':
        await this.withdraw(view.uid);
        return object;
      case 'freeze':
        await this.#annotatePod(key, podUid, { [ANNOTATION_FREEZE]: 'true' });
        return object;
      case 'thaw':
        await this.#annotatePod(key, podUid, { [ANNOTATION_FREEZE]: null });
        return object;
      case 'delete-pod':
        await this.#annotatePod(key, podUid, { [ANNOTATION_GRACE]: STOP_GRACE });
        await this.#deletePod(key, podUid);
        return object;
      case 'create-pod':
        return this.#createPod(view, object, key, status);
    }
  }

  /** §1.8: a Pod that is already there is no error; the next pass looks at it. */
  async #createPod(view: SandboxView, object: KubeObject, key: ObjectKey, status: SandboxStatus): Promise<KubeObject> {
    try {
      await this.#store.create(podOf(view, view.template!, status.updateRevision ?? ''));
    } catch (error) {
      if (isCoded(error, 'already-exists')) {
        return object;
      }
      const message = errorText(error);
      this.#events.record(view.ref, { reason: 'PodCreateFailed', message, warning: true });
      const at = { now: `${new Date(this.#clock.now()).toISOString().slice(0, 19)}Z`, generation: view.generation };
      const value = { type: 'Ready', status: 'False', reason: 'PodCreateFailed', message } as const;
      const conditions = setCondition(status.conditions, value, at);
      if (conditions !== status.conditions) {
        await this.#storeStatus(object, key, { ...status, conditions });
      }
      throw new CodedError('pod-create-failed', message, { cause: error });
    }
    return object;
  }

  async #annotatePod(key: ObjectKey, uid: string, annotations: Readonly<Record<string, string | null>>): Promise<void> {
    const patch = { type: 'merge', body: { metadata: { uid, annotations } } } as const;
    await this.#ignoreMissing(this.#store.patch('Pod', key, patch));
  }

  async #deletePod(key: ObjectKey, uid: string): Promise<void> {
    await this.#ignoreMissing(this.#store.delete('Pod', key, { uid }));
  }

  async #setFinalizers(
    object: KubeObject,
    key: ObjectKey,
    change: (names: readonly string[]) => readonly string[],
  ): Promise<KubeObject> {
    const before = object.metadata.finalizers ?? [];
    const finalizers = change(before);
    if (finalizers.length === before.length) {
      return object;
    }
    const { uid, resourceVersion } = object.metadata;
    return this.#store.patch('Sandbox', key, {
      type: 'merge',
      body: { metadata: { uid, resourceVersion, finalizers } },
    });
  }

  async #find(kind: string, key: ObjectKey): Promise<KubeObject | null> {
    return this.#ignoreMissing(this.#store.get(kind, key));
  }

  async #ignoreMissing<T>(promise: Promise<T>): Promise<T | null> {
    try {
      return await promise;
    } catch (error) {
      if (isCoded(error, 'not-found')) {
        return null;
      }
      throw error;
    }
  }
}
