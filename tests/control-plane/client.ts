/** A delta ADS client that behaves as an Envoy does, as far as a control plane can tell: it acknowledges everything. */
import * as grpc from '@grpc/grpc-js';
import type { Certificate } from '../../identity/certificates.ts';
import { service } from '../../proto/service.ts';
import type { DeltaRequest, DeltaResponse } from '../../xds/messages.ts';
import { CLUSTER, LISTENER, ROUTES, SCOPE, SECRET } from '../../xds/types.ts';

const ADS = service('envoy.service.discovery.v3.AggregatedDiscoveryService');

/** One resource, or the removal of one, as it arrived. */
export interface Arrival {
  readonly at: number;
  readonly typeUrl: string;
  readonly name: string;
  readonly version: string | null;
}

/** What a client holds, by type and name; survives a reconnect. */
export type Held = Map<string, Map<string, string>>;

/** A copy that later streams do not change. */
export function copyOf(held: Held): Held {
  return new Map([...held].map(([type, names]) => [type, new Map(names)]));
}

export interface ClientOptions {
  readonly socketPath: string;
  readonly caPem: string;
  readonly certificate: Pick<Certificate, 'certificatePem' | 'keyPem'>;
  /** Secrets that its listeners name. */
  readonly secrets: readonly string[];
  /** Refuses a resource with this detail; undefined accepts it. */
  readonly refuse?: (typeUrl: string, bytes: Buffer) => string | undefined;
  /** What an earlier stream of the same client left. */
  readonly held?: Held;
}

export class AdsClient {
  readonly held: Held;
  readonly arrivals: Arrival[] = [];
  /** Bytes of secrets, by name. */
  readonly secrets = new Map<string, string>();
  ended: string | null = null;
  readonly #options: ClientOptions;
  readonly #client: grpc.Client;
  readonly #call: grpc.ClientDuplexStream<DeltaRequest, DeltaResponse>;
  /** Tables that are subscribed to. */
  readonly #tables = new Set<string>();

  constructor(options: ClientOptions) {
    this.#options = options;
    this.held = options.held ?? new Map();
    const { socketPath, caPem, certificate } = options;
    const credentials = grpc.credentials.createSsl(
      Buffer.from(caPem),
      Buffer.from(certificate.keyPem.reveal()),
      Buffer.from(certificate.certificatePem),
      { checkServerIdentity: () => undefined },
    );
    this.#client = new grpc.Client(`unix:${socketPath}`, credentials, { 'grpc.max_receive_message_length': -1 });
    const { path, requestSerialize, responseDeserialize } = ADS['DeltaAggregatedResources']!;
    this.#call = this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
    this.#call.on('data', (response: DeltaResponse) => this.#receive(response));
    this.#call.on('error', (error: grpc.ServiceError) => {
      this.ended ??= `${grpc.status[error.code]}: ${error.details}`;
    });
    this.#call.on('end', () => {
      this.ended ??= 'end';
    });
    for (const typeUrl of [CLUSTER, LISTENER, SCOPE]) {
      this.#open(typeUrl, []);
    }
    if (options.secrets.length > 0) {
      this.#open(SECRET, options.secrets);
    }
    const tables = [...(this.held.get(ROUTES)?.keys() ?? [])];
    if (tables.length > 0) {
      this.#subscribe(tables);
      this.#open(ROUTES, tables);
    }
  }

  /** Names that it holds of one type, sorted. */
  names(typeUrl: string): string[] {
    return [...(this.held.get(typeUrl)?.keys() ?? [])].sort();
  }

  close(): void {
    this.#call.cancel();
    this.#client.close();
  }

  #open(typeUrl: string, names: readonly string[]): void {
    const known = this.held.get(typeUrl) ?? new Map<string, string>();
    this.held.set(typeUrl, known);
    this.#call.write({
      typeUrl,
      resourceNamesSubscribe: [...names],
      initialResourceVersions: Object.fromEntries(known),
    });
  }

  #receive(response: DeltaResponse): void {
    const { typeUrl, nonce, resources, removedResources } = response;
    const held = this.held.get(typeUrl) ?? new Map<string, string>();
    this.held.set(typeUrl, held);
    const at = performance.now();
    for (const name of removedResources) {
      this.arrivals.push({ at, typeUrl, name, version: null });
      held.delete(name);
    }
    const refusals = resources.map(({ resource }) => this.#options.refuse?.(typeUrl, Buffer.from(resource.value)));
    const refusal = refusals.find((text) => text !== undefined);
    for (const { name, version, resource } of resources) {
      this.arrivals.push({ at, typeUrl, name, version });
      // A table that was left meanwhile is not kept: Envoy drops what it has not subscribed to.
      const isWanted = typeUrl !== ROUTES || this.#tables.has(name);
      if (refusal === undefined && isWanted) {
        held.set(name, version);
        if (typeUrl === SECRET) {
          this.secrets.set(name, Buffer.from(resource.value).toString('latin1'));
        }
      }
    }
    const error = refusal === undefined ? {} : { errorDetail: { code: 13, message: refusal } };
    this.#call.write({ typeUrl, responseNonce: nonce, ...error });
    if (typeUrl === SCOPE && refusal === undefined) {
      this.#leaveTables(removedResources);
      this.#followTables(resources.map(({ name }) => name));
    }
  }

  #subscribe(tables: readonly string[]): void {
    for (const name of tables) {
      this.#tables.add(name);
    }
  }

  /** Envoy forgets a table when no scope names it any more. */
  #leaveTables(scopes: readonly string[]): void {
    const left = pinnedTables(scopes);
    if (left.length > 0) {
      for (const name of left) {
        this.#tables.delete(name);
        this.held.get(ROUTES)?.delete(name);
      }
      this.#call.write({ typeUrl: ROUTES, resourceNamesUnsubscribe: left });
    }
  }

  /** A scope that keeps a table makes Envoy ask for that table. */
  #followTables(scopes: readonly string[]): void {
    const wanted = pinnedTables(scopes).filter((name) => !this.#tables.has(name));
    if (wanted.length > 0) {
      this.#subscribe(wanted);
      this.#call.write({ typeUrl: ROUTES, resourceNamesSubscribe: wanted });
    }
  }
}

function pinnedTables(scopes: readonly string[]): string[] {
  return scopes.filter((name) => name.startsWith('!pin-')).map((name) => name.slice('!pin-'.length));
}
