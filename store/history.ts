import type { KubeObject } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';

/** One change of one kind's collection; `version` is the resource version that it made. */
export interface HistoryEntry {
  readonly version: number;
  readonly type: 'added' | 'modified' | 'deleted';
  readonly object: KubeObject;
}

/**
 * The recent changes of one kind. A watch holds only a position in it, so a slow reader costs no memory: one that falls
 * behind the oldest entry gets `expired` and lists again. Every kind has its own history, so that a busy kind does not
 * expire the watches of a quiet one.
 */
export class History {
  #entries: HistoryEntry[] = [];
  /** Position of `#entries[0]`, counted from the beginning. */
  #first = 0;
  /** The version before the oldest entry: a watch from an earlier one has missed something. */
  #floor: number;
  readonly #capacity: number;

  constructor(floor: number, capacity: number) {
    this.#floor = floor;
    this.#capacity = capacity;
  }

  /** The position after the newest entry. */
  get end(): number {
    return this.#first + this.#entries.length;
  }

  /** Keeps at least `capacity` entries, and twice `present` so that one change of every present object fits. */
  append(entry: HistoryEntry, present: number): void {
    this.#entries.push(entry);
    const keep = this.#capacity < 64 ? this.#capacity : Math.max(this.#capacity, present * 2);
    // Dropped in blocks: shifting a long array for every change would be quadratic.
    if (this.#entries.length > keep + (keep >> 2)) {
      const dropped = this.#entries.length - keep;
      this.#floor = this.#entries[dropped - 1]!.version;
      this.#entries = this.#entries.slice(dropped);
      this.#first += dropped;
    }
  }

  /** The position of the first change after a version; throws `expired`. */
  after(version: number): number {
    if (version < this.#floor) {
      throw expired(version);
    }
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#entries[middle]!.version <= version) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return this.#first + low;
  }

  /** The entry at a position, undefined at the end; throws `expired` when it is gone. */
  at(position: number): HistoryEntry | undefined {
    if (position < this.#first) {
      throw expired(this.#floor);
    }
    return this.#entries[position - this.#first];
  }
}

/** The error of a watch that must list again. */
export function expired(version: number | string): CodedError {
  return new CodedError('expired', `the history after version ${version} is gone: list again`);
}
