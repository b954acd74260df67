/** A control plane over a store in memory, with a PKI in a directory of its own, and clients that play Envoys. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kindNamed } from '../../api/kinds.ts';
import type { KubeObject } from '../../api/object.ts';
import type { Clock } from '../../base/clock.ts';
import { type Logger, silentLogger } from '../../base/logger.ts';
import { registry } from '../../base/metrics.ts';
import { type ControlPlane, type ControlPlaneOptions, runControlPlane } from '../../control-plane/run.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { AdsClient, type ClientOptions } from './client.ts';

export const V1ALPHA1 = 'agents.kruise.io/v1alpha1';
export const NAMESPACE = 'default';

export class ControlStage {
  readonly store = new MemoryStore({ kinds: kindNamed });
  readonly directory: string;
  readonly pki: Pki;
  readonly log: string[] = [];
  readonly #clock: Clock | undefined;
  readonly #clients: AdsClient[] = [];
  #plane: ControlPlane | null = null;

  private constructor(directory: string, pki: Pki, clock: Clock | undefined) {
    this.directory = directory;
    this.pki = pki;
    this.#clock = clock;
  }

  static async create(clock?: Clock): Promise<ControlStage> {
    const directory = await mkdtemp(join(tmpdir(), 'sg-cp-'));
    return new ControlStage(directory, await openPki(join(directory, 'pki'), clock), clock);
  }

  get xdsSocket(): string {
    return join(this.directory, 'xds.sock');
  }

  get egressSocket(): string {
    return join(this.directory, 'egress.sock');
  }

  get plane(): ControlPlane {
    return this.#plane!;
  }

  /** Starts a control plane; the one before must have been stopped. */
  async start(more: Partial<ControlPlaneOptions> = {}): Promise<ControlPlane> {
    this.#plane = await runControlPlane({
      store: this.store,
      pki: await openPki(join(this.directory, 'pki'), this.#clock),
      xdsSocket: this.xdsSocket,
      egressSocket: this.egressSocket,
      world: { hosts: {}, rootNamespace: 'sandbox-system' },
      resolver: null,
      originCaFile: join(this.directory, 'roots.pem'),
      compileIngress: () => [],
      logger: this.#logger(),
      ...(this.#clock === undefined ? {} : { clock: this.#clock }),
      ...more,
    });
    return this.#plane;
  }

  async stop(): Promise<void> {
    await this.#plane?.close();
    this.#plane = null;
  }

  #logger(): Logger {
    const note = (fields: object, message: string) => void this.log.push(`${message} ${JSON.stringify(fields)}`);
    const logger: Logger = { ...silentLogger, warn: note, error: note, child: () => logger };
    return logger;
  }

  /** A Sandbox with labels, and its Pod; gives the Sandbox's uid. */
  async sandbox(name: string, labels: Readonly<Record<string, string>> = {}): Promise<string> {
    const { metadata } = await this.store.create(sandboxObject(name, labels));
    await this.pod(name, metadata.uid!);
    return metadata.uid!;
  }

  async pod(name: string, sandboxUid: string): Promise<KubeObject> {
    const owner = { apiVersion: V1ALPHA1, kind: 'Sandbox', name, uid: sandboxUid, controller: true };
    return this.store.create({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: NAMESPACE, ownerReferences: [owner] },
      spec: { containers: [{ name: 'main', image: 'test' }] },
    });
  }

  /** Connects as the egress gateway. */
  async egress(more: Partial<ClientOptions> = {}): Promise<AdsClient> {
    return this.#connect(await this.pki.issueRoleCertificate('egress'), { secrets: ['gateway'], ...more });
  }

  /** Connects as the sidecar of a sandbox. */
  async sidecar(uid: string, more: Partial<ClientOptions> = {}, namespace = NAMESPACE): Promise<AdsClient> {
    const certificate = await this.pki.issueSidecarCertificate({ namespace, uid });
    return this.#connect(certificate, { secrets: ['sandbox-token'], ...more });
  }

  /** Connects with the certificate of a role that has no view of its own. */
  async role(name: 'control-plane' | 'ingress'): Promise<AdsClient> {
    return this.#connect(await this.pki.issueRoleCertificate(name), { secrets: [] });
  }

  #connect(
    certificate: ClientOptions['certificate'],
    more: Partial<ClientOptions> & Pick<ClientOptions, 'secrets'>,
  ): AdsClient {
    const client = new AdsClient({ socketPath: this.xdsSocket, caPem: this.pki.caPem, certificate, ...more });
    this.#clients.push(client);
    return client;
  }

  /** Waits until every connected client has acknowledged the latest publication, and that stays so for a moment. */
  async settled(timeoutMs = 5000): Promise<void> {
    let calm = 0;
    await until('settlement', timeoutMs, () => {
      const sequence = this.plane.plane.published?.sequence ?? Number.POSITIVE_INFINITY;
      const isSettled = this.plane.clients().every(({ settled }) => settled >= sequence);
      calm = isSettled ? calm + 1 : 0;
      return calm >= 12;
    });
  }

  async close(): Promise<void> {
    for (const client of this.#clients) {
      client.close();
    }
    await this.stop();
    await this.store.close();
    await rm(this.directory, { recursive: true, force: true });
  }
}

