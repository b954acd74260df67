import * as grpc from '@grpc/grpc-js';
import { type Clock, systemClock } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { DeltaRequest, DeltaResponse } from './messages.ts';
import {
  clientsGauge,
  publicationsTotal,
  refusedCallersTotal,
  rejectionsTotal,
  resourcesTotal,
  responsesTotal,
  settleSeconds,
} from './metrics.ts';
import { clearSocketPath, makePrivate } from './socket.ts';
import { ClientStream } from './stream.ts';
import type { Doubts } from './stream-events.ts';
import { callerOf, RotatingTls, type ServerTls } from './tls.ts';
import { rulesOf } from './types.ts';
import type { Caller, ResourceView, ViewSource, XdsObserver } from './view.ts';

/** Further services on the same socket, such as the access log service; their handlers use `callerOf`. */
export interface ExtraService {
  readonly definition: grpc.ServiceDefinition;
  readonly handlers: grpc.UntypedServiceImplementation;
}

export interface XdsServerOptions {
  readonly socketPath: string;
  readonly tls: ServerTls;
  readonly observer: XdsObserver;
  readonly logger: Logger;
  /** `service('envoy.service.discovery.v3.AggregatedDiscoveryService')`. */
  readonly codec: grpc.ServiceDefinition;
  readonly services?: readonly ExtraService[];
  readonly clock?: Clock;
  /** See `StreamOptions`; default one second. */
  readonly removalDelayMs?: number;
}

/** How one caller stands. */
export interface ClientStatus {
  readonly spiffeId: string;
  readonly streams: number;
  /** The last publication that it has acknowledged, 0 before the first. */
  readonly settled: number;
}

export interface XdsServer {
  /** Swaps the view of every caller. `sequence` grows; streams whose caller has no view any more are ended. */
  publish(source: ViewSource, sequence: number): void;
  clients(): readonly ClientStatus[];
  /** Shows another certificate to new connections. */
  replaceTls(tls: ServerTls): void;
  /** Ends every stream and removes the socket. */
  close(): Promise<void>;
}

type Call = grpc.ServerDuplexStream<DeltaRequest, DeltaResponse>;

/** A reconnecting client names every resource that it has; 100,000 names take about 4 MB. */
const MAX_REQUEST_BYTES = 64 * 1024 * 1024;

/** How long a publication may keep the event loop before others get their turn, milliseconds. */
const SLICE_MS = 10;

/** Serves delta ADS on a UNIX socket with mutual TLS. Throws `address-in-use`, `invalid-path` or the bind's error. */
export async function createXdsServer(options: XdsServerOptions): Promise<XdsServer> {
  await clearSocketPath(options.socketPath);
  const tls = new RotatingTls(options.tls);
  const grpcServer = new grpc.Server({
    'grpc.max_receive_message_length': MAX_REQUEST_BYTES,
    'grpc.max_send_message_length': -1,
  });
  const server = new AdsServer(options, grpcServer, tls);
  grpcServer.addService(options.codec, {
    DeltaAggregatedResources: (call: Call) => server.accept(call),
    StreamAggregatedResources: (call: Call) =>
      fail(call, grpc.status.UNIMPLEMENTED, 'only delta ADS is served: use api_type DELTA_GRPC'),
  });
  for (const { definition, handlers } of options.services ?? []) {
    grpcServer.addService(definition, handlers);
  }
  await new Promise<void>((resolve, reject) => {
    grpcServer.bindAsync(`unix:${options.socketPath}`, tls.credentials(), (error) =>
      error === null ? resolve() : reject(error),
    );
  });
  await makePrivate(options.socketPath);
  return server;
}

class AdsServer implements XdsServer {
  readonly #options: XdsServerOptions;
  readonly #grpcServer: grpc.Server;
  readonly #tls: RotatingTls;
  readonly #clock: Clock;
  readonly #connections = new Map<string, Set<Connection>>();
  /** What ended streams left in doubt, by caller, until its next stream. */
  readonly #doubts = new Map<string, Doubts>();
  #source: ViewSource | null = null;
  #sequence = 0;
  #publishedAt = 0;
  #queue: Connection[] = [];
  #slice: NodeJS.Immediate | null = null;

