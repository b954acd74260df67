import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';

/** An address that was a sandbox's is nobody's for this long, so that no late request meets a stranger (D12). */
export const QUARANTINE_MS = 10 * 60_000;
/** 10.244.0.2 to 10.244.127.254, without `.0` and `.255` of any third part. */
const HIGHEST = 128 * 256;

/** The n-th address of the range and what else is numbered by it. */
export interface SandboxAddress {
  readonly index: number;
  readonly ipv4: string;
  readonly ipv6: string;
}

/** Gives out sandbox addresses in turn; the turn is kept in a file, so that it goes on after a restart. */
export class AddressPool {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #used = new Set<number>();
  readonly #released = new Map<number, number>();
  #last: number;

  private constructor(file: string, last: number, clock: Clock) {
    this.#file = file;
    this.#last = last;
    this.#clock = clock;
  }

  /** The pool of a directory, kept in `<folder>/last-address`. */
  static async open(folder: string, clock: Clock = systemClock): Promise<AddressPool> {
    const file = join(folder, 'last-address');
    const stored = Number(await readFile(file, 'utf8').catch(() => '1'));
    return new AddressPool(file, Number.isInteger(stored) && stored > 0 && stored < HIGHEST ? stored : 1, clock);
  }

  /** The next free address; throws `no-address` when none is free or out of quarantine. */
  async take(): Promise<SandboxAddress> {
    for (let step = 1; step <= HIGHEST; step += 1) {
      const index = (this.#last + step) % HIGHEST;
      if (this.#usable(index)) {
        this.#last = index;
        this.#used.add(index);
        this.#released.delete(index);
        await writeFile(this.#file, String(index), { mode: 0o600 });
        return addressOf(index);
      }
    }
    throw new CodedError('no-address', 'every sandbox address is in use or was a moment ago');
  }

  /** Gives an address back; it rests for {@link QUARANTINE_MS}. */
  release(address: SandboxAddress): void {
    if (this.#used.delete(address.index)) {
      this.#released.set(address.index, this.#clock.now());
    }
  }

  #usable(index: number): boolean {
    const low = index % 256;
    const rested = (this.#released.get(index) ?? Number.NEGATIVE_INFINITY) + QUARANTINE_MS <= this.#clock.now();
    return index >= 2 && low !== 0 && low !== 255 && !this.#used.has(index) && rested;
  }
}

function addressOf(index: number): SandboxAddress {
  return {
    index,
    ipv4: `10.244.${Math.floor(index / 256)}.${index % 256}`,
    ipv6: `fd53:6174:6e64::${index.toString(16)}`,
  };
}
