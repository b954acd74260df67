import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import type { WatchEvent } from './object-store.ts';
import { keyText } from './object-table.ts';

/**
 * Joins the watches that follow each other when a connection breaks or a version expires into one stream without gaps
 * or repetitions. It knows what has been told; a watch that begins anew (all objects, then an initial bookmark) is
 * turned into what differs, deletions included.
 */
export class Resync {
  readonly #known = new Map<string, KubeObject>();
  #seen: Set<string> | null = new Set();
  #version: string | undefined;
  #told = false;

  /** The version from which the next watch should go on; undefined: begin anew. */
  get version(): string | undefined {
    return this.#seen === null ? this.#version : undefined;
  }

  /** The version has expired, or the first list was cut off: the next watch begins anew. */
  restart(): void {
    this.#seen = new Set();
    this.#version = undefined;
  }

  /** What one event of the current watch means to whoever follows. */
  take(event: WatchEvent): WatchEvent[] {
    if (event.type === 'bookmark') {
      return this.#bookmark(event.resourceVersion, event.initial);
    }
    const { object } = event;
    const { namespace, name } = refOf(object);
    const key = keyText(namespace, name);
    const known = this.#known.get(key);
    this.#seen?.add(key);
    if (this.#seen === null) {
      this.#version = object.metadata.resourceVersion;
    }
    if (event.type === 'deleted') {
      this.#known.delete(key);
      return known === undefined ? [] : [event];
    }
    this.#known.set(key, object);
    if (known === undefined) {
      return [{ type: 'added', object }];
    }
    if (known.metadata.resourceVersion === object.metadata.resourceVersion) {
      return [];
    }
    if (known.metadata.uid !== object.metadata.uid) {
      return [
        { type: 'deleted', object: known },
        { type: 'added', object },
      ];
    }
    return [{ type: 'modified', object }];
  }

  #bookmark(resourceVersion: string, initial: boolean): WatchEvent[] {
    this.#version = resourceVersion;
    const events: WatchEvent[] = [];
    if (initial && this.#seen !== null) {
      for (const [key, object] of this.#known) {
        if (!this.#seen.has(key)) {
          this.#known.delete(key);
          events.push({ type: 'deleted', object });
        }
      }
      this.#seen = null;
    }
    events.push({ type: 'bookmark', resourceVersion, initial: !this.#told });
    this.#told = true;
    return events;
  }
}
