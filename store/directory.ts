import { rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type KubeObject, refOf } from '../api/object.ts';
import type { Clock } from '../base/clock.ts';
import { CodedError, errorText } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import { DirectoryState } from './directory-state.ts';
import { carryOut, finishSwap, hashOf, readSource, type Swap, syncFolder, writeTemporary } from './file-swap.ts';
import { type Layout, prepareLayout, SETTINGS_FILES } from './layout.ts';
import { type Lock, takeLock } from './lock.ts';
import type { ManifestObject } from './manifest.ts';
import type { ManifestEntry, Problem } from './manifest-index.ts';
import { ManifestReader, objectKey } from './manifest-reader.ts';
import { changedManifest, isInternal, newManifest, type Target } from './manifest-target.ts';
import type { KindLookup } from './object-store.ts';
import type { Plan } from './object-table.ts';
import { TableStore, type TableStoreOptions } from './table-store.ts';
import { formOf, sameForm } from './transitions.ts';
import { TreeWatcher } from './tree-watcher.ts';

export interface DirectoryStoreOptions extends TableStoreOptions {
  readonly kinds: KindLookup;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** The log is compacted above this length; default 4 MiB. */
  readonly compactBytes?: number;
}

/**
 * Opens a directory: makes `DIR/.sandgate/`, takes its lock, reads the state, then the manifests. What is wrong with a
 * manifest is a problem of that file and never keeps the store from opening.
 *
 * Throws `locked` (with the holder's pid), `corrupt` (the log is damaged), `unavailable` (no such directory, no rights).
 */
