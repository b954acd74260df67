import type { KubeObject } from '../api/object.ts';
import { systemClock } from '../base/clock.ts';
import { nameUid } from './manifest-store.ts';
import type { KindLookup } from './object-store.ts';
import { MemoryStore } from './table-store.ts';

/**
 * A copy of a store's objects, in memory, on which a change can be tried: uids, generations, creation times and status
 * stay what they are. What is created here gets a uid that follows from kind and name. Nothing is collected.
 */
export class SnapshotStore extends MemoryStore {
  constructor(objects: readonly KubeObject[], kinds: KindLookup) {
    super({ kinds, clock: systemClock, uid: nameUid });
    for (const object of objects) {
      this.table.restore(object);
    }
  }

  protected override shouldCollect(): boolean {
    return false;
  }
}
