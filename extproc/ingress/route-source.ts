import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import { Informer } from '../../store/informer.ts';
import type { ObjectStore } from '../../store/object-store.ts';
import { type RouteRecord, RouteTable } from '../../world/routes.ts';
import type { RouteSource } from './wake.ts';

/** Routes that follow the Sandboxes of a store. */
export interface StoreRoutes extends RouteSource {
  readonly table: RouteTable;
  /** Resolves when every sandbox that was there at the start is known. */
  readonly synced: Promise<void>;
  readonly isSynced: boolean;
  close(): Promise<void>;
}

/** Keeps a route table up to date with the Sandboxes of a store; while the store is away the routes stay. */
export function followRoutes(
  store: ObjectStore,
  options: { readonly clock: Clock; readonly logger: Logger },
): StoreRoutes {
  const table = new RouteTable(options.clock);
  const listeners = new Set<(uid: string) => void>();
  const informer = new Informer(store, 'Sandbox', { logger: options.logger });
  informer.onChange(({ type, object, previous }) => {
    if (previous !== undefined && previous.metadata.uid !== object.metadata.uid) {
      table.delete(previous);
    }
    if (type === 'deleted') {
      table.delete(object);
    } else {
      table.set(object);
    }
    for (const listener of [...listeners]) {
      listener(object.metadata.uid ?? '');
    }
  });
  return {
    table,
    synced: informer.synced,
    get isSynced() {
      return informer.isSynced;
    },
    byUid: (uid): RouteRecord | undefined => table.byUid(uid),
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close: () => informer.close(),
  };
}
