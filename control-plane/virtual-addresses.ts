import { CodedError, errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { allocateVirtualAddresses, readVirtualAddresses, VIRTUAL_ADDRESSES } from '../world/virtual-addresses.ts';

/** Other writers that come first are met by reading again, this often in a row. */
const ATTEMPTS = 10;
/** Pause before another try, milliseconds; doubled up to a minute. */
const RETRY_MS = 1000;
const LONGEST_RETRY_MS = 60_000;

/**
 * Gives every listed name a virtual address, kept in a ConfigMap and written by compare-and-swap, so that several
 * control planes never give one address to two names (D4). The world sees the ConfigMap change and is compiled again.
 * What fails is said and tried again; until then the name has no address, and the sandbox does not reach it.
 */
export class VirtualAddressAllocator {
  readonly #store: ObjectStore;
  readonly #namespace: string;
  readonly #logger: Logger;
  readonly #retryMs: number;
  #running: Promise<void> | null = null;
  #retry: NodeJS.Timeout | null = null;
  #wanted: readonly string[] = [];
  #failures = 0;
  #closed = false;

  constructor(store: ObjectStore, namespace: string, logger: Logger, retryMs = RETRY_MS) {
    this.#store = store;
    this.#namespace = namespace;
    this.#logger = logger;
    this.#retryMs = retryMs;
  }

  /** Allocates what is missing; calls that come while it works are joined into one more round. */
  ensure(names: readonly string[], known: Readonly<Record<string, string>>): void {
    if (!names.every((name) => Object.hasOwn(known, name))) {
      this.#wanted = names;
      this.#start();
    }
  }

  /** Resolves when nothing is being written any more, and nothing will be. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry ?? undefined);
    await this.#running;
  }

  #start(): void {
    if (!this.#closed) {
      this.#running ??= this.#work().finally(() => {
        this.#running = null;
      });
    }
  }

  async #work(): Promise<void> {
    try {
      for (let names: readonly string[] = []; names !== this.#wanted && !this.#closed; ) {
        names = this.#wanted;
        await this.#allocate(names);
      }
      this.#failures = 0;
    } catch (error) {
      this.#logger.error({ error: errorText(error) }, 'virtual addresses could not be allocated; it is tried again');
      clearTimeout(this.#retry ?? undefined);
      const pause = Math.min(this.#retryMs * 2 ** this.#failures, LONGEST_RETRY_MS);
      this.#failures += 1;
      this.#retry = setTimeout(() => this.#start(), pause);
    }
  }

  async #allocate(names: readonly string[]): Promise<void> {
    for (let attempt = 0; attempt < ATTEMPTS && !this.#closed; attempt += 1) {
      try {
        return await this.#swap(names);
      } catch (error) {
        if (!isCoded(error, 'conflict') && !isCoded(error, 'already-exists')) {
          throw error;
        }
      }
    }
    throw new CodedError('conflict', `another writer was faster ${ATTEMPTS} times`);
  }

  async #swap(names: readonly string[]): Promise<void> {
    const key = { namespace: this.#namespace, name: VIRTUAL_ADDRESSES };
    const stored = await this.#store.get('ConfigMap', key).catch((error: unknown) => {
      if (isCoded(error, 'not-found')) {
        return undefined;
      }
      throw error;
    });
    const known = readVirtualAddresses(stored);
    const data = allocateVirtualAddresses(known, names);
    if (stored === undefined) {
      const labels = { 'app.kubernetes.io/managed-by': 'sandgate' };
      await this.#store.create({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { ...key, labels }, data });
    } else if (data !== known) {
      await this.#store.replace({ ...stored, data });
    }
  }
}
