/** The ingress gateway as it runs: real Envoy, xDS server, processor, waker and store; the test plays the controller. */
import { join } from 'node:path';
import { kindNamed } from '../../../api/kinds.ts';
import type { ObjectMeta } from '../../../api/object.ts';
import { systemClock } from '../../../base/clock.ts';
import { silentLogger } from '../../../base/logger.ts';
import { Redacted } from '../../../base/redacted.ts';
import { writeBootstrap } from '../../../envoy/bootstrap-common.ts';
import { ingressBootstrap } from '../../../envoy/bootstrap-ingress.ts';
import { findEnvoy } from '../../../envoy/find.ts';
import { type EnvoyProcess, superviseEnvoy } from '../../../envoy/supervise.ts';
import { ingressHandler } from '../../../extproc/ingress/handler.ts';
import { followRoutes, type StoreRoutes } from '../../../extproc/ingress/route-source.ts';
import { Waker } from '../../../extproc/ingress/wake.ts';
import type { RequestHead } from '../../../extproc/request.ts';
import { type ExtProcServer, serveExtProc } from '../../../extproc/server.ts';
import { compileIngress, type IngressRoute } from '../../../policy-compiler/ingress.ts';
import { MemoryStore } from '../../../store/table-store.ts';
import { Plane, until } from '../../xds/plane.ts';

export const NAMESPACE = 'default';
/** The one that the access log and the Host header of clients know; not the scheme's own. */
export const PUBLIC_PORT = 8080;

/** A token per name, as random looking as a minted one. */
export const tokenOf = (name: string) => `0f6b3d52-7f0a-4d55-9c5c-${name.padEnd(12, '0')}`;

export class IngressStage {
  readonly plane: Plane;
  readonly store = new MemoryStore({ kinds: kindNamed });
  readonly routes: StoreRoutes = followRoutes(this.store, { clock: systemClock, logger: silentLogger });
  /** Requests that the processor was given, and how many of them it has not answered. */
  readonly seen: RequestHead[] = [];
  held = 0;
  #processor: ExtProcServer | null = null;
  #envoy: EnvoyProcess | null = null;

  private constructor(plane: Plane) {
    this.plane = plane;
  }

  static async start(): Promise<IngressStage> {
    const stage = new IngressStage(await Plane.create());
    try {
      await stage.#start();
      return stage;
    } catch (error) {
      await stage.close();
      throw error;
    }
  }

  get socketPath(): string {
    return join(this.plane.directory, 'ingress.sock');
  }

