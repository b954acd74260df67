import { stat } from 'node:fs/promises';
import { kindNamed } from '../api/kinds.ts';
import { systemClock } from '../base/clock.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import { silentLogger } from '../base/logger.ts';
import { layoutOf, planeDirectory } from '../local/layout.ts';
import { openDirectoryStore } from '../store/directory.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { SocketStore } from '../store/socket-client.ts';

/** The plane that a command speaks to (D16). */
export interface Target {
  readonly dir: string;
  /** Whether an `up` runs in the directory. */
  readonly isRunning: boolean;
}

/** Finds the plane of a command: `--dir`, else what `planeDirectory` finds. */
export async function findTarget(dir: string | undefined): Promise<Target> {
  const found = await planeDirectory(dir);
  return { dir: found, isRunning: await isRunning(found) };
}

async function isRunning(dir: string): Promise<boolean> {
  const store = new SocketStore({ path: layoutOf(dir).socket('store'), callTimeoutMs: 300 });
  try {
    await store.list('ConfigMap', { namespace: 'default' });
    return true;
  } catch (error) {
    if (isCoded(error, 'unavailable')) {
      return false;
    }
    throw error;
  } finally {
    await store.close();
  }
}

/** The store of a target: the running plane's, or the directory itself with its lock while nothing runs. */
export async function openStore({ dir, isRunning: running }: Target): Promise<ObjectStore> {
  if (running) {
    return new SocketStore({ path: layoutOf(dir).socket('store') });
  }
  if ((await stat(dir).catch(() => null))?.isDirectory() !== true) {
    throw new CodedError('not-found', `there is no directory ${dir}`);
  }
  return openDirectoryStore(dir, { kinds: kindNamed, clock: systemClock, logger: silentLogger });
}

/** Runs work with the store of a target and closes it. */
export async function withStore<T>(target: Target, work: (store: ObjectStore) => Promise<T>): Promise<T> {
  const store = await openStore(target);
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** Fails unless a plane runs there. */
export function requireRunning({ dir, isRunning: running }: Target): void {
  if (!running) {
    throw new CodedError('unavailable', `no plane is running in ${dir}: start it with sandgate up --dir ${dir}`);
  }
}
