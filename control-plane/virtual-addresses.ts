import { errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { allocateVirtualAddresses, readVirtualAddresses, VIRTUAL_ADDRESSES } from '../world/virtual-addresses.ts';

/**
 * Gives every listed name a virtual address, kept in a ConfigMap and written by compare-and-swap, so that several
 * control planes never give one address to two names (D4). The world sees the ConfigMap change and is compiled again.
 */
export class VirtualAddressAllocator {
  readonly #store: ObjectStore;
  readonly #namespace: string;
  readonly #logger: Logger;
  #running: Promise<void> | null = null;
  #wanted: readonly string[] = [];

  constructor(store: ObjectStore, namespace: string, logger: Logger) {
    this.#store = store;
    this.#namespace = namespace;
    this.#logger = logger;
  }

  /** Allocates what is missing; calls that come while it works are joined into one more round. */
  ensure(names: readonly string[], known: Readonly<Record<string, string>>): void {
    if (names.every((name) => Object.hasOwn(known, name))) {
      return;
    }
    this.#wanted = names;
    this.#running ??= this.#round().finally(() => {
      this.#running = null;
    });
  }

  async #round(): Promise<void> {
    let done: readonly string[] = [];
    for (let attempt = 0; attempt < 10 && done !== this.#wanted; attempt += 1) {
      const names = this.#wanted;
      try {
        await this.#allocate(names);
        done = names;
      } catch (error) {
        if (!isCoded(error, 'conflict') && !isCoded(error, 'already-exists')) {
          this.#logger.error({ error: errorText(error) }, 'virtual addresses could not be allocated');
          return;
        }
      }
    }
  }

  async #allocate(names: readonly string[]): Promise<void> {
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