export function sandboxObject(name: string, labels: Readonly<Record<string, string>> = {}): KubeObject {
  return {
    apiVersion: V1ALPHA1,
    kind: 'Sandbox',
    metadata: { name, namespace: NAMESPACE },
    spec: { template: { metadata: { labels }, spec: { containers: [{ name: 'main', image: 'test' }] } } },
  };
}

/** A TrafficPolicy for sandboxes with the label `app`. */
export function trafficPolicy(name: string, app: string, rules: readonly object[]): KubeObject {
  return policyObject('TrafficPolicy', name, app, { egress: { rules } });
}

/** A SecurityProfile for sandboxes with the label `app`. */
export function securityProfile(name: string, app: string, rules: readonly object[]): KubeObject {
  return policyObject('SecurityProfile', name, app, { rules });
}

function policyObject(kind: string, name: string, app: string, spec: object): KubeObject {
  const metadata = { name, namespace: NAMESPACE };
  return { apiVersion: V1ALPHA1, kind, metadata, spec: { selector: { matchLabels: { app } }, ...spec } };
}

/** A rule that blocks a path of a host; plain HTTP, so that no leaf is needed. */
export function blockRule(domain: string, path: string, schemes: readonly string[] = ['http']): object {
  const match = [{ domains: [domain], schemes, paths: [{ type: 'Prefix', value: path }] }];
  return { name: 'stop', match, actions: { block: {} } };
}

/** A PKI that differs in some methods. */
export function pkiWith(pki: Pki, differing: Partial<Pki>): Pki {
  const { directory, caPem, caFile, mitmCaPem } = pki;
  return {
    ...{ directory, caPem, caFile, mitmCaPem },
    issueSidecarCertificate: (identity) => pki.issueSidecarCertificate(identity),
    issueRoleCertificate: (role) => pki.issueRoleCertificate(role),
    issueLeaf: (name) => pki.issueLeaf(name),
    tokens: () => pki.tokens(),
    rotateTokenKey: () => pki.rotateTokenKey(),
    ...differing,
  };
}

/** Asks again and again until it holds. */
export async function until(what: string, timeoutMs: number, holds: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + timeoutMs;
  while (!(await holds())) {
    if (Date.now() > end) {
      throw new Error(`waited ${timeoutMs} ms for ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Value of one series of this process's metrics, e.g. `name{kind="sent"}`; the sum when labels are left out. */
export async function metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
  const { values } = (await registry.getSingleMetric(name)?.get()) ?? { values: [] };
  return values
    .filter((entry) => Object.entries(labels).every(([key, value]) => entry.labels[key] === value))
    .reduce((sum, { value }) => sum + value, 0);
}

/** A condition of a stored object, or undefined. */
export function condition(object: KubeObject, type: string) {
  const { conditions = [] } = (object.status ?? {}) as {
    conditions?: { type: string; status: string; reason: string; message: string; observedGeneration: number }[];
  };
  return conditions.find((entry) => entry.type === type);
}
