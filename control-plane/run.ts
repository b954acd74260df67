import type { KubeObject } from '../api/object.ts';
import { refOf, refText } from '../api/object.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { scanMcp } from '../extproc/egress/mcp-scan.ts';
import type { Pki } from '../identity/pki-directory.ts';
import { TOKEN_AUDIENCE, TOKEN_ISSUER } from '../identity/sandbox-token.ts';
import { roleId, TRUST_DOMAIN } from '../identity/spiffe.ts';
import type { CompilerSettings } from '../policy-compiler/compilation.ts';
import { createCompiler } from '../policy-compiler/compile.ts';
import type { ResourceJson } from '../policy-compiler/output.ts';
import { service } from '../proto/service.ts';
import type { ObjectStore } from '../store/object-store.ts';
import type { WorldSettings } from '../world/facts.ts';
import { World, type WorldView } from '../world/world.ts';
import { createXdsServer, type XdsServer } from '../xds/server.ts';
import type { Rejection } from '../xds/view.ts';
import { accessLogService, type ConnectionMeaning } from './access-log.ts';
import { DecisionLog } from './decision-log.ts';
import { Plane } from './plane.ts';
import { PolicyProgress } from './policy-progress.ts';
import { SecretResources } from './secret-resources.ts';
import { StatusWriter } from './status.ts';
import { VirtualAddressAllocator } from './virtual-addresses.ts';

export interface ControlPlaneOptions {
  readonly store: ObjectStore;
  readonly pki: Pki;
  /** Where ADS and access logs are served. */
  readonly xdsSocket: string;
  /** Where the egress gateway listens. */
  readonly egressSocket: string;
  readonly world: WorldSettings;
  /** TCP resolver that the gateway asks; null: names that are not in `hosts` do not resolve. */
  readonly resolver: { readonly address: string; readonly port: number } | null;
  /** PEM file of the roots that the gateway verifies origins with. */
  readonly originCaFile: string;
  /** The ingress gateway's resources of a state of the world. */
  readonly compileIngress: (world: WorldView) => readonly ResourceJson[];
  readonly logger: Logger;
  readonly clock?: Clock;
}

/** How often certificates, tokens and leaves are looked at for renewal. */
const RENEW_MS = 15_000;
/** Conditions are written this long after the last change, so that a burst writes once. */
const STATUS_MS = 150;
/** How long a withdrawal waits for the gateways (D12). */
const WITHDRAWAL_MS = 5000;

/** Runs the control plane: the world is compiled and published, and what the Envoys say comes back as conditions. */
export async function runControlPlane(options: ControlPlaneOptions): Promise<ControlPlane> {
  const plane = new ControlPlane(options);
  await plane.start();
  return plane;
}

/** A running control plane, and what its API asks of it. */
export class ControlPlane {
  readonly decisions = new DecisionLog();
  readonly progress = new PolicyProgress();
  readonly plane: Plane;
  readonly #options: ControlPlaneOptions;
  readonly #clock: Clock;
  readonly #world: World;
  readonly #secrets: SecretResources;
  readonly #status: StatusWriter;
  readonly #allocator: VirtualAddressAllocator;
  #xds: XdsServer | null = null;
  #settings: CompilerSettings | null = null;
  #statusTimer: NodeJS.Timeout | null = null;
  #statusRunning = false;
  #renewTimer: NodeJS.Timeout | null = null;
  #refreshTimer: NodeJS.Immediate | null = null;
  readonly #waiting = new Set<() => void>();

  constructor(options: ControlPlaneOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#world = new World({ store: options.store, settings: options.world, logger: options.logger });
    this.#secrets = new SecretResources(options.pki, options.logger, () => this.#refresh());
    const { rootNamespace } = options.world;
    this.#status = new StatusWriter(options.store, { clock: this.#clock, logger: options.logger, rootNamespace });
    this.#allocator = new VirtualAddressAllocator(options.store, rootNamespace, options.logger);
    this.plane = new Plane({
      compiler: createCompiler({ scanMcp }),
      settings: () => this.#settings!,
      compileIngress: options.compileIngress,
      secrets: this.#secrets,
      publish: (source, published) => {
        this.progress.published(published);
        this.#xds?.publish(source, published.sequence);
        this.#moved();
      },
      logger: options.logger,
    });
  }

