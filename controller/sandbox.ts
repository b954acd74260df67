import { counter } from '../base/metrics.ts';
import { Informer, type InformerChange } from '../store/informer.ts';
import { SandboxReconciler, type SandboxReconcilerOptions } from './sandbox-reconciler.ts';
import { awaitsWithdrawal, objectKey, queueKey, releasePod } from './withdrawal.ts';
import { WorkQueue, type WorkResult } from './work-queue.ts';

export interface SandboxControllerOptions extends SandboxReconcilerOptions {
  /** Ends the controller. */
  readonly signal: AbortSignal;
}

const passes = counter('sandgate_controller_passes_total', 'Passes of reconcilers by result', ['controller', 'result']);

/**
 * Runs the Sandbox controller until the signal: Sandboxes get their Pods, are paused, resumed and ended
 * ({@link SandboxReconciler}), and Pods that are being deleted are held until no gateway leads to them (D12). Resolves
 * when all work has ended; a store that is away is waited for.
 */
export async function runSandboxController(options: SandboxControllerOptions): Promise<void> {
  const { store, logger, signal } = options;
  const reconciler = new SandboxReconciler(options);
  // Work may wait for a withdrawal up to its deadline, so much of it goes on at a time.
  const queueOptions = { logger, concurrency: 256 };
  const sandboxQueue = new WorkQueue(
    counted('sandbox', (key) => reconciler.reconcile(objectKey(key))),
    queueOptions,
  );
  const wait = (uid: string): Promise<void> => reconciler.withdraw(uid);
  const podQueue = new WorkQueue(
    counted('pod-withdrawal', async (key) => {
      await releasePod(store, objectKey(key), wait);
      return undefined;
    }),
    queueOptions,
  );
  const sandboxes = new Informer(store, 'Sandbox', { logger });
  const pods = new Informer(store, 'Pod', { logger });
  const onPod = ({ type, object }: InformerChange): void => {
    sandboxQueue.add(queueKey(object));
    if (type !== 'deleted' && awaitsWithdrawal(object)) {
      podQueue.add(queueKey(object));
    }
  };
  sandboxes.onChange(({ object }) => sandboxQueue.add(queueKey(object)));
  pods.onChange(onPod);
  await new Promise<void>((resolve) => {
    if (signal.aborted) {
      resolve();
    }
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await Promise.all([sandboxes.close(), pods.close()]);
  await Promise.all([sandboxQueue.close(), podQueue.close()]);
}

function counted(controller: string, work: (key: string) => Promise<WorkResult>): (key: string) => Promise<WorkResult> {
  return async (key) => {
    try {
      const result = await work(key);
      passes.inc({ controller, result: 'done' });
      return result;
    } catch (error) {
      passes.inc({ controller, result: 'failed' });
      throw error;
    }
  };
}
