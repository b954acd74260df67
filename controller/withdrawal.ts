import { FINALIZER_WITHDRAWAL, LABEL_SANDBOX_UID } from '../api/labels.ts';
import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import { errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ObjectKey, ObjectStore } from '../store/object-store.ts';

/** Resolves when no gateway leads to the Pod of this Sandbox (by uid) any more. It may take for ever, or reject. */
export type Withdrawal = (sandboxUid: string) => Promise<void>;

/** Waits for a withdrawal, but no longer than the deadline: a gateway that is away must not hold a Pod (D12). */
export async function withdrawn(
  withdrawal: Withdrawal,
  uid: string,
  deadlineMs: number,
  logger: Logger,
): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<'late'>();
  const timer = setTimeout(() => resolve('late'), deadlineMs);
  try {
    if ((await Promise.race([withdrawal(uid), late])) === 'late') {
      logger.warn({ sandbox: uid, deadlineMs }, 'not every gateway has withdrawn the sandbox in time');
    }
  } catch (error) {
    logger.warn({ sandbox: uid, error: errorText(error) }, 'the withdrawal of a sandbox failed');
  } finally {
    clearTimeout(timer);
  }
}

/** Whether a Pod waits for its withdrawal before it may go. */
export function awaitsWithdrawal(pod: KubeObject): boolean {
  const { finalizers, deletionTimestamp } = pod.metadata;
  return deletionTimestamp !== undefined && Array.isArray(finalizers) && finalizers.includes(FINALIZER_WITHDRAWAL);
}

/**
 * Lets a Pod that is being deleted go once its withdrawal is acknowledged, whoever deleted it. Throws what the store
 * throws; a Pod that is gone or changed meanwhile is none of them.
 */
export async function releasePod(
  store: ObjectStore,
  key: ObjectKey,
  wait: (sandboxUid: string) => Promise<void>,
): Promise<void> {
  const found = await podOrNull(store, key);
  if (found === null || !awaitsWithdrawal(found)) {
    return;
  }
  await wait(sandboxUidOf(found));
  const pod = await podOrNull(store, key);
  if (pod === null || pod.metadata.uid !== found.metadata.uid || !awaitsWithdrawal(pod)) {
    return;
  }
  const finalizers = (pod.metadata.finalizers ?? []).filter((name) => name !== FINALIZER_WITHDRAWAL);
  const { uid, resourceVersion } = pod.metadata;
  await store.patch('Pod', key, { type: 'merge', body: { metadata: { uid, resourceVersion, finalizers } } });
}

function sandboxUidOf(pod: KubeObject): string {
  const owners = Array.isArray(pod.metadata.ownerReferences) ? pod.metadata.ownerReferences : [];
  return owners.find((owner) => owner.kind === 'Sandbox')?.uid ?? pod.metadata.labels?.[LABEL_SANDBOX_UID] ?? '';
}

async function podOrNull(store: ObjectStore, key: ObjectKey): Promise<KubeObject | null> {
  try {
    return await store.get('Pod', key);
  } catch (error) {
    if (isCoded(error, 'not-found')) {
      return null;
    }
    throw error;
  }
}

/** The key of an object, as text and back: names hold no `/`. */
export function queueKey(object: KubeObject): string {
  const { namespace, name } = refOf(object);
  return `${namespace}/${name}`;
}

export function objectKey(text: string): ObjectKey {
  const slash = text.indexOf('/');
  return { namespace: text.slice(0, slash), name: text.slice(slash + 1) };
}
