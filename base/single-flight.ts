/**
 * Joins concurrent calls for one key: the first starts `work`, the others share its promise. A finished flight is
 * forgotten, so the next call starts anew.
 */
export class SingleFlight<K, V> {
  readonly #flights = new Map<K, Promise<V>>();

  /** Keys with work under way. */
  get size(): number {
    return this.#flights.size;
  }

  /** Whether work for the key is under way. */
  has(key: K): boolean {
    return this.#flights.has(key);
  }

  run(key: K, work: () => Promise<V>): Promise<V> {
    const known = this.#flights.get(key);
    if (known !== undefined) {
      return known;
    }
    const flight = work().finally(() => {
      if (this.#flights.get(key) === flight) {
        this.#flights.delete(key);
      }
    });
    this.#flights.set(key, flight);
    return flight;
  }
}