  constructor(options: XdsServerOptions, grpcServer: grpc.Server, tls: RotatingTls) {
    this.#options = options;
    this.#grpcServer = grpcServer;
    this.#tls = tls;
    this.#clock = options.clock ?? systemClock;
  }

  publish(source: ViewSource, sequence: number): void {
    this.#source = source;
    this.#sequence = sequence;
    this.#publishedAt = this.#clock.now();
    publicationsTotal.inc();
    // Whoever has not had the last view yet gets this one instead.
    this.#queue = [...this.#connections.values()].flatMap((set) => [...set]);
    this.#slice ??= setImmediate(() => this.#distribute());
  }

  #distribute(): void {
    this.#slice = null;
    const started = performance.now();
    let next = this.#queue.pop();
    while (next !== undefined) {
      this.#show(next);
      if (performance.now() - started > SLICE_MS && this.#queue.length > 0) {
        this.#slice = setImmediate(() => this.#distribute());
        return;
      }
      next = this.#queue.pop();
    }
  }

  /** Brings one connection to the current view, or ends it when its caller has none. */
  #show(connection: Connection): void {
    if (this.#source === null || connection.ended) {
      return;
    }
    const view = this.#source.viewOf(connection.caller);
    if (view === undefined) {
      refusedCallersTotal.inc({ reason: 'no-view' });
      connection.end(grpc.status.PERMISSION_DENIED, 'this identity has no view');
    } else if (view !== null) {
      connection.update(view, this.#sequence);
    }
  }

  /** One delta stream. The certificate alone says whose it is; node fields are not even read (D6). */
  accept(call: Call): void {
    const caller = callerOf(call);
    if (caller === null) {
      refusedCallersTotal.inc({ reason: 'no-identity' });
      this.#options.logger.warn({}, 'refused an xDS stream without a usable client certificate');
      fail(call, grpc.status.UNAUTHENTICATED, 'a client certificate with one SPIFFE id is required');
      return;
    }
    if (this.#source !== null && this.#source.viewOf(caller) === undefined) {
      refusedCallersTotal.inc({ reason: 'no-view' });
      this.#options.logger.warn({ spiffeId: caller.spiffeId }, 'refused an xDS stream: the caller has no view');
      fail(call, grpc.status.PERMISSION_DENIED, 'this identity has no view');
      return;
    }
    const connection: Connection = new Connection(caller, call, {
      ...this.#options,
      clock: this.#clock,
      doubts: this.#doubts.get(caller.spiffeId) ?? new Map(),
      settled: (sequence) => this.#settled(caller.spiffeId, sequence),
      ended: () => this.#ended(connection),
    });
    this.#doubts.delete(caller.spiffeId);
    const known = this.#connections.get(caller.spiffeId);
    this.#connections.set(caller.spiffeId, (known ?? new Set()).add(connection));
    clientsGauge.inc();
    if (known === undefined) {
      this.#options.observer.connected(caller.spiffeId);
    }
    this.#show(connection);
  }

  #settled(spiffeId: string, sequence: number): void {
    const streams = [...(this.#connections.get(spiffeId) ?? [])];
    if (streams.some((stream) => stream.settledSequence < sequence)) {
      return;
    }
    if (sequence === this.#sequence) {
      settleSeconds.observe((this.#clock.now() - this.#publishedAt) / 1000);
    }
    this.#options.observer.settled(spiffeId, sequence);
  }

  #ended(connection: Connection): void {
    const { spiffeId } = connection.caller;
    const streams = this.#connections.get(spiffeId);
    clientsGauge.dec();
    const doubts = connection.doubts();
    if (doubts.size > 0) {
      this.#doubts.set(spiffeId, doubts);
    }
    if (streams?.delete(connection) && streams.size === 0) {
      this.#connections.delete(spiffeId);
      this.#options.observer.disconnected(spiffeId);
    }
  }

  clients(): readonly ClientStatus[] {
    const found = [...this.#connections].map(([spiffeId, streams]) => ({
      spiffeId,
      streams: streams.size,
      settled: Math.min(...[...streams].map((stream) => stream.settledSequence)),
    }));
    return found.sort((a, b) => (a.spiffeId < b.spiffeId ? -1 : 1));
  }

  replaceTls(tls: ServerTls): void {
    this.#tls.replace(tls);
  }

  async close(): Promise<void> {
    if (this.#slice !== null) {
      clearImmediate(this.#slice);
    }
    for (const connection of [...this.#connections.values()].flatMap((set) => [...set])) {
      connection.end(grpc.status.UNAVAILABLE, 'the server is going down');
    }
    this.#grpcServer.forceShutdown();
    await clearSocketPath(this.#options.socketPath).catch(() => {});
  }
}

interface ConnectionOptions extends Pick<XdsServerOptions, 'observer' | 'logger' | 'removalDelayMs'> {
  readonly clock: Clock;
  readonly doubts: Doubts;
  settled(sequence: number): void;
  ended(): void;
}

/** The gRPC side of one {@link ClientStream}. */
class Connection {
  readonly caller: Caller;
  ended = false;
  settledSequence = 0;
  readonly #call: Call;
  readonly #stream: ClientStream;
  readonly #options: ConnectionOptions;
  #timer: NodeJS.Timeout | null = null;

  constructor(caller: Caller, call: Call, options: ConnectionOptions) {
    this.caller = caller;
    this.#call = call;
    this.#options = options;
    const { observer, clock, removalDelayMs = 1000 } = options;
    const { spiffeId } = caller;
    const logger = options.logger.child({ spiffeId });
    this.#stream = new ClientStream(
      {
        send: (response) => this.#send(response),
        rejected: (rejection) => {
          const type = label(rejection.typeUrl);
          rejectionsTotal.inc({ type });
          logger.warn({ type, name: rejection.name, version: rejection.version }, 'a client refused a resource');
          observer.rejected({ ...rejection, spiffeId });
        },
        cleared: (key) => observer.cleared?.(spiffeId, key),
        settled: (sequence) => {
          this.settledSequence = sequence;
          options.settled(sequence);
        },
        wakeAfter: (milliseconds) => this.#wakeAfter(milliseconds),
        notice: (message, fields) => logger.warn(fields, message),
      },
      { clock, removalDelayMs, doubts: options.doubts },
    );
    call.on('data', (request: DeltaRequest) => this.#guard(() => this.#stream.receive(request)));
    call.on('end', () => this.end(grpc.status.OK, ''));
    call.on('cancelled', () => this.#finish());
    call.on('error', () => this.#finish());
    call.on('close', () => this.#finish());
  }

  update(view: ResourceView, sequence: number): void {
    this.#guard(() => this.#stream.update(view, sequence));
  }

  /** See `ClientStream`. */
  doubts(): Doubts {
    return this.#stream.doubts();
  }

  /** Ends the stream with a status. */
  end(code: grpc.status, details: string): void {
    if (!this.ended) {
      this.#finish();
      if (code === grpc.status.OK) {
        this.#call.end();
      } else {
        fail(this.#call, code, details);
      }
    }
  }

  /** A mistake in the handling of one client ends that client's stream and nothing else. */
  #guard(work: () => void): void {
    if (this.ended) {
      return;
    }
    try {
      work();
    } catch (error) {
      this.#options.logger.error({ spiffeId: this.caller.spiffeId, reason: errorText(error) }, 'an xDS stream failed');
      this.end(grpc.status.INTERNAL, 'internal error');
    }
  }

  #send(response: DeltaResponse): void {
    const type = label(response.typeUrl);
    responsesTotal.inc({ type });
    resourcesTotal.inc({ type, kind: 'sent' }, response.resources.length);
    resourcesTotal.inc({ type, kind: 'removed' }, response.removedResources.length);
    this.#call.write(response);
  }

  #wakeAfter(milliseconds: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#guard(() => this.#stream.pump());
    }, milliseconds);
  }

  #finish(): void {
    if (!this.ended) {
      this.ended = true;
      if (this.#timer !== null) {
        clearTimeout(this.#timer);
      }
      this.#options.ended();
    }
  }
}

function label(typeUrl: string): string {
  return rulesOf(typeUrl)?.label ?? 'other';
}

function fail(call: Call, code: grpc.status, details: string): void {
  call.on('error', () => {});
  call.emit('error', Object.assign(new Error(details), { code, details }));
}
