import { access, constants, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { kindNamed } from '../api/kinds.ts';
import { isDnsSubdomain } from '../api/names.ts';
import { joinHostPort } from '../base/addresses.ts';
import { CodedError, errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { keepSmall } from '../base/memory.ts';
import { findEnvoy } from '../envoy/find.ts';
import { replacePrivate } from '../identity/files.ts';
import { openPki } from '../identity/pki-directory.ts';
import { createLayout, type Layout, layoutOf, recordRunningPlane } from '../local/layout.ts';
import { openNode } from '../local/node-namespace.ts';
import { startRelay } from '../local/relay.ts';
import { readSettings, type Settings } from '../local/settings.ts';
import { publicRoots } from '../local/trust-bundle.ts';
import { type DirectoryStore, openDirectoryStore } from '../store/directory.ts';
import { serveStore } from '../store/socket-server.ts';
import { writeAdminRecord } from './admin-record.ts';
import { parseAdminAddress, startAdminServer } from './admin-server.ts';
import { startComponents } from './components.ts';
import { writePlaneRecord } from './plane-record.ts';
import type { RoleName } from './roles/names.ts';
import { originCaFile } from './roles/role.ts';
import { watchSettings } from './settings-watch.ts';

export interface UpOptions {
  readonly dir: string;
  readonly domain?: string;
  readonly ingress: { readonly host: string; readonly port: number };
  readonly admin?: string;
  readonly without: readonly string[];
  readonly json: boolean;
  /** Called once everything runs, with the port that the ingress has. */
  readonly whenReady?: (plane: { readonly port: number }) => void;
}

/** What is undone at the end, last begun first ended. */
type Undo = readonly [what: string, undo: () => Promise<unknown>];

/**
 * Runs local mode until SIGINT or SIGTERM (D32): store, node namespace, relays and admin API in this process, every
 * role as a child that is restarted with back-off. Prints a line per component and `ready` last, when sandboxes can be
 * served: the control plane has published and both gateways listen. Whatever ends it, no process, namespace, mount or
 * socket stays: its children die with it, and the next `up` removes what a kill left. Throws a coded error when it
 * cannot start: `already-running`, `address-in-use`, `no-namespaces`, `missing-tools`, `envoy-…`, `invalid` (settings),
 * `not-ready`.
 */
export async function runUp(options: UpOptions, logger: Logger): Promise<void> {
  keepSmall();
  const undo: Undo[] = [];
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => end());
  }
  const say = printer(options.json);
  try {
    const starting = start(options, { logger, say, undo, ended });
    await Promise.race([starting, ended]);
    await ended;
    await starting.catch(() => {});
  } finally {
    await unwind(undo, logger);
  }
  process.exit(0);
}

type Say = (component: string, text: string, fields?: object) => void;

function printer(json: boolean): Say {
  return (component, text, fields = {}) => {
    process.stdout.write(
      json ? `${JSON.stringify({ component, state: text, ...fields })}\n` : `${component}: ${text}\n`,
    );
  };
}

async function unwind(undo: Undo[], logger: Logger): Promise<void> {
  for (let last = undo.pop(); last !== undefined; last = undo.pop()) {
    const [what, work] = last;
    await work().catch((error: unknown) =>
      logger.warn({ what, error: errorText(error) }, 'could not be ended in order'),
    );
  }
}

/** What the steps of a start share. */
interface Starting {
  readonly logger: Logger;
  readonly say: Say;
  readonly undo: Undo[];
  /** Resolves when the plane is told to end, also while it is starting. */
  readonly ended: Promise<void>;
}

