import type { Pod } from '../api/pod.ts';
import { CodedError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Pki } from '../identity/pki-directory.ts';
import { Informer } from '../store/informer.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { AddressPool } from './addresses.ts';
import { Cgroups } from './cgroups.ts';
import { type BackOff, DEFAULT_BACK_OFF } from './container-runner.ts';
import { closeInheritedDescriptors } from './descriptors.ts';
import type { Layout } from './layout.ts';
import { removeLeftovers } from './leftovers.ts';
import { NetworkProber } from './network-probe.ts';
import type { NodeNamespace } from './node-namespace.ts';
import { PodWorker, type WorkerContext } from './pod-worker.ts';
import { isRunning } from './process-record.ts';
import type { Settings } from './settings.ts';

export interface NodeAgentOptions {
  readonly store: ObjectStore;
  readonly layout: Layout;
  readonly node: NodeNamespace;
  readonly pki: Pki;
  /** The settings in force; asked anew at every start of a container. */
  readonly settings: () => Settings;
  /** Path of the pinned Envoy; null: no sidecars, and so no egress. */
  readonly envoyPath: string | null;
  readonly logger: Logger;
  /** Ends the agent and every Pod. */
  readonly signal: AbortSignal;
  readonly backOff?: BackOff;
}

const NODE_CHECK_MS = 1000;

/**
 * Runs the Pods of a store as local processes (D15) until the signal: one worker per Pod, its status written back,
 * deletion held by a finalizer until the processes have ended. Removes what an agent before it has left, then starts
 * Pods anew as their restart policy says. Throws `node-gone` when the node namespace ends.
 */
export async function runNodeAgent(options: NodeAgentOptions): Promise<void> {
  const { store, layout, node, logger, signal } = options;
  closeInheritedDescriptors();
  const cgroups = new Cgroups(layout.dir);
  await removeLeftovers(layout, cgroups);
  const context: WorkerContext = {
    ...options,
    cgroups,
    addresses: await AddressPool.open(layout.sandboxes),
    prober: new NetworkProber(node),
    backOff: options.backOff ?? DEFAULT_BACK_OFF,
  };
  const workers = new Map<string, PodWorker>();
  const informer = new Informer(store, 'Pod', { logger });
  informer.onChange(({ type, object, previous }) => {
    if (signal.aborted) {
      return;
    }
    if (previous !== undefined && previous.metadata.uid !== object.metadata.uid) {
      see(workers, context, 'deleted', previous as Pod);
    }
    see(workers, context, type, object as Pod);
  });
  const alive = await untilEnd(node, signal);
  await informer.close();
  await Promise.all([...workers.values()].map((worker) => worker.abandon()));
  context.prober.close();
  await cgroups.clear();
  if (!alive) {
    throw new CodedError('node-gone', 'the node namespace has ended');
  }
}

function see(
  workers: Map<string, PodWorker>,
  context: WorkerContext,
  type: 'added' | 'modified' | 'deleted',
  pod: Pod,
): void {
  const uid = pod.metadata.uid ?? '';
  const worker = workers.get(uid);
  if (type === 'deleted') {
    void worker?.end(0).then(() => workers.delete(uid));
    return;
  }
  if (worker !== undefined) {
    worker.update(pod);
    return;
  }
  const over = pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
  if (over && pod.metadata.deletionTimestamp === undefined) {
    return;
  }
  const fresh = new PodWorker(pod, context);
  workers.set(uid, fresh);
  fresh.start();
}

/** Resolves with whether the node namespace was still there at the end. */
function untilEnd(node: NodeNamespace, signal: AbortSignal): Promise<boolean> {
  return new Promise((done) => {
    const timer = setInterval(() => {
      if (!isRunning(node.holder)) {
        end(false);
      }
    }, NODE_CHECK_MS);
    const end = (alive: boolean): void => {
      clearInterval(timer);
      done(alive);
    };
    if (signal.aborted) {
      end(true);
    }
    signal.addEventListener('abort', () => end(true), { once: true });
  });
}
