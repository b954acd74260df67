import { KINDS, kindNamed } from '../api/kinds.ts';
import { type KubeObject, refOf } from '../api/object.ts';
import { isCoded } from '../base/errors.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { SnapshotStore } from '../store/snapshot-store.ts';
import { applyObject } from './apply-object.ts';
import { type DecisionChange, decisionChanges } from './decision-diff.ts';
import { keyOf } from './documents.ts';
import { fieldChanges, type ObjectChange } from './object-diff.ts';
import { compileStore } from './offline.ts';
import { type ResourceChanges, resourceChanges } from './resource-diff.ts';
import { type Target, withReadStore } from './target.ts';

/** The answer of `sandgate diff -o json`. */
export interface Difference {
  readonly objects: readonly ObjectChange[];
  readonly decisions: readonly DecisionChange[];
  readonly resources: ResourceChanges;
}

/** What applying objects to the plane of a directory would change. They are tried on a copy of what it has. */
export async function difference(target: Target, wanted: readonly KubeObject[]): Promise<Difference> {
  const store = new SnapshotStore(await withReadStore(target, allObjects), kindNamed);
  try {
    const before = await compileStore(target.dir, store);
    const objects: ObjectChange[] = [];
    for (const object of wanted) {
      objects.push(await tryObject(store, object));
    }
    // The plane gives a new name the next address; the names that it has keep theirs.
    const after = await compileStore(target.dir, store, before.world.facts.virtualAddresses);
    return {
      objects,
      decisions: decisionChanges(before, after),
      resources: resourceChanges(before, after),
    };
  } finally {
    await store.close();
  }
}

async function allObjects(store: ObjectStore): Promise<readonly KubeObject[]> {
  return (await Promise.all(KINDS.map(({ kind }) => store.list(kind)))).flatMap(({ items }) => items);
}

async function tryObject(store: ObjectStore, object: KubeObject): Promise<ObjectChange> {
  const key = keyOf(object);
  const stored = await store.get(object.kind, key).catch((error: unknown) => {
    if (isCoded(error, 'not-found')) {
      return null;
    }
    throw error;
  });
  const change = await applyObject(store, object);
  const now = await store.get(object.kind, key);
  return { ...refOf(now), change, fields: stored === null ? [] : fieldChanges(stored, now) };
}
