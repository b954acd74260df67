/**
 * The room `base/` holds what every other room stands on and knows nothing of the product:
 * redacted values, coded errors, clock, logger, metrics, addresses, regular expressions, canonical JSON.
 */
import { inspect } from 'node:util';

const PRINTED = '[redacted]';

/** A secret value. Every way of printing it gives `[redacted]`; only {@link reveal} hands the value out. */
export class Redacted<T = string> {
  readonly #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  /** The value itself. Call it as late as possible and never pass the result to a logger or an error. */
  reveal(): T {
    return this.#value;
  }

  toString(): string {
    return PRINTED;
  }

  toJSON(): string {
    return PRINTED;
  }

  [inspect.custom](): string {
    return PRINTED;
  }
}