async function start(options: UpOptions, starting: Starting): Promise<void> {
  const { logger, say, undo, ended } = starting;
  const layout = layoutOf(options.dir);
  await mkdir(layout.dir, { recursive: true });
  await createLayout(layout);
  const settings = await readSettings(layout.dir);
  const domain = domainOf(options, settings);
  const adminAddress = parseAdminAddress(options.admin ?? `unix:${layout.socket('admin')}`);
  // Before anything that a plane which runs here already has made: it takes the directory's lock.
  const store = await openStore(layout, logger, undo);
  undo.push(['sockets', () => removeSockets(layout)]);
  const relay = await startRelay({ ...options.ingress, socketPath: layout.socket('ingress') });
  undo.push(['ingress relay', () => relay.close()]);
  const binary = await findEnvoy({ onProgress: (text) => say('envoy', text.replace(/^envoy: /, '')) });
  const node = await openNode(layout);
  undo.push(['node namespace', () => node.close()]);
  say('node', `namespaces ${node.byRoot ? 'of root' : 'of an ordinary user'}: each sandbox is isolated`);
  say('images', 'container images are not pulled: commands run from the programs of this machine');
  await startStoreServer(store, layout, starting);
  const pki = await openPki(layout.pki);
  await writeOriginRoots(layout, settings);
  await writePlaneRecord(layout, { ingress: { host: options.ingress.host, port: relay.port }, domain });
  const onTrouble = (name: RoleName, state: 'failing' | 'running') => {
    const text = state === 'failing' ? 'ends again and again; the log says why' : 'is well again';
    logger.error({ component: name }, `${name} ${text}`);
    say(name, text);
  };
  const parts = { without: options.without, layout, pki, binary, node, logger, onTrouble };
  const components = await startComponents(parts, (component) => {
    undo.push([component.name, () => component.stop()]);
  });
  const admin = await startAdminServer({
    ...{ address: adminAddress, layout, store, logger },
    components: () => components.map(({ name, state, pid, restarts }) => ({ name, state, pid, restarts })),
  });
  undo.push(['admin API', () => admin.close()]);
  undo.push(['record of the admin API', await writeAdminRecord(layout, admin)]);
  const stopWatching = watchSettings(layout, settings, logger);
  undo.push(['settings', async () => stopWatching()]);
  undo.push(['record of the plane', await recordRunningPlane(layout)]);
  const ready = Promise.all(
    components.map(async (component) => {
      await component.ready();
      say(component.name, 'running', { pid: component.pid });
    }),
  );
  if ((await Promise.race([ready.then(() => 'ready'), ended])) !== 'ready') {
    return;
  }
  const ingress = joinHostPort(options.ingress.host, relay.port);
  if (options.json) {
    const line = { ready: true, ingress, api: null, admin: admin.address, domain };
    process.stdout.write(`${JSON.stringify(line)}\n`);
  } else {
    say('ingress', `http://<port>-<sandbox>.${domain}:${relay.port}`);
    say('admin', admin.address);
    process.stdout.write('ready\n');
  }
  options.whenReady?.({ port: relay.port });
}

/** Envoy leaves the sockets that it listened on. */
async function removeSockets({ run }: Layout): Promise<void> {
  const names = (await readdir(run)).filter((name) => name.endsWith('.sock'));
  await Promise.all(names.map((name) => rm(join(run, name), { force: true })));
}

/** `--domain` wins over the settings. Throws `usage`. */
function domainOf(options: UpOptions, settings: Settings): string {
  const domain = options.domain?.toLowerCase() ?? settings.domain;
  if (!isDnsSubdomain(domain)) {
    throw new CodedError('usage', `--domain ${domain}: must be a DNS name`);
  }
  return domain;
}

/** Opens the store, which one process at a time can. Throws `already-running`. */
async function openStore(layout: Layout, logger: Logger, undo: Undo[]): Promise<DirectoryStore> {
  try {
    const store = await openDirectoryStore(layout.dir, { kinds: kindNamed, logger });
    undo.push(['store', () => store.close()]);
    return store;
  } catch (error) {
    if (isCoded(error, 'locked')) {
      const text = `the plane of ${layout.dir} is running already: ${error.message}`;
      throw new CodedError('already-running', text, { cause: error });
    }
    throw error;
  }
}

async function startStoreServer(store: DirectoryStore, layout: Layout, { logger, say, undo }: Starting): Promise<void> {
  const server = await serveStore({
    store,
    path: layout.socket('store'),
    incarnation: store.incarnation,
    logger,
  });
  undo.push(['store socket', () => server.close()]);
  const report = () => {
    for (const { file, message } of store.problems()) {
      logger.warn({ file }, message);
    }
  };
  report();
  store.onProblems(report);
  say('store', layout.dir);
}

/** Public roots and the settings' `trust`: what the gateway verifies origins with (D21). */
async function writeOriginRoots(layout: Layout, settings: Settings): Promise<void> {
  const parts = [await publicRoots()];
  for (const file of settings.trust) {
    await access(file, constants.R_OK).catch(() => {
      throw new CodedError('invalid', `${layout.settingsFile}: trust: ${file} cannot be read`);
    });
    parts.push(await readFile(file, 'utf8'));
  }
  await replacePrivate(originCaFile(layout), `${parts.map((part) => part.trim()).join('\n')}\n`);
}
