import { stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { kindNamed } from '../api/kinds.ts';
import { systemClock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';
import { silentLogger } from '../base/logger.ts';
import { layoutOf, planeDirectory } from '../local/layout.ts';
import { openDirectoryStore } from '../store/directory.ts';
import { ManifestStore } from '../store/manifest-store.ts';
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

/** Whether a process listens. A busy one counts: a slow plane must never be taken for an absent one. */
function isRunning(dir: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(layoutOf(dir).socket('store'));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EAGAIN') {
        resolve(true);
      } else if (['ENOENT', 'ENOTDIR', 'ECONNREFUSED'].includes(error.code ?? '')) {
        resolve(false);
      } else {
        reject(new CodedError('unavailable', `the plane in ${dir} cannot be reached: ${error.message}`));
      }
    });
  });
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
  return closing(await openStore(target), work);
}

/** The same for work that only reads: a directory that never had a plane is read as it is, and nothing is written (D16). */
export async function withReadStore<T>(target: Target, work: (store: ObjectStore) => Promise<T>): Promise<T> {
  const isPlain = !target.isRunning && (await stat(layoutOf(target.dir).state).catch(() => null)) === null;
  return closing(isPlain ? new ManifestStore(target.dir, kindNamed) : await openStore(target), work);
}

async function closing<T>(store: ObjectStore, work: (store: ObjectStore) => Promise<T>): Promise<T> {
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
