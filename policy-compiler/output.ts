/**
 * The room `policy-compiler/` turns policies and facts into Envoy resources: select → policy set → regions →
 * resources, and `explain` from the same intermediate form. It is pure: equal input gives equal bytes. It does no I/O
 * and knows no clock, no gRPC and no secret value. `decide/` is the second, plain opinion and shares nothing with it.
 */
import type { ObjectRef } from '../api/object.ts';
import type { EnvoyJson } from '../proto/resource.ts';

/** One xDS resource in its JSON form, ready for `resource(type, json)`. */
export interface ResourceJson<N extends keyof EnvoyJson = keyof EnvoyJson> {
  readonly type: N;
  readonly name: string;
  readonly json: EnvoyJson[N];
  /** Never true for the egress resources: they hold names of secrets, no values. */
  readonly sensitive: boolean;
  /** The objects that it was made from, so that a NACK finds its cause. */
  readonly origins: readonly ObjectRef[];
  /** Resources that must have been acknowledged before. Secrets are not among them: Envoy asks for them by itself. */
  readonly requires: readonly ResourceName[];
}

export interface ResourceName {
  readonly type: keyof EnvoyJson;
  readonly name: string;
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
): ResourceJson<N> {
  return {
    type,
    name,
    json,
    sensitive: false,
    origins: uniqueSorted(origins, (ref) => `${ref.kind} ${ref.namespace} ${ref.name}`),
    requires: uniqueSorted(requires, (required) => `${required.type} ${required.name}`),
  };
}

function uniqueSorted<T>(items: readonly T[], keyOf: (item: T) => string): readonly T[] {
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
