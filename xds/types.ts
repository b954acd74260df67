const PREFIX = 'type.googleapis.com/';

export const SECRET = `${PREFIX}envoy.extensions.transport_sockets.tls.v3.Secret`;
export const CLUSTER = `${PREFIX}envoy.config.cluster.v3.Cluster`;
export const ENDPOINTS = `${PREFIX}envoy.config.endpoint.v3.ClusterLoadAssignment`;
export const LISTENER = `${PREFIX}envoy.config.listener.v3.Listener`;
export const ROUTES = `${PREFIX}envoy.config.route.v3.RouteConfiguration`;
export const SCOPE = `${PREFIX}envoy.config.route.v3.ScopedRouteConfiguration`;
export const TOKEN_BUCKET = `${PREFIX}envoy.type.v3.TokenBucket`;
export const EXTENSION = `${PREFIX}envoy.config.core.v3.TypedExtensionConfig`;

/** How Envoy 1.40 treats one type of resource, as measured. */
export interface TypeRules {
  readonly typeUrl: string;
  /** Names the type in metrics and log lines. */
  readonly label: string;
  /**
   * Whether an empty first request means every name (the old wildcard). Types without it are asked for by name, and
   * only once a listener, cluster or scope refers to that name.
   */
  readonly wildcard: boolean;
  /**
   * Whether a response may hold several resources. A rejected response with several tables or secrets drops good ones
   * in silence, so those go one by one.
   */
  readonly batch: boolean;
  /** A resource of a higher rank may refer to one of a lower rank; decides only what is not known better. */
  readonly rank: number;
  /**
   * Whether a removal says anything. Envoy ignores the removal of a table, and at start-up "removed" for one that it
   * asked for keeps its listener from serving until the table comes, while silence ends with `initial_fetch_timeout`.
   */
  readonly removable: boolean;
  /** Whether a removal waits for requests in flight; nothing routes by a scope once it is gone, so it goes at once. */
  readonly lingers: boolean;
  /** Whether it may wait for what it requires. Endpoints never do: a changed cluster warms until they come. */
  readonly gated: boolean;
}

/** In the order in which one round sends them: make before break. */
export const TYPES: readonly TypeRules[] = [
  rules(SECRET, 'secret', 0, { batch: false }),
  rules(CLUSTER, 'cluster', 2, { wildcard: true }),
  rules(ENDPOINTS, 'endpoints', 1, { gated: false }),
  rules(EXTENSION, 'extension', 0, {}),
  rules(TOKEN_BUCKET, 'token bucket', 0, {}),
  rules(LISTENER, 'listener', 3, { wildcard: true }),
  rules(ROUTES, 'routes', 4, { batch: false, removable: false }),
  rules(SCOPE, 'scope', 5, { wildcard: true, lingers: false }),
];

const BY_URL: ReadonlyMap<string, TypeRules> = new Map(TYPES.map((type) => [type.typeUrl, type]));

/** The rules of a type, or undefined for one that is not served. */
export function rulesOf(typeUrl: string): TypeRules | undefined {
  return BY_URL.get(typeUrl);
}

function rules(typeUrl: string, label: string, rank: number, differing: Partial<TypeRules>): TypeRules {
  const usual = { wildcard: false, batch: true, removable: true, lingers: true, gated: true };
  return { typeUrl, label, rank, ...usual, ...differing };
}
