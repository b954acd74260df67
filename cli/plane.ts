import { access, constants, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { kindNamed } from '../api/kinds.ts';
import { joinHostPort } from '../base/addresses.ts';
import { CodedError, errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { findEnvoy } from '../envoy/find.ts';
import type { EnvoyProcess } from '../envoy/supervise.ts';
import { replacePrivate } from '../identity/files.ts';
import { openPki, type Pki } from '../identity/pki-directory.ts';
import { createLayout, type Layout, layoutOf, recordRunningPlane } from '../local/layout.ts';
import { type NodeNamespace, openNode } from '../local/node-namespace.ts';
import { startRelay } from '../local/relay.ts';
import { readSettings, type Settings } from '../local/settings.ts';
import { publicRoots } from '../local/trust-bundle.ts';
import { type DirectoryStore, openDirectoryStore } from '../store/directory.ts';
import { serveStore } from '../store/socket-server.ts';
import { parseAdminAddress, startAdminServer } from './admin-server.ts';
import { Child } from './child-process.ts';
import { startGateway } from './gateways.ts';
import { writePlaneRecord } from './plane-record.ts';
import type { RoleName } from './roles/names.ts';
import { originCaFile } from './roles/role.ts';

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

const READY_MS = 60_000;

/**
 * Runs local mode until SIGINT or SIGTERM (D32): store, node namespace, relays and admin API in this process, every
 * role as a child that is restarted with back-off. Prints a line per component and `ready` last. Whatever ends it, no
 * process, namespace, mount or socket stays: its children die with it, and the next `up` removes what a kill left.
 */
export async function runUp(options: UpOptions, logger: Logger): Promise<void> {
  const undo: Undo[] = [];
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => end());
  }
  const say = printer(options.json);
  try {
    const starting = start(options, logger, say, undo);
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

async function start(options: UpOptions, logger: Logger, say: Say, undo: Undo[]): Promise<void> {
  const layout = layoutOf(options.dir);
  await mkdir(layout.dir, { recursive: true });
  await createLayout(layout);
  undo.push(['sockets', () => removeSockets(layout)]);
  const settings = await effectiveSettings(layout, options.domain);
  const binary = await findEnvoy({ onProgress: (text) => say('envoy', text.replace(/^envoy: /, '')) });
  const node = await openNode(layout);
  undo.push(['node namespace', () => node.close()]);
  say('node', `namespaces ${node.byRoot ? 'of root' : 'of an ordinary user'}: each sandbox is isolated`);
  say('images', 'container images are not pulled: commands run from the programs of this machine');
  const store = await startStore(layout, logger, say, undo);
  const pki = await openPki(layout.pki);
  await writeOriginRoots(layout, settings);
  const relay = await startRelay({ ...options.ingress, socketPath: layout.socket('ingress') });
  undo.push(['ingress relay', () => relay.close()]);
  await writePlaneRecord(layout, { ingress: { host: options.ingress.host, port: relay.port } });
  const components = await startComponents({ options, layout, pki, binary, node, logger, undo });
  const admin = await startAdminServer({
    address: parseAdminAddress(options.admin ?? `unix:${layout.socket('admin')}`),
    layout,
    store,
    components: () => components.map(({ name, pid, restarts }) => ({ name, pid: pid(), restarts: restarts() })),
    logger,
  });
  undo.push(['admin API', () => admin.close()]);
  const forget = await recordRunningPlane(layout);
  undo.push(['record of the plane', forget]);
  await Promise.all(
    components.map(async ({ name, ready, pid }) => {
      await ready();
      say(name, 'running', { pid: pid() });
    }),
  );
  const ingress = joinHostPort(options.ingress.host, relay.port);
  if (admin.token !== null) {
    await replacePrivate(join(layout.run, 'admin.token'), admin.token.reveal());
  }
  if (options.json) {
    process.stdout.write(
      `${JSON.stringify({ ready: true, ingress, api: null, admin: admin.address, domain: settings.domain })}\n`,
    );
  } else {
    say('ingress', `http://<port>-<sandbox>.${settings.domain}:${relay.port}`);
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

async function effectiveSettings(layout: Layout, domain: string | undefined): Promise<Settings> {
  const settings = await readSettings(layout.dir);
  if (domain !== undefined && domain.toLowerCase() !== settings.domain) {
    throw new CodedError(
      'usage',
      `--domain ${domain} differs from ${layout.settingsFile}, which says ${settings.domain}: change it there`,
    );
  }
  return settings;
}

async function startStore(layout: Layout, logger: Logger, say: Say, undo: Undo[]): Promise<DirectoryStore> {
  const store = await openDirectoryStore(layout.dir, { kinds: kindNamed, logger });
  undo.push(['store', () => store.close()]);
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
  return store;
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

/** One process of the plane. */
interface Component {
  readonly name: RoleName;
  pid(): number | null;
  restarts(): number;
  ready(): Promise<void>;
}

interface Plane {
  readonly options: UpOptions;
  readonly layout: Layout;
  readonly pki: Pki;
  readonly binary: string;
  readonly node: NodeNamespace;
  readonly logger: Logger;
  readonly undo: Undo[];
}

async function startComponents(plane: Plane): Promise<readonly Component[]> {
  const { options, node } = plane;
  const wanted = (role: RoleName) => !options.without.includes(role);
  const inNode = (argv: readonly string[]) => node.wrap(argv);
  const components: Component[] = [];
  for (const role of ['control-plane', 'egress-processor', 'ingress-processor'] as const) {
    if (wanted(role)) {
      components.push(startChild(plane, role, role === 'ingress-processor' ? inNode : undefined));
    }
  }
  for (const role of ['egress', 'ingress'] as const) {
    if (wanted(`${role}-gateway`)) {
      const { layout, pki, binary, logger, undo } = plane;
      const wrap = role === 'ingress' ? { wrap: inNode } : {};
      const envoy = await startGateway({ role, layout, pki, binary, logger, concurrency: 1, ...wrap });
      undo.push([`${role} gateway`, () => envoy.stop()]);
      components.push(envoyComponent(`${role}-gateway`, envoy));
    }
  }
  if (wanted('controller')) {
    components.push(startChild(plane, 'controller'));
  }
  return components;
}

function startChild(
  { layout, logger, undo }: Plane,
  role: RoleName,
  wrap?: (argv: readonly string[]) => readonly string[],
): Component {
  const main = join(import.meta.dirname, 'main.ts');
  const child = new Child({
    name: role,
    argv: [process.execPath, '--max-semi-space-size=4', main, role, '--dir', layout.dir],
    logger,
    graceMs: role === 'controller' ? 15_000 : 5000,
    ...(wrap === undefined ? {} : { wrap }),
  });
  undo.push([role, () => child.stop()]);
  return {
    name: role,
    pid: () => child.pid ?? null,
    restarts: () => child.restarts,
    ready: () => child.ready(READY_MS),
  };
}

function envoyComponent(name: RoleName, envoy: EnvoyProcess): Component {
  return { name, pid: () => envoy.pid, restarts: () => envoy.restarts, ready: () => envoy.ready(READY_MS) };
}