  async start(): Promise<void> {
    const { pki, logger } = this.#options;
    const view = await this.#world.ready();
    const certificate = await pki.issueRoleCertificate('control-plane');
    this.#settings = await this.#compilerSettings();
    this.#xds = await createXdsServer({
      socketPath: this.#options.xdsSocket,
      tls: { certificatePem: certificate.certificatePem, keyPem: certificate.keyPem, caPem: pki.caPem },
      codec: service('envoy.service.discovery.v3.AggregatedDiscoveryService'),
      services: [
        accessLogService({
          log: this.decisions,
          clock: this.#clock,
          logger,
          meaning: (uid, address, port) => this.#meaning(uid, address, port),
        }),
      ],
      observer: {
        rejected: (rejection) => this.#rejected(rejection),
        settled: () => this.#moved(),
        connected: () => this.#moved(),
        disconnected: () => this.#moved(),
      },
      logger,
      clock: this.#clock,
    });
    this.#update(view);
    this.#world.onChange((changed) => this.#update(changed));
    this.#renewTimer = setInterval(() => void this.#renew(), RENEW_MS);
  }

  /** The present state of the world; for `explain`. */
  get world(): WorldView {
    return this.#world.view;
  }

  /** Swaps the operator's settings. */
  replaceSettings(settings: WorldSettings): void {
    this.#world.replaceSettings(settings);
  }

  /** Every connected Envoy, by identity. */
  clients(): ReturnType<XdsServer['clients']> {
    return this.#xds?.clients() ?? [];
  }

  /**
   * Resolves when no ingress gateway has a native route to this sandbox any more: the published view has none and every
   * connected one has acknowledged it (D12). Throws `unavailable` when that takes longer than its deadline.
   */
  async withdrawn(uid: string): Promise<void> {
    const deadline = this.#clock.now() + WITHDRAWAL_MS;
    while (!this.#isWithdrawn(uid)) {
      const left = deadline - this.#clock.now();
      if (left <= 0) {
        throw new CodedError('unavailable', `the route of ${uid} was not withdrawn within ${WITHDRAWAL_MS} ms`);
      }
      await this.#nextMove(left);
    }
  }

  async close(): Promise<void> {
    clearTimeout(this.#statusTimer ?? undefined);
    clearInterval(this.#renewTimer ?? undefined);
    clearImmediate(this.#refreshTimer ?? undefined);
    await this.#xds?.close();
    await this.#world.close();
  }

  #update(view: WorldView): void {
    const names = this.plane.update(view);
    this.#allocator.ensure(names, view.facts.virtualAddresses);
  }

  /** Publishes once more after secrets changed; several at once are one. */
  #refresh(): void {
    this.#refreshTimer ??= setImmediate(() => {
      this.#refreshTimer = null;
      this.plane.refresh();
    });
  }

  #moved(): void {
    for (const wake of [...this.#waiting]) {
      wake();
    }
    this.#statusTimer ??= setTimeout(() => {
      this.#statusTimer = null;
      void this.#writeStatus();
    }, STATUS_MS);
  }

  #nextMove(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      this.#waiting.add(done);
    });
  }

  async #writeStatus(): Promise<void> {
    if (this.#statusRunning || this.plane.published === null) {
      return;
    }
    this.#statusRunning = true;
    try {
      const clients = this.clients();
      await this.#status.write(this.progress.states(this.plane.published), {
        connected: clients.length,
        settledAt: (sequence) => clients.filter((client) => client.settled >= sequence).length,
      });
    } finally {
      this.#statusRunning = false;
    }
  }

  #rejected(rejection: Rejection): void {
    const culprits = this.progress.refused(rejection);
    for (const object of culprits) {
      this.#options.logger.error(
        { object: refText(refOf(object)), type: rejection.typeUrl, name: rejection.name, by: rejection.spiffeId },
        'an Envoy refused what this object was compiled to; its last good form stays in force',
      );
    }
    this.#moved();
  }

  /** What the present policies say of a connection; an Envoy's log names only its filter chain. */
  #meaning(uid: string, address: string, port: number): ReturnType<ConnectionMeaning> {
    const known = this.plane.published?.compilation.subjects.has(uid) === true && address !== '' && port > 0;
    if (!known) {
      return { policy: '', rule: '', action: 'deny', reason: 'unknown-sandbox' };
    }
    const destination = { kind: 'address', address, port } as const;
    const { l4 } = this.plane.published!.compilation.explain({ sandbox: uid, destination, scheme: 'tcp' });
    return {
      policy: l4.rule === null ? '' : refText(l4.rule),
      rule: l4.rule === null ? '' : String(l4.rule.index),
      action: l4.action,
      reason: l4.reason,
    };
  }

  #isWithdrawn(uid: string): boolean {
    const { published } = this.plane;
    if (published === null) {
      return false;
    }
    const sandbox = published.world.sandboxes.find(({ metadata }) => metadata.uid === uid);
    const mentions = (resource: ResourceJson) =>
      sandbox !== undefined && resource.origins.some((origin) => refText(origin) === refText(refOf(sandbox)));
    if (published.ingress.some(mentions)) {
      this.progress.notWithdrawn(uid);
      return false;
    }
    const since = this.progress.withdrawnSince(uid, published.sequence);
    return this.clients()
      .filter(({ spiffeId }) => spiffeId === roleId('ingress'))
      .every(({ settled }) => settled >= since);
  }

  async #renew(): Promise<void> {
    this.#secrets.renew(this.#clock.now(), this.plane.subjects);
    const { pki } = this.#options;
    const certificate = await pki.issueRoleCertificate('control-plane');
    this.#xds?.replaceTls({
      certificatePem: certificate.certificatePem,
      keyPem: certificate.keyPem,
      caPem: pki.caPem,
    });
    const settings = await this.#compilerSettings();
    if (settings.tokenJwks !== this.#settings?.tokenJwks) {
      this.#settings = settings;
      this.#update(this.#world.view);
    }
  }

  async #compilerSettings(): Promise<CompilerSettings> {
    const { pki, resolver, originCaFile, egressSocket } = this.#options;
    const { certificateFile, keyFile } = await pki.issueRoleCertificate('egress');
    return {
      trustDomain: TRUST_DOMAIN,
      tokenIssuer: TOKEN_ISSUER,
      tokenAudience: TOKEN_AUDIENCE,
      tokenJwks: JSON.stringify((await pki.tokens()).publicJwks()),
      egressSocket,
      gatewayCertificate: { certFile: certificateFile, keyFile, caFile: pki.caFile },
      resolver,
      originCaFile,
    };
  }
}

/** A Sandbox by namespace and name, of a state of the world. */
export function sandboxNamed(world: WorldView, namespace: string, name: string): KubeObject | undefined {
  return world.sandboxes.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
}
