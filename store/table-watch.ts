import type { KubeObject } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import { expired, type History } from './history.ts';
import type { WatchEvent, WatchOptions } from './object-store.ts';

/** Wakes the watches of one kind. */
export class Signal {
  #next = Promise.withResolvers<void>();
  /** Counts the bookmarks asked for. */
  bookmarks = 0;
  closed: boolean;

  constructor(closed: boolean) {
    this.closed = closed;
  }

  /** Resolves at the next change, bookmark or the end. */
  get next(): Promise<void> {
    return this.#next.promise;
  }

  raise(): void {
    const { resolve } = this.#next;
    this.#next = Promise.withResolvers<void>();
    resolve();
  }

  bookmark(): void {
    this.bookmarks += 1;
    this.raise();
  }

  close(): void {
    this.closed = true;
    this.raise();
  }
}

/** What a watch reads from. */
export interface WatchSource {
  readonly history: History;
  readonly signal: Signal;
  /** The newest version of the whole store. */
  version(): number;
  /** What is there now. */
  present(): readonly KubeObject[];
}

/**
 * The events of one kind: what is there and then every change, or every change after a version. The list and the
 * position in the history are taken in one step, so nothing falls between them. Ends when aborted or closed; throws
 * `expired`.
 */
export async function* watchHistory(source: WatchSource, options: WatchOptions): AsyncGenerator<WatchEvent> {
  const { history, signal } = source;
  const abort = options.signal;
  const wake = (): void => signal.raise();
  abort?.addEventListener('abort', wake, { once: true });
  const ended = (): boolean => signal.closed || abort?.aborted === true;
  try {
    let position = start(source, options.resourceVersion);
    if (options.resourceVersion === undefined) {
      const version = source.version();
      for (const object of source.present()) {
        if (ended()) {
          return;
        }
        yield { type: 'added', object };
      }
      yield { type: 'bookmark', resourceVersion: String(version), initial: true };
    }
    let { bookmarks } = signal;
    while (!ended()) {
      const entry = history.at(position);
      if (entry !== undefined) {
        position += 1;
        if (options.namespace === undefined || entry.object.metadata.namespace === options.namespace) {
          yield { type: entry.type, object: entry.object };
        }
      } else if (bookmarks !== signal.bookmarks) {
        bookmarks = signal.bookmarks;
        yield { type: 'bookmark', resourceVersion: String(source.version()), initial: false };
      } else {
        await signal.next;
      }
    }
  } finally {
    abort?.removeEventListener('abort', wake);
  }
}

function start(source: WatchSource, resourceVersion: string | undefined): number {
  if (resourceVersion === undefined) {
    return source.history.end;
  }
  if (!/^(0|[1-9][0-9]{0,15})$/.test(resourceVersion)) {
    throw new CodedError('invalid', `resourceVersion: ${JSON.stringify(resourceVersion)} is not a version`);
  }
  const version = Number(resourceVersion);
  // A version from the future belongs to another life of the store.
  if (version > source.version()) {
    throw expired(resourceVersion);
  }
  return source.history.after(version);
}
