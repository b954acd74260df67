import { flushCompileCache } from 'node:module';
import { join } from 'node:path';
import { errorText } from '../../base/errors.ts';
import { createLogger, type Logger } from '../../base/logger.ts';
import { keepSmall } from '../../base/memory.ts';
import { type Layout, layoutOf, planeDirectory } from '../../local/layout.ts';
import { readSettings, type Settings } from '../../local/settings.ts';
import type { ObjectStore } from '../../store/object-store.ts';
import { SocketStore } from '../../store/socket-client.ts';

/** Namespace of the control plane's own objects. */
export const ROOT_NAMESPACE = 'sandbox-system';

/** File of the roots by which the egress gateway verifies origins: public roots and the settings' `trust`. */
export function originCaFile(layout: Layout): string {
  return join(layout.run, 'origin-roots.pem');
}

/** What every role of a plane needs. */
export interface RoleContext {
  readonly layout: Layout;
  readonly settings: Settings;
  readonly store: ObjectStore;
  readonly logger: Logger;
  /** Says that the role does its work. */
  ready(): void;
}

/**
 * Runs one role of a plane in this process until SIGTERM or SIGINT, then `stop`s it and ends the process. A role that
 * cannot start ends with status 1; whoever started it tries again.
 */
export async function runRole(
  name: string,
  options: { readonly dir?: string },
  start: (context: RoleContext) => Promise<() => Promise<void>>,
): Promise<void> {
  const logger = createLogger(name);
  keepSmall();
  const layout = layoutOf(await planeDirectory(options.dir));
  const store = new SocketStore({ path: layout.socket('store'), logger });
  const context: RoleContext = {
    layout,
    settings: await readSettings(layout.dir),
    store,
    logger,
    ready() {
      process.stdout.write('{"ready":true}\n');
      // Now and not at its end, which a process that is killed does not see.
      flushCompileCache();
    },
  };
  const stop = await start(context).catch((error: unknown) => {
    logger.error({ error: errorText(error) }, 'this role could not start');
    process.exit(1); // Whatever it has begun would keep the process alive, doing nothing.
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.once(signal, () => resolve());
  }
  await promise;
  await stop();
  await store.close();
  process.exit(0);
}

/** How often the settings file is read again, milliseconds. */
const SETTINGS_MS = 1000;

/** Calls back with the settings again and again, so that an edit takes effect; a broken file changes nothing. */
export function followSettings(layout: Layout, use: (settings: Settings) => void): () => void {
  const timer = setInterval(() => {
    readSettings(layout.dir).then(use, () => {}); // `up` reports what is wrong with the file.
  }, SETTINGS_MS);
  return () => clearInterval(timer);
}
