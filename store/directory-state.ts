import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import type { Logger } from '../base/logger.ts';
import type { Swap } from './file-swap.ts';
import { Journal, type Replay } from './journal.ts';
import { settle } from './json.ts';
import type { ManifestEntry, ManifestIndex } from './manifest-index.ts';
import { objectKey } from './manifest-reader.ts';
import type { Change, ObjectTable } from './object-table.ts';
import { stamped } from './transitions.ts';

/** Bits of {@link StoredPut.m}. */
const DESCRIBED = 1;
const VANISHED = 2;

/** An object as the log keeps it. */
interface StoredPut {
  readonly o: KubeObject;
  /** 1: has or had a manifest; 2: the manifest vanished and the object is on its way out. Absent: neither. */
  readonly m?: number;
}

interface StoredDrop {
  readonly d: readonly [kind: string, namespace: string, name: string];
  readonly v: number;
}

/** One line of the log. */
interface StoredRecord {
  /** Changes of objects. */
  readonly c?: readonly (StoredPut | StoredDrop)[];
  /** The index of a manifest; without keys and hash when the file is gone. */
  readonly f?: ManifestEntry;
  /** A change of a manifest that this commit promises. */
  readonly w?: Swap;
  /** A removal of this manifest has been carried out. */
  readonly done?: string;
}

/** What goes into the log together with the changes of a commit. */
export interface CommitContext {
  /** A new object that has a manifest. */
  readonly manifestOf?: string;
  readonly swap?: Swap;
  readonly entry?: ManifestEntry;
}

/** What a store finds when it opens. */
export interface Restored {
  readonly swaps: readonly Swap[];
  readonly entries: ReadonlyMap<string, ManifestEntry>;
}

/** The durable part of a directory store: objects, which of them manifests describe, and the index of manifests. */
export class DirectoryState {
  readonly journal: Journal;
  readonly #replay: Replay;
  #table: ObjectTable | null = null;
  #index: ManifestIndex | null = null;
  readonly #manifests = new Set<string>();
  readonly #vanished = new Set<string>();
  #context: CommitContext = {};

  private constructor(journal: Journal, replay: Replay) {
    this.journal = journal;
    this.#replay = replay;
  }

  /** Opens the log below `directory`. Throws `corrupt`. */
  static open(directory: string, logger: Logger, compactBytes?: number): DirectoryState {
    const limit = compactBytes === undefined ? {} : { compactBytes };
    const snapshot = (): ReturnType<DirectoryState['snapshot']> => state.snapshot();
    const { journal, replay } = Journal.open({ directory, logger, snapshot, ...limit });
    const state = new DirectoryState(journal, replay);
    return state;
  }

  /** The version before the oldest change that the log still has: a table must begin there. */
  get floor(): number {
    return this.#replay.version;
  }

  /** Fills the table, and gives what must be done with files. */
  restore(table: ObjectTable, index: ManifestIndex): Restored {
    this.#table = table;
    this.#index = index;
    const entries = new Map<string, ManifestEntry>();
    const swaps = new Map<string, Swap>();
    for (const record of this.#replay.snapshot as StoredRecord[]) {
      for (const change of record.c ?? []) {
        if ('o' in change) {
          table.restore(this.#flagged(change, undefined));
        }
      }
      noteEntry(entries, record.f);
    }
    for (const record of this.#replay.records as StoredRecord[]) {
      for (const change of record.c ?? []) {
        const replayed = this.#change(table, change);
        table.apply(replayed === null ? [] : [replayed]);
      }
      noteEntry(entries, record.f);
      swaps.delete(record.f?.path ?? record.done ?? '');
      if (record.w !== undefined) {
        swaps.set(record.w.path, record.w);
      }
    }
    return { swaps: [...swaps.values()], entries };
  }

  #change(table: ObjectTable, stored: StoredPut | StoredDrop): Change | null {
    if ('o' in stored) {
      const { kind, namespace, name } = refOf(stored.o);
      const previous = table.find(kind, namespace, name);
      return { type: 'put', object: this.#flagged(stored, previous), previous };
    }
    const [kind, namespace, name] = stored.d;
    const previous = table.find(kind, namespace, name);
    if (previous === undefined) {
      return null;
    }
    this.#forget(objectKey(previous));
    return { type: 'drop', object: stamped(previous, stored.v), previous };
  }

  #flagged(stored: StoredPut, previous: KubeObject | undefined): KubeObject {
    const object = settle(previous, stored.o) as KubeObject;
    const key = objectKey(object);
    const flags = stored.m ?? 0;
    if ((flags & DESCRIBED) !== 0) {
      this.#manifests.add(key);
    }
    if ((flags & VANISHED) !== 0) {
      this.#vanished.add(key);
    }
    return object;
  }

