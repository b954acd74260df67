/**
 * The room `policy-compiler/` turns policies and facts into Envoy resources: select → policy set → regions →
 * resources, and `explain` from the same intermediate form. It is pure: equal input gives equal bytes. It does no I/O
 * and knows no clock, no gRPC and no secret value. `decide/` is the second, plain opinion and shares nothing with it.
 */
import type { ObjectRef } from '../api/object.ts';
import { contentHash } from '../base/canonical.ts';
import { decode, type EnvoyJson, resource, typeUrl } from '../proto/resource.ts';

/**
 * One xDS resource. It is made from its JSON form and encoded when its bytes are first asked for; from then on only the
 * bytes are kept, which take a tenth of the memory, and the JSON form is read back from them.
 */
export interface ResourceJson<N extends keyof EnvoyJson = keyof EnvoyJson> {
  readonly type: N;
  readonly typeUrl: string;
  readonly name: string;
  /** As it was made; once it is encoded, in the canonical form, without fields that have their default. */
  readonly json: EnvoyJson[N];
  /** The encoded form. Throws `invalid-resource` where the JSON form is no message of this type. */
  readonly bytes: Uint8Array;
  /** Hash of `bytes`. */
  readonly version: string;
  /** Never true for the egress resources: they hold names of secrets, no values. */
  readonly sensitive: boolean;
  /** The objects that it was made from, so that a NACK finds its cause. */
  readonly origins: readonly ObjectRef[];
  /** Resources that must have been acknowledged before. Secrets are not among them: Envoy asks for them by itself. */
  readonly requires: readonly ResourceName[];
}

export interface ResourceName {
  readonly typeUrl: string;
  readonly name: string;
}

/** Names a resource that another one requires. */
export function nameOf(type: keyof EnvoyJson, name: string): ResourceName {
  return { typeUrl: typeUrl(type), name };
}

/** What the compiler has to say about one object: the control plane makes a condition of it. */
export interface Finding {
  readonly ref: ObjectRef;
  readonly type: 'Enforceable' | 'ResolvedRefs';
  readonly status: 'True' | 'False';
  /** CamelCase: `Enforceable`, `TLSNotIntercepted`, `Unresolved`, `ResolvedRefs`, `SecretNotFound`, … */
  readonly reason: string;
  readonly message: string;
}

export const LISTENER = 'envoy.config.listener.v3.Listener';
export const CLUSTER = 'envoy.config.cluster.v3.Cluster';
export const ROUTES = 'envoy.config.route.v3.RouteConfiguration';
export const SCOPE = 'envoy.config.route.v3.ScopedRouteConfiguration';
export const TOKEN_BUCKET = 'envoy.type.v3.TokenBucket';

/** Makes a resource; `origins` and `requires` are sorted and made unique. */
export function resourceJson<N extends keyof EnvoyJson>(
  type: N,
  name: string,
  json: EnvoyJson[N],
  origins: readonly ObjectRef[],
  requires: readonly ResourceName[] = [],
  sensitive = false,
): ResourceJson<N> {
  return new CompiledResource(
    { type, typeUrl: typeUrl(type), name, sensitive },
    json,
    uniqueSorted(origins, (ref) => `${ref.kind} ${ref.namespace} ${ref.name}`),
    uniqueSorted(requires, (required) => `${required.typeUrl} ${required.name}`),
  );
}

class CompiledResource<N extends keyof EnvoyJson> implements ResourceJson<N> {
  readonly type: N;
  readonly typeUrl: string;
  readonly name: string;
  readonly sensitive: boolean;
  readonly origins: readonly ObjectRef[];
  readonly requires: readonly ResourceName[];
  /** Null once it is encoded. */
  #json: EnvoyJson[N] | null;
  #bytes: Uint8Array | null = null;
  #version = '';

  constructor(
    { type, typeUrl: url, name, sensitive }: Pick<ResourceJson<N>, 'type' | 'typeUrl' | 'name' | 'sensitive'>,
    json: EnvoyJson[N],
    origins: readonly ObjectRef[],
    requires: readonly ResourceName[],
  ) {
    this.type = type;
    this.typeUrl = url;
    this.name = name;
    this.sensitive = sensitive;
    this.origins = origins;
    this.requires = requires;
    this.#json = json;
  }

  get json(): EnvoyJson[N] {
    return this.#json ?? (decode(this.type, this.bytes) as EnvoyJson[N]);
  }

  get bytes(): Uint8Array {
    return this.#encode();
  }

  get version(): string {
    this.#encode();
    return this.#version;
  }

  /** What it says, for whoever prints or compares it. */
  toJSON(): Omit<ResourceJson<N>, 'typeUrl' | 'bytes' | 'version'> {
    const { type, name, json, sensitive, origins, requires } = this;
    return { type, name, json, sensitive, origins, requires };
  }

  #encode(): Uint8Array {
    if (this.#bytes === null) {
      this.#bytes = resource(this.type, this.#json!);
      this.#version = contentHash(this.#bytes);
      this.#json = null;
    }
    return this.#bytes;
  }
}

/** Encodes it now: where thousands are made, their JSON forms are never there together. */
export function encoded<R extends ResourceJson>(made: R): R {
  void made.bytes;
  return made;
}

/**
 * What becomes of Envoy resources. `bytes`: those of the gateway are encoded as they are made, so that the JSON form of
 * one is gone before the next one is there. `none`: there are none, for whoever only evaluates.
 */
export type Resources = 'json' | 'bytes' | 'none';

/** A resource that was made anew, as it is wanted. */
export function kept<R extends ResourceJson>(made: R, wanted: Resources): R {
  return wanted === 'bytes' ? encoded(made) : made;
}

/** The list itself where it is sorted and unique already, so that resources share what they have in common. */
function uniqueSorted<T>(items: readonly T[], keyOf: (item: T) => string): readonly T[] {
  if (items.every((item, index) => index === 0 || keyOf(items[index - 1]!) < keyOf(item))) {
    return items;
  }
  const byKey = new Map(items.map((item) => [keyOf(item), item]));
  return [...byKey.keys()].sort().map((key) => byKey.get(key)!);
}

/** Where both configuration and secrets come from. */
export const ADS = { ads: {}, resourceApiVersion: 'V3' } as const;

/** SDS secret with the certificate that the egress gateway shows to sidecars; renewed without touching the listener. */
export const GATEWAY_SECRET = 'gateway';

/** Names of the filter-state objects that both gateway listeners and the external processor read. */
export const STATE_UID = 'agents.sandbox.uid';
export const STATE_IP = 'agents.dst.ip';
export const STATE_PORT = 'agents.dst.port';

/** Scope key headers, and the header by which the external processor chooses a plan. None of them leaves the gateway. */
export const OUTER_SCOPE_HEADER = 'x-agents-uid';
export const INNER_SCOPE_HEADER = 'x-agents-scope';
export const PLAN_HEADER = 'x-sandgate-plan';

/** Address of the resolver inside the tunnel: the sidecar's DNS listener sends a CONNECT for it. */
export const DNS_TUNNEL_ADDRESS = '240.0.0.53';

/** Ports on which a sandbox's own proxy listens or may listen: never a destination (D3, egress-policy §2.5). */
export const PROXY_PORTS: readonly number[] = [15001, 15006, 15053, 15054];

/** The port of plain HTTP, which clients leave out of Host. */
export const HTTP_PORT = 80;

/** Log names of the gRPC access logs. */
export const LOG_L4 = 'sandgate.l4';
export const LOG_L7 = 'sandgate.l7';
export const LOG_TUNNEL = 'sandgate.tunnel';