  async #start(): Promise<void> {
    const { plane, store, routes } = this;
    await plane.start();
    await routes.synced;
    const decide = ingressHandler({
      routes: routes.table,
      waker: new Waker({ store, routes, clock: systemClock, logger: silentLogger, budgetMs: 20_000 }),
      isReady: () => routes.isSynced,
    });
    const processorSocket = join(plane.directory, 'processor.sock');
    this.#processor = await serveExtProc({
      socketPath: processorSocket,
      logger: silentLogger,
      handler: async (head, context) => {
        this.seen.push(head);
        this.held += 1;
        return decide(head, context).finally(() => {
          this.held -= 1;
        });
      },
    });
    const role = await plane.pki.issueRoleCertificate('ingress');
    const adminSocket = join(plane.directory, 'admin.sock');
    const bootstrap = ingressBootstrap({
      id: 'ingress',
      folder: plane.directory,
      xdsSocket: plane.socketPath,
      adminSocket,
      certificate: { certificateFile: role.certificateFile, keyFile: role.keyFile, caFile: plane.pki.caFile },
      processorSocket,
    });
    this.#envoy = superviseEnvoy({
      binary: await findEnvoy(),
      bootstrapPath: await writeBootstrap(bootstrap),
      adminSocket,
      logger: silentLogger,
      concurrency: 1,
      drainSeconds: 1,
      listeners: ['ingress', 'miss'],
    });
    this.#publish([]);
    await this.#envoy.ready(15_000);
  }

  /** Gives Envoy the scopes of these sandboxes, by name and address, and waits for its acknowledgement. */
  async publish(routes: Readonly<Record<string, string>>): Promise<void> {
    const made = Object.entries(routes).map(
      ([name, address]): IngressRoute => ({
        id: name,
        uid: `uid-${name}`,
        address,
        token: new Redacted(tokenOf(name)),
        ref: { kind: 'Sandbox', namespace: NAMESPACE, name },
      }),
    );
    const sequence = this.#publish(made);
    await until(() => this.plane.settled.includes(`ingress ${sequence}`), 5000, `settlement of ${sequence}`);
  }

  #publish(routes: readonly IngressRoute[]): number {
    const settings = { domain: 'localhost', ingressSocket: this.socketPath, publicPort: PUBLIC_PORT };
    return this.plane.publish('ingress', compileIngress(routes, settings));
  }

  /** A Sandbox of the store; without `label` its id is namespace and name. */
  async create(name: string, address: string, { label = true, paused = false } = {}): Promise<void> {
    await this.store.create({
      apiVersion: 'agents.kruise.io/v1alpha1',
      kind: 'Sandbox',
      metadata: {
        namespace: NAMESPACE,
        name,
        ...(label ? { labels: { 'agents.kruise.io/sandbox-id': name } } : {}),
        annotations: { 'agents.kruise.io/runtime-access-token': tokenOf(name) },
      },
      spec: { paused, autoPausePolicy: { resume: { onIngressTraffic: {} } } },
    });
    await (paused ? this.report(name, 'Paused', address) : this.report(name, 'Running', address));
  }

  /** What the controller would write. */
  async report(name: string, phase: 'Running' | 'Paused' | 'Resuming', address: string): Promise<void> {
    const condition = (type: string, holds: boolean) => ({
      type,
      status: holds ? 'True' : 'False',
      reason: 'Test',
      message: '',
      lastTransitionTime: '2026-01-01T00:00:00Z',
    });
    const key = { namespace: NAMESPACE, name };
    await this.store.patchStatus('Sandbox', key, {
      type: 'merge',
      body: {
        status: {
          phase,
          podInfo: { podIP: address },
          conditions: [condition('Ready', phase === 'Running'), condition('SandboxPaused', phase === 'Paused')],
        },
      },
    });
    await this.#followed((await this.store.get('Sandbox', key)).metadata);
  }

  /** Waits until the processor knows this version of a sandbox. */
  async #followed({ name, uid, resourceVersion }: ObjectMeta): Promise<void> {
    await until(() => this.routes.byUid(uid!)?.resourceVersion === resourceVersion, 10_000, `route of ${name}`);
  }

  /** Puts a sandbox to sleep, as far as the store tells. */
  async sleep(name: string, address: string): Promise<void> {
    await this.store.patch(
      'Sandbox',
      { namespace: NAMESPACE, name },
      { type: 'merge', body: { spec: { paused: true } } },
    );
    await this.report(name, 'Paused', address);
  }

  /** Gives the sandbox another token, as a new one of the same id would have. */
  async changeToken(name: string, token: string): Promise<void> {
    const annotations = { 'agents.kruise.io/runtime-access-token': token };
    const { metadata } = await this.store.patch(
      'Sandbox',
      { namespace: NAMESPACE, name },
      { type: 'merge', body: { metadata: { annotations } } },
    );
    await this.#followed(metadata);
  }

  async spec(name: string): Promise<{ readonly paused: boolean; readonly generation: number }> {
    const { spec, metadata } = await this.store.get('Sandbox', { namespace: NAMESPACE, name });
    return { paused: (spec as { paused: boolean }).paused, generation: metadata.generation ?? 0 };
  }

  /** Ends the processor alone. */
  async stopProcessor(): Promise<void> {
    await this.#processor?.close();
    this.#processor = null;
  }

  async close(): Promise<void> {
    await this.#envoy?.stop();
    await this.stopProcessor();
    await this.routes.close();
    await this.store.close();
    await this.plane.close();
  }
}
