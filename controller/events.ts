import { LRUCache } from 'lru-cache';
import { type ObjectRef, refText } from '../api/object.ts';
import type { Logger } from '../base/logger.ts';

/** Something about one object that a person should see. */
export interface ObjectEvent {
  /** One CamelCase word, e.g. `PodOwnerMismatch`. */
  readonly reason: string;
  readonly message: string;
  readonly warning?: boolean;
}

/** Writes events as log lines; the same event of one object is not repeated until another one of it came. */
export class EventLog {
  readonly #logger: Logger;
  readonly #last = new LRUCache<string, string>({ max: 10_000 });

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  record(ref: ObjectRef, event: ObjectEvent): void {
    const key = refText(ref);
    const text = `${event.reason}: ${event.message}`;
    if (this.#last.get(key) === text) {
      return;
    }
    this.#last.set(key, text);
    const level = event.warning === true ? 'warn' : 'info';
    this.#logger[level]({ object: key, event: event.reason }, event.message);
  }
}
