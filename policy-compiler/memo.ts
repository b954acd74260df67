/**
 * Keeps results by key from one compilation to the next. What a compilation did not ask for is forgotten at its end, so
 * the memory follows the world.
 */
export class Memo<V> {
  #current = new Map<string, V>();
  #previous = new Map<string, V>();

  /** The value for the key, made when neither this nor the last compilation had it. `make` must be a pure function. */
  get(key: string, make: () => V): V {
    let value = this.#current.get(key);
    if (value === undefined) {
      value = this.#previous.get(key) ?? make();
      this.#current.set(key, value);
    }
    return value;
  }

  /** Ends a compilation. */
  turn(): void {
    this.#previous = this.#current;
    this.#current = new Map();
  }

  /** Forgets everything. */
  clear(): void {
    this.#previous = new Map();
    this.#current = new Map();
  }
}
