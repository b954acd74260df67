import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { CodedError, errorText, isCoded } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import type {
  KindLookup,
  ListResult,
  ObjectKey,
  ObjectStore,
  Patch,
  WatchEvent,
  WatchOptions,
} from './object-store.ts';
import { ObjectTable, type ObjectTableOptions, type Plan } from './object-table.ts';

export interface TableStoreOptions {
  readonly kinds: KindLookup;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Changes that each kind's watch history keeps at least; default 4096. */
  readonly history?: number;
  /** The uid of a new object; random by default. */
  readonly uid?: (object: KubeObject) => string;
  /** Time between bookmarks of a watch; default 30 s. */
  readonly bookmarkMs?: number;
}

/**
 * An {@link ObjectStore} over an {@link ObjectTable} in this process. A subclass makes it durable: it gives the table
 * its hooks and overrides `mutate`. What ought to go (an owner is gone, a marked object has no finalizer left) is
 * removed in the background, soon after the change that caused it.
 */
export abstract class TableStore implements ObjectStore {
  protected readonly table: ObjectTable;
  protected readonly logger: Logger;
  protected readonly clock: Clock;
  readonly #bookmarks: NodeJS.Timeout;
  readonly #doomed = new Map<string, KubeObject>();
  #collecting: Promise<void> | null = null;
  #closed = false;

  constructor(options: TableStoreOptions, version = 0, hooks: Pick<ObjectTableOptions, 'persist' | 'holds'> = {}) {
    this.logger = options.logger ?? silentLogger;
    this.clock = options.clock ?? systemClock;
    this.table = new ObjectTable(
      {
        kinds: options.kinds,
        clock: this.clock,
        history: options.history ?? 4096,
        collect: (object) => this.#collectLater(object),
        ...(options.uid === undefined ? {} : { uid: options.uid }),
        ...hooks,
      },
      version,
    );
    this.#bookmarks = setInterval(() => this.table.bookmark(), options.bookmarkMs ?? 30_000);
    this.#bookmarks.unref();
  }

  /** Carries a change out: works out the plan, makes it durable, commits it. */
  protected abstract mutate(plan: () => Plan): Promise<KubeObject>;

  async list(kind: string, options: { readonly namespace?: string } = {}): Promise<ListResult> {
    this.requireOpen();
    return this.table.list(kind, options.namespace);
  }

  async get(kind: string, key: ObjectKey): Promise<KubeObject> {
    this.requireOpen();
    return this.table.get(kind, key);
  }

  async create(object: KubeObject): Promise<KubeObject> {
    return this.#change(() => this.table.planCreate(object));
  }

  async replace(object: KubeObject): Promise<KubeObject> {
    return this.#change(() => this.table.planReplace(object));
  }

  async patch(kind: string, key: ObjectKey, patch: Patch): Promise<KubeObject> {
    return this.#change(() => this.table.planPatch(kind, key, patch));
  }

  async patchStatus(kind: string, key: ObjectKey, patch: Patch): Promise<KubeObject> {
    return this.#change(() => this.table.planStatus(kind, key, patch));
  }

  async delete(kind: string, key: ObjectKey, options: { readonly uid?: string } = {}): Promise<void> {
    await this.#change(() => this.table.planDelete(kind, key, options.uid));
  }

  watch(kind: string, options: WatchOptions = {}): AsyncIterable<WatchEvent> {
    this.requireOpen();
    return this.table.watch(kind, options);
  }

  #change(plan: () => Plan): Promise<KubeObject> {
    this.requireOpen();
    return this.mutate(plan);
  }

  protected requireOpen(): void {
    if (this.#closed) {
      throw new CodedError('unavailable', 'the store is closed');
    }
  }

  /** Whether an object that the table would have removed may be. */
  protected shouldCollect(_object: KubeObject): boolean {
    return true;
  }

  #collectLater(object: KubeObject): void {
    if (!this.shouldCollect(object)) {
      return;
    }
    this.#doomed.set(object.metadata.uid!, object);
    this.#collecting ??= new Promise<void>((resolve) => setImmediate(resolve)).then(() => this.#collect());
  }

  async #collect(): Promise<void> {
    for (const [uid, object] of this.#doomed) {
      this.#doomed.delete(uid);
      if (this.#closed) {
        break;
      }
      try {
        await this.#remove(object);
      } catch (error) {
        this.logger.error({ object: refOf(object), error: errorText(error) }, 'an object cannot be removed');
      }
    }
    this.#collecting = null;
  }

  /** Removes the object if it still ought to go: an owner may have come, or a successor taken the name. */
  async #remove(object: KubeObject): Promise<void> {
    const { kind, namespace, name } = refOf(object);
    try {
      await this.mutate(() => {
        const stored = this.table.get(kind, { namespace, name });
        const due = this.table.isFinished(stored) || this.table.isOrphan(stored);
        return due
          ? this.table.planDelete(kind, { namespace, name }, object.metadata.uid)
          : { changes: [], result: stored };
      });
    } catch (error) {
      if (!isCoded(error, 'not-found') && !isCoded(error, 'conflict')) {
        throw error;
      }
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#bookmarks);
    this.table.close();
    await this.#collecting;
  }
}

/** Keeps objects in memory only: for tests, and for commands that read manifests without a running plane. */
export class MemoryStore extends TableStore {
  protected async mutate(plan: () => Plan): Promise<KubeObject> {
    return this.table.commit(plan());
  }
}
