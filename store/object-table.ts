import { randomUUID } from 'node:crypto';
import type { KubeObject } from '../api/object.ts';
import { refOf, refText } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import type { Clock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';
import { History } from './history.ts';
import type { KindInfo, KindLookup, ListResult, ObjectKey, Patch, WatchEvent, WatchOptions } from './object-store.ts';
import { Signal, watchHistory } from './table-watch.ts';
import * as transitions from './transitions.ts';

/** One step of a commit: the object under its new version, or its last form under the version of its removal. */
export interface Change {
  readonly type: 'put' | 'drop';
  readonly object: KubeObject;
  readonly previous: KubeObject | undefined;
}

/** Changes that are committed together; `result` answers the request. */
export interface Plan {
  readonly changes: readonly Change[];
  readonly result: KubeObject;
}

export interface ObjectTableOptions {
  readonly kinds: KindLookup;
  readonly clock: Clock;
  /** The uid of a new object; random by default. */
  readonly uid?: (object: KubeObject) => string;
  /** Entries that each kind's watch history keeps at least. */
  readonly history: number;
  /** Makes a commit durable before it takes effect; throws to refuse it. */
  readonly persist?: (changes: readonly Change[]) => void;
  /** Whether removing the object needs more than this table; then a cascade only marks it and hands it to `collect`. */
  readonly holds?: (object: KubeObject) => boolean;
  /** An object that ought to go: marked and without finalizers, or its owner does not exist. */
  readonly collect: (object: KubeObject) => void;
}

interface Collection {
  readonly objects: Map<string, KubeObject>;
  readonly history: History;
  readonly signal: Signal;
  /** Keys in order; null after one was added or removed. */
  sorted: readonly string[] | null;
}

/** The text under which an object is kept within its kind. */
export function keyText(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

/**
 * All objects of a store in memory, with one counter of resource versions, an index of owners, and a watch history for
 * each kind. `plan…` works out what a request changes, `commit` makes it so; both are synchronous, so that a plan that
 * is committed at once cannot be overtaken.
 */
export class ObjectTable {
  readonly #options: ObjectTableOptions;
  readonly #collections = new Map<string, Collection>();
  readonly #byUid = new Map<string, KubeObject>();
  /** Uid of an owner → uids of what it owns. */
  readonly #owned = new Map<string, Set<string>>();
  #version: number;
  #closed = false;
  /** Versions up to this one are no longer in any history. */
  readonly #floor: number;

  constructor(options: ObjectTableOptions, version = 0) {
    this.#options = options;
    this.#version = version;
    this.#floor = version;
  }

  /** The newest resource version. */
  get version(): number {
    return this.#version;
  }

  /** The description of a kind; throws `invalid`. */
  info(kind: string): KindInfo {
    return transitions.infoOf(this.#options.kinds, kind);
  }

  /** Every object, kind by kind in no order. */
  *all(): Iterable<KubeObject> {
    for (const collection of this.#collections.values()) {
      yield* collection.objects.values();
    }
  }

  /** The number of objects. */
  get size(): number {
    return this.#byUid.size;
  }

  /** The object, if it is there. */
  find(kind: string, namespace: string, name: string): KubeObject | undefined {
    return this.#collections.get(kind)?.objects.get(keyText(namespace, name));
  }

  /** The object; throws `not-found`, or `invalid` for an unknown kind. */
  get(kind: string, key: ObjectKey): KubeObject {
    this.info(kind);
    const object = this.find(kind, key.namespace, key.name);
    if (object === undefined) {
      const { namespace, name } = key;
      throw new CodedError('not-found', `${refText({ kind, namespace, name })} does not exist`);
    }
    return object;
  }

  /** The objects of a kind, ordered by namespace and name. */
  list(kind: string, namespace?: string): ListResult {
    this.info(kind);
    const { objects } = this.#collection(kind);
    const items = this.#sortedKeys(kind).map((key) => objects.get(key)!);
    return {
      items: namespace === undefined ? items : items.filter((object) => object.metadata.namespace === namespace),
      resourceVersion: String(this.#version),
    };
  }

  #sortedKeys(kind: string): readonly string[] {
    const collection = this.#collection(kind);
    collection.sorted ??= [...collection.objects.keys()].sort(compareText);
    return collection.sorted;
  }

  #collection(kind: string): Collection {
    let collection = this.#collections.get(kind);
    if (collection === undefined) {
      const history = new History(this.#floor, this.#options.history);
      collection = { objects: new Map(), history, signal: new Signal(this.#closed), sorted: null };
      this.#collections.set(kind, collection);
    }
    return collection;
  }

  planCreate(input: KubeObject): Plan {
    const object = transitions.identified(input, this.#options.kinds);
    const { kind, namespace, name } = refOf(object);
    if (this.find(kind, namespace, name) !== undefined) {
      throw new CodedError('already-exists', `${refText(refOf(object))} exists already`);
    }
    const uid = this.#options.uid?.(object) ?? randomUUID();
    const fresh = transitions.created(object, this.info(kind), uid, this.#options.clock.now());
    return this.#planPut(undefined, fresh);
  }

  planReplace(input: KubeObject): Plan {
    const object = transitions.identified(input, this.#options.kinds);
    const { kind, namespace, name } = refOf(object);
    const stored = this.get(kind, { namespace, name });
    return this.#planPut(stored, transitions.replaced(stored, object, this.info(kind)));
  }

  planPatch(kind: string, key: ObjectKey, patch: Patch): Plan {
    const stored = this.get(kind, key);
    return this.#planPut(stored, transitions.patched(stored, patch, this.info(kind), this.#options.kinds));
  }

  planStatus(kind: string, key: ObjectKey, patch: Patch): Plan {
    const stored = this.get(kind, key);
    return this.#planPut(stored, transitions.statusPatched(stored, patch, this.info(kind)));
  }

  /** The object that a manifest describes, new or changed. */
  planForm(form: KubeObject): Plan {
    const { kind, namespace, name } = refOf(form);
    const stored = this.find(kind, namespace, name);
    if (stored === undefined) {
      return this.planCreate(form);
    }
    const next = this.isFinished(stored) ? stored : transitions.edited(stored, form, this.info(kind));
    return this.#planPut(stored, next);
  }

  /** Marks the object while it has finalizers, otherwise removes it and what it owns; `uid` guards against a successor. */
  planDelete(kind: string, key: ObjectKey, uid?: string): Plan {
    const stored = this.get(kind, key);
    if (uid !== undefined && uid !== stored.metadata.uid) {
      throw transitions.conflict(stored, `uid ${stored.metadata.uid} is stored, ${uid} was expected`);
    }
    if (transitions.finalizersOf(stored).length > 0) {
      return this.#planPut(stored, transitions.doomed(stored, this.#options.clock.now()));
    }
    return this.#planRemoval(stored);
  }

  #planPut(stored: KubeObject | undefined, next: KubeObject): Plan {
    if (next === stored) {
      return { changes: [], result: stored };
    }
    const { deletionTimestamp } = next.metadata;
    if (stored !== undefined && deletionTimestamp !== undefined && transitions.finalizersOf(next).length === 0) {
      return this.#planRemoval(next);
    }
    const object = transitions.stamped(next, this.#version + 1);
    return { changes: [{ type: 'put', object, previous: stored }], result: object };
  }

  #planRemoval(object: KubeObject): Plan {
    const changes: Change[] = [];
    this.#remove(object, changes, new Set());
    return { changes, result: changes[0]!.object };
  }

  #remove(object: KubeObject, changes: Change[], gone: Set<string>): void {
    const uid = object.metadata.uid!;
    gone.add(uid);
    const previous = this.#byUid.get(uid);
    changes.push({ type: 'drop', object: transitions.stamped(object, this.#version + 1 + changes.length), previous });
    for (const dependent of [...(this.#owned.get(uid) ?? [])].sort(compareText)) {
      const owned = this.#byUid.get(dependent);
      if (owned !== undefined && !gone.has(dependent) && this.#orphaned(owned, gone)) {
        this.#removeOwned(owned, changes, gone);
      }
    }
  }

  #removeOwned(object: KubeObject, changes: Change[], gone: Set<string>): void {
    if (transitions.finalizersOf(object).length === 0 && this.#options.holds?.(object) !== true) {
      this.#remove(object, changes, gone);
      return;
    }
    const marked = transitions.doomed(object, this.#options.clock.now());
    if (marked !== object) {
      gone.add(`marked ${object.metadata.uid}`);
      const stamped = transitions.stamped(marked, this.#version + 1 + changes.length);
      changes.push({ type: 'put', object: stamped, previous: object });
    }
  }

  #orphaned(object: KubeObject, gone: ReadonlySet<string>): boolean {
    const owners = transitions.ownersOf(object);
    const marked = gone.has(`marked ${object.metadata.uid}`);
    return !marked && owners.length > 0 && owners.every((uid) => gone.has(uid) || !this.#byUid.has(uid));
  }

  /** Whether the object has owners and none of them exists. */
  isOrphan(object: KubeObject): boolean {
    return this.#orphaned(object, new Set());
  }

  /** Makes a plan durable and visible, and tells watches. Must follow its plan without an await between. */
  commit(plan: Plan): KubeObject {
    if (plan.changes.length > 0) {
      this.#options.persist?.(plan.changes);
      this.apply(plan.changes);
      for (const { type, object } of plan.changes) {
        if (type === 'put' && (this.isFinished(object) || this.isOrphan(object))) {
          this.#options.collect(object);
        }
      }
    }
    return plan.result;
  }

  /** Whether nothing holds the deletion of the object any more. */
  isFinished(object: KubeObject): boolean {
    return object.metadata.deletionTimestamp !== undefined && transitions.finalizersOf(object).length === 0;
  }

  /** Hands every object to `collect` that ought to have gone: what a kill left undone. */
  collectLeftovers(): void {
    for (const object of [...this.all()]) {
      if (this.isFinished(object) || this.isOrphan(object)) {
        this.#options.collect(object);
      }
    }
  }

  /** Changes that are durable already, as they are read back from a log; also enters them into the watch history. */
  apply(changes: readonly Change[]): void {
    for (const { type, object, previous } of changes) {
      const collection = this.restore(object, type === 'drop', previous);
      const version = Number(object.metadata.resourceVersion);
      const kind = type === 'drop' ? 'deleted' : previous === undefined ? 'added' : 'modified';
      collection.history.append({ version, type: kind, object }, collection.objects.size);
      collection.signal.raise();
    }
  }

  /** Enters or removes one object without telling watches. */
  restore(object: KubeObject, drop = false, previous?: KubeObject): Collection {
    const { kind, namespace, name } = refOf(object);
    const collection = this.#collection(kind);
    const key = keyText(namespace, name);
    const known = previous ?? collection.objects.get(key);
    this.#unlink(known);
    if (drop) {
      collection.objects.delete(key);
      collection.sorted = null;
    } else {
      if (known === undefined) {
        collection.sorted = null;
      }
      collection.objects.set(key, object);
      this.#byUid.set(object.metadata.uid!, object);
      for (const uid of transitions.ownersOf(object)) {
        const owned = this.#owned.get(uid) ?? new Set();
        this.#owned.set(uid, owned.add(object.metadata.uid!));
      }
    }
    this.#version = Math.max(this.#version, Number(object.metadata.resourceVersion));
    return collection;
  }

  #unlink(object: KubeObject | undefined): void {
    if (object === undefined) {
      return;
    }
    this.#byUid.delete(object.metadata.uid!);
    for (const uid of transitions.ownersOf(object)) {
      const owned = this.#owned.get(uid);
      owned?.delete(object.metadata.uid!);
      if (owned?.size === 0) {
        this.#owned.delete(uid);
      }
    }
  }

  /** Watches as {@link ObjectStore.watch} does. */
  async *watch(kind: string, options: WatchOptions = {}): AsyncGenerator<WatchEvent> {
    this.info(kind);
    const { history, signal } = this.#collection(kind);
    yield* watchHistory(
      {
        history,
        signal,
        version: () => this.#version,
        present: () => this.list(kind, options.namespace).items,
      },
      options,
    );
  }

  /** Tells every watch where it stands, so that its version stays young. */
  bookmark(): void {
    for (const { signal } of this.#collections.values()) {
      signal.bookmark();
    }
  }

  /** Ends every watch. */
  close(): void {
    this.#closed = true;
    for (const { signal } of this.#collections.values()) {
      signal.close();
    }
  }
}
