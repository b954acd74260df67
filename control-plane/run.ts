/**
 * The room `control-plane/` is the composition: world → compile → publish over xDS, conditions back onto the objects,
 * access logs in. It leaves the protocol to `xds/` and the meaning of policies to `policy-compiler/`.
 */
import { refOf, refText } from '../api/object.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { scanMcp } from '../extproc/egress/mcp-scan.ts';
import type { Pki } from '../identity/pki-directory.ts';
import { TOKEN_AUDIENCE, TOKEN_ISSUER } from '../identity/sandbox-token.ts';
import { TRUST_DOMAIN } from '../identity/spiffe.ts';
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
import { type Progress, StatusWriter } from './status.ts';
import { VirtualAddressAllocator } from './virtual-addresses.ts';
import { Withdrawals } from './withdrawals.ts';

export interface ControlPlaneOptions {
  readonly store: ObjectStore;
  readonly pki: Pki;
  /** Where ADS and access logs are served. */
  readonly xdsSocket: string;
  /** Where the egress gateway listens. */
  readonly egressSocket: string;
  readonly world: WorldSettings;
  /** TCP resolver that the gateway asks, with its relay's socket; null: names that are not in `hosts` do not resolve. */
  readonly resolver: CompilerSettings['resolver'];
  /** PEM file of the roots that the gateway verifies origins with. */
  readonly originCaFile: string;
  /** The ingress gateway's resources of a state of the world. */
  readonly compileIngress: (world: WorldView) => readonly ResourceJson[];
  readonly logger: Logger;
  readonly clock?: Clock;
  /** How often certificates, tokens and leaves are looked at for renewal, milliseconds; default 15,000. */
  readonly renewMs?: number;
}

const RENEW_MS = 15_000;
/** Conditions are written this long after the last change, so that a burst writes once. */
const STATUS_MS = 150;
/** Secrets that become available within this time are published together. */
const REFRESH_MS = 10;

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
  #writing: Promise<void> = Promise.resolve();
  #renewTimer: NodeJS.Timeout | null = null;
  #refreshTimer: NodeJS.Timeout | null = null;
  #closed = false;
  readonly #first = Promise.withResolvers<void>();
  readonly #withdrawals: Withdrawals;

  constructor(options: ControlPlaneOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#world = new World({ store: options.store, settings: options.world, logger: options.logger });
    this.#secrets = new SecretResources(options.pki, options.logger, () => this.#refresh());
    const { rootNamespace } = options.world;
    this.#status = new StatusWriter(options.store, { clock: this.#clock, logger: options.logger, rootNamespace });
    this.#allocator = new VirtualAddressAllocator(options.store, rootNamespace, options.logger);
    this.#withdrawals = new Withdrawals({
      clock: this.#clock,
      published: () => this.plane.published,
      clients: () => this.clients(),
    });
    this.plane = new Plane({
      compiler: createCompiler({ scanMcp, resources: 'bytes' }),
      settings: () => this.#settings!,
      compileIngress: options.compileIngress,
      secrets: this.#secrets,
      publish: (source, published) => {
        // First of all the bytes.
        this.#xds?.publish(source, published.sequence);
        this.progress.published(published);
        this.#first.resolve();
        this.#moved();
      },
      restate: (published) => {
        this.progress.published(published);
        this.#moved();
      },
      logger: options.logger,
    });
  }

  /** Resolves once Envoys can be served: the first state is published. */
  async start(): Promise<void> {
    const { pki, logger } = this.#options;
    await this.#world.ready();
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
    // The state of now: the world may have moved on while the server was made.
    this.#update(this.#world.view);
    this.#world.onChange((changed) => this.#update(changed));
    this.#renewTimer = setInterval(() => this.#renewSafely(), this.#options.renewMs ?? RENEW_MS);
    await this.#first.promise;
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

  /** See {@link Withdrawals.wait}. */
  withdrawn(uid: string): Promise<void> {
    return this.#withdrawals.wait(uid);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#statusTimer ?? undefined);
    clearInterval(this.#renewTimer ?? undefined);
    clearTimeout(this.#refreshTimer ?? undefined);
    this.plane.close();
    await Promise.all([this.#secrets.close(), this.#allocator.close()]);
    await this.#xds?.close();
    await this.#world.close();
    await this.#writing;
  }

  #update(view: WorldView): void {
    const names = this.plane.update(view);
    this.#allocator.ensure(names, view.facts.virtualAddresses);
  }

  /** Publishes once more after secrets changed. */
  #refresh(): void {
    if (!this.#closed) {
      this.#refreshTimer ??= setTimeout(() => {
        this.#refreshTimer = null;
        this.plane.refresh();
      }, REFRESH_MS);
    }
  }

  #moved(): void {
    this.#withdrawals.moved();
    if (!this.#closed) {
      this.#statusTimer ??= setTimeout(() => {
        this.#statusTimer = null;
        this.#writing = this.#writing.then(() => this.#writeStatus());
      }, STATUS_MS);
    }
  }

  async #writeStatus(): Promise<void> {
    const { published } = this.plane;
    if (published === null || this.#closed) {
      return;
    }
    const settled = this.clients().map((client) => client.settled);
    // A later publication has its own conditions, and writes those of the policies that were not reached before.
    const isLatest = () => !this.#closed && this.plane.published?.sequence === published.sequence;
    await this.#status.write(this.progress.states(published), progressOf(settled), isLatest);
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

  #renewSafely(): void {
    this.#renew().catch((error: unknown) => {
      this.#options.logger.error({ error: errorText(error) }, 'certificates could not be renewed; it is tried again');
    });
  }

  async #renew(): Promise<void> {
    this.#secrets.renew(this.#clock.now(), this.plane.subjects, this.plane.published?.compilation.leaves ?? []);
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
    return {
      trustDomain: TRUST_DOMAIN,
      tokenIssuer: TOKEN_ISSUER,
      tokenAudience: TOKEN_AUDIENCE,
      tokenJwks: JSON.stringify((await pki.tokens()).publicJwks()),
      egressSocket,
      gatewayCaFile: pki.caFile,
      resolver,
      originCaFile,
    };
  }
}

/** `settled`: the last publication that each connected Envoy has acknowledged. */
export function progressOf(settled: readonly number[]): Progress {
  const sorted = [...settled].sort((a, b) => a - b);
  const known = new Map<number, number>();
  return {
    connected: sorted.length,
    settledAt(sequence) {
      const count = known.get(sequence) ?? sorted.filter((at) => at >= sequence).length;
      known.set(sequence, count);
      return count;
    },
  };
}
