import type { Pod } from '../api/pod.ts';
import { isCoded } from '../base/errors.ts';
import type { ObjectStore } from '../store/object-store.ts';

/** Holds a Pod's object until its processes have ended. */
export const FINALIZER_NODE_AGENT = 'sandgate.dev/node-agent';

/** Puts the agent's finalizer on a Pod; a Pod that is gone or going gets none. */
export async function addFinalizer(store: ObjectStore, pod: Pod): Promise<void> {
  await change(store, pod, (known, going) =>
    going || known.includes(FINALIZER_NODE_AGENT) ? null : [...known, FINALIZER_NODE_AGENT],
  );
}

/** Takes it off again, which lets the Pod's object go. */
export async function removeFinalizer(store: ObjectStore, pod: Pod): Promise<void> {
  await change(store, pod, (known) =>
    known.includes(FINALIZER_NODE_AGENT) ? known.filter((name) => name !== FINALIZER_NODE_AGENT) : null,
  );
}

/** Other writers of the list are respected: a lost race is tried again with the newer object. */
async function change(
  store: ObjectStore,
  pod: Pod,
  next: (known: readonly string[], going: boolean) => readonly string[] | null,
): Promise<void> {
  const key = { namespace: pod.metadata.namespace ?? '', name: pod.metadata.name };
  for (;;) {
    try {
      const { metadata } = await store.get('Pod', key);
      const wanted = next(metadata.finalizers ?? [], metadata.deletionTimestamp !== undefined);
      if (wanted === null || metadata.uid !== pod.metadata.uid) {
        return;
      }
      const body = { metadata: { resourceVersion: metadata.resourceVersion, finalizers: wanted } };
      await store.patch('Pod', key, { type: 'merge', body });
      return;
    } catch (error) {
      if (isCoded(error, 'not-found')) {
        return;
      }
      if (!isCoded(error, 'conflict')) {
        throw error;
      }
    }
  }
}
