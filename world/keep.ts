/**
 * Keeps what was made from unchanged inputs as the same object, from one state of the world to the next: the compiler
 * remembers its results by object, so a small change must not make everything new.
 */
import { sameItems } from '../base/items.ts';

/**
 * One value, made anew only when an input is another object (or primitive) than last time. When it then equals the one
 * before, that one stays.
 */
export class Kept<I extends readonly unknown[], V> {
  readonly #isEqual: (a: V, b: V) => boolean;
  #inputs: I | null = null;
  #value: V | undefined;

  constructor(isEqual: (a: V, b: V) => boolean = Object.is) {
    this.#isEqual = isEqual;
  }

  get(inputs: I, make: (...inputs: I) => V): V {
    if (this.#inputs === null || !sameItems(this.#inputs, inputs)) {
      const made = make(...inputs);
      this.#value = this.#inputs !== null && this.#isEqual(this.#value as V, made) ? this.#value : made;
      this.#inputs = inputs;
    }
    return this.#value as V;
  }
}

/**
 * One value per key. A value whose inputs are other objects is made anew, but when it equals the one before, that one
 * stays. Keys that a round did not ask for are forgotten at its end.
 */
export class KeptByKey<V extends object> {
  #current = new Map<string, { readonly inputs: readonly unknown[]; readonly value: V }>();
  #previous = this.#current;
  readonly #isEqual: (a: V, b: V) => boolean;

  constructor(isEqual: (a: V, b: V) => boolean) {
    this.#isEqual = isEqual;
  }

  get(key: string, inputs: readonly unknown[], make: () => V): V {
    const known = this.#previous.get(key);
    if (known !== undefined && sameItems(known.inputs, inputs)) {
      this.#current.set(key, known);
      return known.value;
    }
    const made = make();
    const value = known !== undefined && this.#isEqual(known.value, made) ? known.value : made;
    this.#current.set(key, { inputs, value });
    return value;
  }

  /** Begins a round. */
  turn(): void {
    this.#previous = this.#current;
    this.#current = new Map();
  }
}

/** Whether two records have the same objects under the same names, in the same order. */
export function sameMembers(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>): boolean {
  return sameItems(Object.keys(a), Object.keys(b)) && sameItems(Object.values(a), Object.values(b));
}