  #forget(key: string): void {
    this.#manifests.delete(key);
    this.#vanished.delete(key);
  }

  #put(object: KubeObject, key: string): StoredPut {
    const flags = (this.#manifests.has(key) ? DESCRIBED : 0) | (this.#vanished.has(key) ? VANISHED : 0);
    return flags === 0 ? { o: object } : { o: object, m: flags };
  }

  /** Everything, for a compaction. */
  snapshot(): { version: number; records: object[] } {
    const records: StoredRecord[] = [];
    for (const object of this.#table!.all()) {
      records.push({ c: [this.#put(object, objectKey(object))] });
    }
    for (const entry of this.#index!.entries()) {
      records.push({ f: entry });
    }
    return { version: this.#table!.version, records };
  }

  /** Runs a commit whose log line also holds what the context says. */
  within<T>(context: CommitContext, commit: () => T): T {
    this.#context = context;
    try {
      return commit();
    } finally {
      this.#context = {};
    }
  }

  /** Writes the changes of a commit; the table's `persist`. */
  persist(changes: readonly Change[]): void {
    const { manifestOf, swap, entry } = this.#context;
    const stored = changes.map(({ type, object }): StoredPut | StoredDrop => {
      const { kind, namespace, name } = refOf(object);
      if (type === 'drop') {
        return { d: [kind, namespace, name], v: Number(object.metadata.resourceVersion) };
      }
      const key = objectKey(object);
      return key === manifestOf ? { o: object, m: DESCRIBED } : this.#put(object, key);
    });
    const record: StoredRecord = {
      c: stored,
      ...(entry === undefined ? {} : { f: entry }),
      ...(swap === undefined ? {} : { w: swap }),
    };
    this.journal.append(record);
    if (manifestOf !== undefined) {
      this.#manifests.add(manifestOf);
    }
    for (const { type, object } of changes) {
      if (type === 'drop') {
        this.#forget(objectKey(object));
      }
    }
  }

  /** Keeps the index of a manifest; null when the file is gone. */
  recordIndex(path: string, entry: ManifestEntry | null): void {
    this.journal.append({ f: entry ?? { path, hash: null, keys: [], clean: true } });
  }

  /** A promised removal of a manifest was carried out; a file of the same content that comes later is another. */
  recordRemoval(path: string): void {
    this.journal.append({ done: path });
  }

  /** Whether the object came from a manifest or has been given one. */
  isManifest(key: string): boolean {
    return this.#manifests.has(key);
  }

  /** Whether a manifest describes the object now, and was not missing since the object's deletion began. */
  isDescribed(key: string): boolean {
    return this.isManifest(key) && !this.#vanished.has(key) && this.#index?.fileOf(key) !== undefined;
  }

  isVanished(key: string): boolean {
    return this.#vanished.has(key);
  }

  /** The manifest is gone, which deletes the object. */
  markVanished(key: string): void {
    this.#vanished.add(key);
  }

  /** Objects that had a manifest and have none now, in order. */
  undescribed(): string[] {
    return [...this.#manifests].filter((key) => this.#index!.fileOf(key) === undefined).sort();
  }
}

function noteEntry(entries: Map<string, ManifestEntry>, entry: ManifestEntry | undefined): void {
  if (entry?.hash === null && entry.keys.length === 0) {
    entries.delete(entry.path);
  } else if (entry !== undefined) {
    entries.set(entry.path, entry);
  }
}
