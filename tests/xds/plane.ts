import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { silentLogger } from '../../base/logger.ts';
import type { Redacted } from '../../base/redacted.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { service } from '../../proto/service.ts';
import type { DeltaRequest, DeltaResponse } from '../../xds/messages.ts';
import { createXdsServer, type XdsServer, type XdsServerOptions } from '../../xds/server.ts';
import type { EncodedResource, Rejection, ResourceKey, ViewSource } from '../../xds/view.ts';
import { viewOf } from './support.ts';

export const ADS = service('envoy.service.discovery.v3.AggregatedDiscoveryService');

/** A server on a socket in a directory of its own, with a PKI, and what its observer was told. */
export class Plane {
  readonly rejections: Rejection[] = [];
  readonly cleared: ResourceKey[] = [];
  readonly settled: string[] = [];
  readonly comings: string[] = [];
  readonly directory: string;
  readonly pki: Pki;
  readonly #views = new Map<string, readonly EncodedResource[]>();
  #server: XdsServer | null = null;
  #sequence = 0;

  private constructor(directory: string, pki: Pki) {
    this.directory = directory;
    this.pki = pki;
  }

  static async create(): Promise<Plane> {
    const directory = await mkdtemp(join(tmpdir(), 'sg-xds-'));
    return new Plane(directory, await openPki(join(directory, 'pki')));
  }

  get socketPath(): string {
    return join(this.directory, 'xds.sock');
  }

  get server(): XdsServer {
    return this.#server!;
  }

  async start(more: Partial<XdsServerOptions> = {}): Promise<XdsServer> {
    const role = await this.pki.issueRoleCertificate('control-plane');
    this.#server = await createXdsServer({
      socketPath: this.socketPath,
      tls: { ...role, caPem: this.pki.caPem },
      observer: {
        rejected: (rejection) => void this.rejections.push(rejection),
        cleared: (_, key) => void this.cleared.push(key),
        settled: (spiffeId, sequence) => void this.settled.push(`${spiffeId.split('/').at(-1)} ${sequence}`),
        connected: (spiffeId) => void this.comings.push(`+${spiffeId.split('/').at(-1)}`),
        disconnected: (spiffeId) => void this.comings.push(`-${spiffeId.split('/').at(-1)}`),
      },
      logger: silentLogger,
      codec: ADS,
      removalDelayMs: 50,
      ...more,
    });
    return this.#server;
  }

  /** Gives one caller, named by the last part of its SPIFFE id, a view; null takes it away. Returns the sequence. */
  publish(name: string, resources: readonly EncodedResource[] | null): number {
    resources === null ? this.#views.delete(name) : this.#views.set(name, resources);
    return this.republish();
  }

  /** Publishes all views again. */
  republish(): number {
    const views = new Map([...this.#views].map(([name, resources]) => [name, viewOf(resources)]));
    const source: ViewSource = { viewOf: ({ spiffeId }) => views.get(spiffeId.split('/').at(-1)!) };
    this.#sequence += 1;
    this.server.publish(source, this.#sequence);
    return this.#sequence;
  }

  /** Stops the server alone. */
  async stop(): Promise<void> {
    await this.#server?.close();
    this.#server = null;
  }

  async close(): Promise<void> {
    await this.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** A client of the delta stream that a test plays by hand. */
export class Scripted {
  readonly #client: grpc.Client;
  readonly #call: grpc.ClientDuplexStream<DeltaRequest, DeltaResponse>;
  readonly #arrived: DeltaResponse[] = [];
  readonly #waiting: (() => void)[] = [];
  #ended: string | null = null;

  constructor(
    socketPath: string,
    caPem: string,
    certificate: { certificatePem: string; keyPem: Redacted } | null,
    method = 'DeltaAggregatedResources',
  ) {
    const pair =
      certificate === null ? [] : [Buffer.from(certificate.keyPem.reveal()), Buffer.from(certificate.certificatePem)];
    const credentials = grpc.credentials.createSsl(Buffer.from(caPem), pair[0] ?? null, pair[1] ?? null, {
      checkServerIdentity: () => undefined,
    });
    this.#client = new grpc.Client(`unix:${socketPath}`, credentials);
    const { path, requestSerialize, responseDeserialize } = ADS[method]!;
    this.#call = this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
    this.#call.on('data', (response: DeltaResponse) => this.#wake(() => this.#arrived.push(response)));
    this.#call.on('error', (error: grpc.ServiceError) =>
      this.#wake(() => {
        this.#ended ??= `${grpc.status[error.code]}: ${error.details}`;
      }),
    );
    this.#call.on('end', () =>
      this.#wake(() => {
        this.#ended ??= 'end';
      }),
    );
  }

  #wake(change: () => void): void {
    change();
    for (const resolve of this.#waiting.splice(0)) {
      resolve();
    }
  }

  send(typeUrl: string, request: Omit<DeltaRequest, 'typeUrl'> & { node?: { id: string } } = {}): void {
    this.#call.write({ typeUrl, ...request });
  }

  ack(response: DeltaResponse): void {
    this.send(response.typeUrl, { responseNonce: response.nonce });
  }

  nack(response: DeltaResponse, message: string): void {
    this.send(response.typeUrl, { responseNonce: response.nonce, errorDetail: { code: 13, message } });
  }

  /** The next response; fails after ten seconds. */
  async next(): Promise<DeltaResponse> {
    await until(() => this.#arrived.length > 0 || this.#ended !== null, 10_000, 'a response', this.#waiting);
    const response = this.#arrived.shift();
    if (response === undefined) {
      throw new Error(`the stream ended: ${this.#ended}`);
    }
    return response;
  }

  /** How the stream ended; fails after ten seconds. */
  async end(): Promise<string> {
    await until(() => this.#ended !== null, 10_000, 'the end of the stream', this.#waiting);
    return this.#ended!;
  }

  /** What has arrived after some quiet time. */
  async quiet(milliseconds = 100): Promise<DeltaResponse[]> {
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
    return this.#arrived.splice(0);
  }

  close(): void {
    this.#call.cancel();
    this.#client.close();
  }
}

/** Waits for a condition, looked at on every wake and every 10 ms. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  milliseconds: number,
  what: string,
  waiting: (() => void)[] = [],
): Promise<void> {
  const deadline = Date.now() + milliseconds;
  while (!(await condition())) {
    if (Date.now() > deadline) {
      throw new Error(`no ${what} within ${milliseconds} ms`);
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, 10);
      waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}