export async function openDirectoryStore(directory: string, options: DirectoryStoreOptions): Promise<DirectoryStore> {
  const layout = prepareLayout(directory);
  const lock = takeLock(join(layout.state, 'lock'));
  try {
    const state = DirectoryState.open(layout.objects, options.logger ?? silentLogger, options.compactBytes);
    const store = new DirectoryStore(options, layout, lock, state);
    try {
      store.load();
    } catch (error) {
      await store.close();
      throw error;
    }
    return store;
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** New content that waits beside its manifest. */
interface Prepared {
  readonly text: string;
  readonly temporary: string;
}

/**
 * Objects in a directory of manifests (D16), for one process at a time. Manifests say what people want; everything
 * else about an object, and whole objects that controllers make (kinds Pod, ControllerRevision, Lease, Event, or label
 * `app.kubernetes.io/managed-by: sandgate`), is in `DIR/.sandgate/state/objects/`.
 *
 * A change of a manifest through the store is prepared as a synced file beside it; the commit in the log names that
 * file; then it is renamed into place. A kill before the commit leaves nothing, one after it leaves a rename that the
 * next process finishes, unless an editor was faster: a person's save wins.
 */
export class DirectoryStore extends TableStore {
  readonly layout: Layout;
  readonly #kinds: KindLookup;
  readonly #lock: Lock;
  readonly #state: DirectoryState;
  readonly #reader: ManifestReader;
  readonly #watcher: TreeWatcher;
  readonly #writing = new Map<string, Promise<unknown>>();
  readonly #listeners = new Set<(problems: readonly Problem[]) => void>();
  /** While manifests are read: owners that do not exist are then a person's affair and not a reason to remove. */
  #reading = false;
  #closing: Promise<void> | null = null;

  /** Use {@link openDirectoryStore}. */
  constructor(options: DirectoryStoreOptions, layout: Layout, lock: Lock, state: DirectoryState) {
    super(options, state.floor, {
      persist: (changes) => state.persist(changes),
      holds: (object) => state.isDescribed(objectKey(object)),
    });
    this.layout = layout;
    this.#kinds = options.kinds;
    this.#lock = lock;
    this.#state = state;
    this.#reader = new ManifestReader(layout.root, options.kinds, this.#sink(), this.logger);
    this.#watcher = new TreeWatcher({
      root: layout.root,
      logger: this.logger,
      skip: new Set(SETTINGS_FILES),
      onFile: (path) => this.#read(() => this.#reader.check(path)),
      onOdd: (path, why) => this.#reader.odd(path, why),
    });
  }

  /** Called once by {@link openDirectoryStore}: takes up the state and then the manifests. */
  load(): void {
    const { swaps, entries } = this.#state.restore(this.table, this.#reader.index);
    for (const swap of swaps) {
      finishSwap(this.layout.root, swap);
      this.#state.recordRemoval(swap.path);
    }
    this.#read(() => {
      const paths = this.#watcher.start();
      for (const path of this.#watcher.leftovers) {
        rmSync(join(this.layout.root, path), { force: true });
      }
      this.#reader.load(paths, entries);
      for (const key of this.#state.undescribed()) {
        this.#vanish(key);
      }
      this.table.collectLeftovers();
    });
  }

  /** What people should mend, ordered by file. */
  problems(): readonly Problem[] {
    return this.#reader.index.problems();
  }

  /** Calls back with all problems whenever they change; gives a function that ends it. */
  onProblems(listener: (problems: readonly Problem[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Names this life of the state: versions of another one mean nothing here. */
  get incarnation(): string {
    return this.#state.journal.store;
  }

  /** The manifest that describes an object, relative to the directory; null for one that is only in the state. */
  fileOf(kind: string, namespace: string, name: string): string | null {
    return this.#reader.index.fileOf(`${kind}/${namespace}/${name}`) ?? null;
  }

  #sink(): ConstructorParameters<typeof ManifestReader>[2] {
    return {
      put: (object, key, entry) => this.#putForm(object, key, entry),
      vanish: (key) => this.#vanish(key),
      indexed: (path, entry) => this.#state.recordIndex(path, entry),
      problemsChanged: (problems) => {
        for (const listener of this.#listeners) {
          listener(problems);
        }
      },
    };
  }

  #read(work: () => void): void {
    this.#reading = true;
    try {
      work();
    } finally {
      this.#reading = false;
    }
  }

  protected override shouldCollect(object: KubeObject): boolean {
    return !this.#reading || this.table.isFinished(object) || !this.#state.isManifest(objectKey(object));
  }

  #putForm(object: ManifestObject, key: string, entry?: ManifestEntry): { reason: string | null; indexed: boolean } {
    const { kind, namespace, name } = refOf(object.form);
    const index = entry === undefined ? {} : { entry };
    const stored = this.table.find(kind, namespace, name);
    if (stored === undefined) {
      const metadata = { ...object.form.metadata, finalizers: object.finalizers };
      const form = object.finalizers.length === 0 ? object.form : { ...object.form, metadata };
      this.#state.within({ manifestOf: key, ...index }, () => this.#commit(this.table.planForm(form)));
      return { reason: null, indexed: entry !== undefined };
    }
    if (!this.#state.isManifest(key)) {
      return { reason: `${key} exists already, made by a controller; this one is not used`, indexed: false };
    }
    const plan = this.table.planForm(object.form);
    this.#state.within(index, () => this.#commit(plan));
    return { reason: null, indexed: entry !== undefined && plan.changes.length > 0 };
  }

  #vanish(key: string): void {
    const [kind, namespace, name] = key.split('/') as [string, string, string];
    const stored = this.table.find(kind, namespace, name);
    if (stored !== undefined && this.#state.isManifest(key)) {
      this.#state.markVanished(key);
      this.#commit(this.table.planDelete(kind, { namespace, name }));
    }
  }

  #commit(plan: Plan): KubeObject {
    // A manifest that came back while its first object was still going describes a new one.
    const returned = plan.changes.flatMap(({ type, object }) => {
      const key = objectKey(object);
      const file = type === 'drop' && this.#state.isVanished(key) ? this.#reader.index.fileOf(key) : undefined;
      return file === undefined ? [] : [file];
    });
    const result = this.table.commit(plan);
    for (const file of returned) {
      queueMicrotask(() => this.#read(() => this.#reader.reread(file)));
    }
    return result;
  }

  protected override async mutate(make: () => Plan): Promise<KubeObject> {
    for (;;) {
      const plan = make();
      const target = this.#target(plan);
      if (target === null) {
        return this.#commit(plan);
      }
      const done = await this.#exclusively(target.path, () => this.#write(make, target.path));
      if (done !== null) {
        return done;
      }
    }
  }

  /** The manifest that the plan changes, if any. Only its first change can: a cascade leaves manifests to `collect`. */
  #target(plan: Plan): Target | null {
    const change = plan.changes[0];
    if (change === undefined) {
      return null;
    }
    const { object, previous } = change;
    const info = this.table.info(object.kind);
    if (change.type === 'put' && previous === undefined) {
      return isInternal(object) ? null : newManifest(this.layout.root, this.#reader.index, formOf(object, info));
    }
    const key = objectKey(object);
    const path = this.#state.isDescribed(key) ? this.#reader.index.fileOf(key) : undefined;
    if (path === undefined || (change.type === 'put' && sameForm(previous!, object, info))) {
      return null;
    }
    const next = change.type === 'put' ? formOf(object, info) : null;
    return { path, content: (text) => changedManifest({ text, path, key, next }, this.#kinds) };
  }

  /** One writer a file at a time. */
  async #exclusively<T>(path: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#writing.get(path) ?? Promise.resolve()).then(work, work);
    this.#writing.set(path, turn);
    try {
      return await turn;
    } finally {
      if (this.#writing.get(path) === turn) {
        this.#writing.delete(path);
      }
    }
  }

  /**
   * Prepares the new content and commits when nothing has moved meanwhile: between the last `make` and the rename
   * there is no await. Null when the object has gone to another file.
   */
  async #write(make: () => Plan, path: string): Promise<KubeObject | null> {
    let prepared = null as Prepared | null;
    try {
      for (let stale = 0; ; ) {
        const plan = make();
        const target = this.#target(plan);
        if (target === null) {
          return this.#commit(plan);
        }
        if (target.path !== path) {
          return null;
        }
        const source = readSource(join(this.layout.root, path));
        if ((source?.hash ?? null) !== (this.#reader.index.get(path)?.hash ?? null)) {
          // A person saved it and the watcher has not told yet.
          stale += 1;
          await this.#catchUp(path, stale);
          continue;
        }
        const text = target.content(source === null ? null : source.text);
        if (text !== null && prepared?.text !== text) {
          this.#discard(prepared);
          prepared = null;
          prepared = { text, temporary: await this.#prepare(path, text) };
          continue;
        }
        const temporary = text === null ? null : (prepared?.temporary ?? null);
        const result = this.#replace(plan, { path, temporary, before: source?.hash ?? null }, text);
        prepared = text === null ? prepared : null;
        await this.#makeDurable(path);
        return result;
      }
    } finally {
      this.#discard(prepared);
    }
  }

  async #catchUp(path: string, times: number): Promise<void> {
    if (times > 5) {
      throw new CodedError('unavailable', `${path} is being changed or not valid YAML: mend it first`);
    }
    // A file that waits for its second look must not be made to count, or to wait longer, by a patch.
    if (!this.#reader.isWaiting(path)) {
      this.#read(() => this.#reader.check(path));
    }
    await new Promise((resolve) => setTimeout(resolve, times * 5));
  }

  async #prepare(path: string, text: string): Promise<string> {
    try {
      return await writeTemporary(this.layout.root, path, text);
    } catch (error) {
      throw new CodedError('unavailable', `${path} cannot be written: ${errorText(error)}`, { cause: error });
    }
  }

  #replace(plan: Plan, swap: Swap, text: string | null): KubeObject {
    const { path } = swap;
    const change = plan.changes[0]!;
    const key = objectKey(change.object);
    const old = this.#reader.index.get(path)?.keys ?? [];
    const keys = change.type === 'drop' ? old.filter((item) => item !== key) : [...new Set([...old, key])];
    const clean = !this.#reader.index.hasErrors(path);
    const entry: ManifestEntry =
      text === null ? { path, hash: null, keys: [], clean: true } : { path, hash: hashOf(text), keys, clean };
    const fresh = change.previous === undefined ? { manifestOf: key } : {};
    const result = this.#state.within({ swap, entry, ...fresh }, () => this.#commit(plan));
    if (text === null) {
      this.#reader.index.remove(path);
    } else {
      this.#reader.index.set(entry);
    }
    this.#carryOut(swap);
    return result;
  }

  #carryOut(swap: Swap): void {
    try {
      carryOut(this.layout.root, swap);
    } catch (error) {
      // The file says the old thing, and files win.
      this.#read(() => this.#reader.reread(swap.path));
      throw new CodedError('unavailable', `${swap.path} cannot be written: ${errorText(error)}`, { cause: error });
    }
    if (swap.temporary === null) {
      this.#state.recordRemoval(swap.path);
    }
  }

  async #makeDurable(path: string): Promise<void> {
    try {
      await Promise.all([syncFolder(dirname(join(this.layout.root, path))), this.#state.journal.flush()]);
    } catch (error) {
      this.logger.warn({ file: path, error: errorText(error) }, 'a change is made but may not survive a power failure');
    }
  }

  #discard(prepared: Prepared | null): void {
    if (prepared !== null) {
      rmSync(join(this.layout.root, prepared.temporary), { force: true });
    }
  }

  override close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#watcher.close();
    this.#reader.close();
    await super.close();
    await Promise.allSettled(this.#writing.values());
    await this.#state.journal.close();
    this.#lock.release();
  }
}
