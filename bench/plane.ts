/** A plane like that of `sandgate up`, without sandboxes that run: the production processes over a loaded store. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kindNamed } from '../api/kinds.ts';
import { createLogger, type Logger } from '../base/logger.ts';
import { Child } from '../cli/child-process.ts';
import { writePlaneRecord } from '../cli/plane-record.ts';
import { nodeFlags, type RoleName } from '../cli/roles/names.ts';
import { originCaFile } from '../cli/roles/role.ts';
import type { CompiledPlane, PlaneStatus } from '../control-plane/routes.ts';
import { openPki, type Pki } from '../identity/pki-directory.ts';
import { createLayout, type Layout, layoutOf } from '../local/layout.ts';
import { type DirectoryStore, openDirectoryStore } from '../store/directory.ts';
import { serveStore } from '../store/socket-server.ts';
import { readVirtualAddresses, VIRTUAL_ADDRESSES } from '../world/virtual-addresses.ts';
import { pinned } from './processes.ts';
import { type BenchWorld, load } from './worlds.ts';

const ROOT = join(import.meta.dirname, '..');
const READY_MS = 120_000;
/** Conditions are written after everything is acknowledged, and each one is a change of its own. */
const QUIET_MS = 2000;

export interface PlaneOptions {
  readonly world: BenchWorld;
  /** Text of `sandgate.yaml`. */
  readonly settings: string;
  readonly roles: readonly RoleName[];
  /** Port of the ingress as clients see it. */
  readonly ingressPort?: number;
}

/** The processes of a plane, its directory and what they say. */
export class BenchPlane {
  readonly layout: Layout;
  readonly store: DirectoryStore;
  readonly pki: Pki;
  readonly logger: Logger;
  readonly #children = new Map<RoleName, Child>();
  readonly #undo: (() => Promise<unknown>)[] = [];

  private constructor(layout: Layout, store: DirectoryStore, pki: Pki, logger: Logger) {
    this.layout = layout;
    this.store = store;
    this.pki = pki;
    this.logger = logger;
  }

  /** Loads the world and starts the roles; resolves when all say that they are ready. */
  static async start(options: PlaneOptions): Promise<BenchPlane> {
    const layout = layoutOf(await mkdtemp(join(tmpdir(), 'sandgate-bench-')));
    await createLayout(layout);
    await writeFile(layout.settingsFile, options.settings);
    const logger = createLogger('bench');
    const store = await openDirectoryStore(layout.dir, { kinds: kindNamed, logger });
    const plane = new BenchPlane(layout, store, await openPki(layout.pki), logger);
    try {
      await plane.#run(options);
    } catch (error) {
      await plane.close();
      throw error;
    }
    return plane;
  }

  async #run({ world, roles, ingressPort = 80 }: PlaneOptions): Promise<void> {
    await load(this.store, world);
    const { store, layout, logger } = this;
    const path = layout.socket('store');
    const server = await serveStore({ store, path, incarnation: store.incarnation, logger });
    this.#undo.push(() => server.close());
    await writeFile(originCaFile(layout), this.pki.mitmCaPem);
    await writePlaneRecord(layout, { ingress: { host: '127.0.0.1', port: ingressPort } });
    for (const role of roles) {
      const main = join(ROOT, 'cli', 'main.ts');
      // As `up` starts them.
      const argv = [process.execPath, ...nodeFlags(role), main, role, '--dir', layout.dir];
      const child = new Child({ name: role, argv: pinned('rest', argv), logger });
      this.#children.set(role, child);
    }
    await Promise.all([...this.#children.values()].map((child) => child.ready(READY_MS)));
    if (roles.includes('control-plane')) {
      await this.settled(0);
    }
  }

  /** The process of a role. */
  pid(role: RoleName): number {
    const pid = this.#children.get(role)?.pid;
    if (pid === undefined) {
      throw new Error(`${role} does not run`);
    }
    return pid;
  }

  /** Something that is ended with the plane, before what was begun earlier. */
  defer(undo: () => Promise<unknown>): void {
    this.#undo.push(undo);
  }

  /** Waits until this many Envoys have acknowledged everything, and nothing has changed for a while since. */
  async settled(envoys: number): Promise<PlaneStatus> {
    let last = -1;
    let since = performance.now();
    for (const end = since + READY_MS; performance.now() < end; await pause(100)) {
      const status = await this.status().catch(() => null);
      const upToDate = status?.envoys.filter((envoy) => envoy.upToDate).length ?? 0;
      if (status === null || status.sequence !== last || upToDate < envoys) {
        last = status?.sequence ?? -1;
        since = performance.now();
      } else if (performance.now() - since > QUIET_MS) {
        return status;
      }
    }
    throw new Error(`the plane did not settle: ${JSON.stringify((await this.status()).envoys)}`);
  }

  status(): Promise<PlaneStatus> {
    return this.#get('/status') as Promise<PlaneStatus>;
  }

  compiled(): Promise<CompiledPlane> {
    return this.#get('/compile') as Promise<CompiledPlane>;
  }

  /** A counter of the control plane, summed over its labels. */
  async counter(name: string, label = ''): Promise<number> {
    const { metrics } = (await this.#get('/metrics')) as { metrics: string };
    const lines = metrics.split('\n').filter((line) => line.startsWith(`${name}{`) && line.includes(label));
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  /** The virtual address of a listed name. */
  async virtualAddress(name: string): Promise<string> {
    const key = { namespace: 'sandbox-system', name: VIRTUAL_ADDRESSES };
    const address = readVirtualAddresses(await this.store.get('ConfigMap', key))[name];
    if (address === undefined) {
      throw new Error(`${name} has no virtual address`);
    }
    return address;
  }

  async #get(path: string): Promise<unknown> {
    return JSON.parse(await getText(this.layout.socket('control-plane'), path)) as unknown;
  }

  async close(): Promise<void> {
    for (const undo of this.#undo.splice(1).reverse()) {
      await undo().catch((error: Error) => process.stderr.write(`bench: ${error.message}\n`));
    }
    await Promise.all([...this.#children.values()].map((child) => child.stop()));
    await this.#undo[0]?.();
    await this.store.close();
    await rm(this.layout.dir, { recursive: true, force: true });
  }
}

/** Waits. */
export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function getText(socketPath: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.once('end', () => resolve(Buffer.concat(chunks).toString('utf8')));
    });
    call.once('error', reject);
    call.end();
  });
}
