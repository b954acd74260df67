import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import { errorText, isCoded } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import type { ObjectKey, ObjectStore, WatchEvent } from './object-store.ts';
import { keyText } from './object-table.ts';
import { Resync } from './resync.ts';

/** One change of an informer's cache; the cache already has it. */
export interface InformerChange {
  readonly type: 'added' | 'modified' | 'deleted';
  readonly object: KubeObject;
  /** The form before; undefined for `added`. */
  readonly previous: KubeObject | undefined;
}

export interface InformerOptions {
  readonly namespace?: string;
  readonly logger?: Logger;
}

/** Pause before a failed watch is begun again; doubled up to the second. */
const BACKOFF_MS = [50, 5000] as const;

/**
 * A cache of one kind, kept up to date by a watch over any store. Objects are kept as stored, also invalid ones; a
 * listener that throws is logged and harms neither the cache nor the other listeners. After a broken or expired watch
 * the listeners are told what differs. While the store is away the cache keeps what it has.
 */
export class Informer {
  readonly kind: string;
  /** Resolves when the cache holds everything that was there at the start. */
  readonly synced: Promise<void>;
  readonly #store: ObjectStore;
  readonly #namespace: string | undefined;
  readonly #logger: Logger;
  readonly #objects = new Map<string, KubeObject>();
  readonly #listeners = new Set<(change: InformerChange) => void>();
  readonly #abort = new AbortController();
  readonly #running: Promise<void>;
  #sorted: readonly KubeObject[] | null = null;
  #isSynced = false;
  #version = '0';

  constructor(store: ObjectStore, kind: string, options: InformerOptions = {}) {
    this.kind = kind;
    this.#store = store;
    this.#namespace = options.namespace;
    this.#logger = options.logger ?? silentLogger;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.synced = promise;
    this.#running = this.#run(resolve);
  }

  /** Whether {@link synced} has resolved. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** The version up to which the cache has seen everything. */
  get version(): string {
    return this.#version;
  }

  get size(): number {
    return this.#objects.size;
  }

  get(key: ObjectKey): KubeObject | undefined {
    return this.#objects.get(keyText(key.namespace, key.name));
  }

  /** The objects, ordered by namespace and name. */
  list(): readonly KubeObject[] {
    this.#sorted ??= [...this.#objects].sort(([a], [b]) => compareText(a, b)).map(([, object]) => object);
    return this.#sorted;
  }

  /** Calls back for every later change, in order; gives a function that ends it. */
  onChange(listener: (change: InformerChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #run(synced: () => void): Promise<void> {
    const { signal } = this.#abort;
    const resync = new Resync();
    let pause: number = BACKOFF_MS[0];
    while (!signal.aborted) {
      if (resync.version === undefined) {
        resync.restart();
      }
      const { version } = resync;
      const options = {
        signal,
        ...(this.#namespace === undefined ? {} : { namespace: this.#namespace }),
        ...(version === undefined ? {} : { resourceVersion: version }),
      };
      try {
        for await (const event of this.#store.watch(this.kind, options)) {
          pause = BACKOFF_MS[0];
          for (const change of resync.take(event)) {
            this.#absorb(change, synced);
          }
        }
      } catch (error) {
        if (isCoded(error, 'expired')) {
          resync.restart();
          continue;
        }
        if (!signal.aborted) {
          this.#logger.warn({ kind: this.kind, error: errorText(error) }, 'a watch failed and is begun again');
        }
      }
      await this.#sleep(pause);
      pause = Math.min(pause * 2, BACKOFF_MS[1]);
    }
  }

  #sleep(ms: number): Promise<void> {
    const { signal } = this.#abort;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, signal.aborted ? 0 : ms);
      signal.addEventListener(
        'abort',
        () => {
          clearTimeout(timer);
          resolve();
        },
        { once: true },
      );
    });
  }

  #absorb(event: WatchEvent, synced: () => void): void {
    if (event.type === 'bookmark') {
      this.#version = event.resourceVersion;
      this.#isSynced = true;
      synced();
      return;
    }
    const { type, object } = event;
    const { namespace, name } = refOf(object);
    const key = keyText(namespace, name);
    const previous = this.#objects.get(key);
    this.#version = object.metadata.resourceVersion ?? this.#version;
    this.#sorted = null;
    if (type === 'deleted') {
      this.#objects.delete(key);
    } else {
      this.#objects.set(key, object);
    }
    for (const listener of this.#listeners) {
      try {
        listener({ type, object, previous });
      } catch (error) {
        const fields = { object: refOf(object), error: errorText(error) };
        this.#logger.error(fields, 'a listener of the store failed');
      }
    }
  }

  /** Ends the watch; the cache stays readable. */
  async close(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }
}
