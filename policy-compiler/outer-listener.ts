import { dirname } from 'node:path/posix';
import { any, type EnvoyJson } from '../proto/resource.ts';
import { requestLog } from './access-log.ts';
import { TOKEN_IS_CERTIFICATE } from './cel.ts';
import type { CompilerSettings } from './compilation.ts';
import {
  ADS,
  CLUSTER,
  GATEWAY_SECRET,
  LISTENER,
  LOG_TUNNEL,
  nameOf,
  OUTER_SCOPE_HEADER,
  type ResourceJson,
  ROUTES,
  resourceJson,
  STATE_UID,
} from './output.ts';

type ListenerJson = EnvoyJson['envoy.config.listener.v3.Listener'];
type HttpFilterJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter'];
type MapperJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper'];

/** Where the sidecars' tunnels end: verified certificate, verified token, both of one sandbox (D5, D33). */
export function outerListener(settings: CompilerSettings): ResourceJson {
  const { gatewayCaFile: caFile, trustDomain } = settings;
  const listener: ListenerJson = {
    name: 'egress',
    address: { pipe: { path: settings.egressSocket, mode: 0o600 } },
    filterChains: [
      {
        name: 'tunnels',
        transportSocket: {
          name: 'envoy.transport_sockets.tls',
          typedConfig: any('envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext', {
            requireClientCertificate: true,
            commonTlsContext: {
              alpnProtocols: ['h2'],
              tlsParams: { tlsMinimumProtocolVersion: 'TLSv1_3', tlsMaximumProtocolVersion: 'TLSv1_3' },
              tlsCertificateSdsSecretConfigs: [{ name: GATEWAY_SECRET, sdsConfig: ADS }],
              validationContext: {
                trustedCa: { filename: caFile, watchedDirectory: { path: dirname(caFile) } },
                matchTypedSubjectAltNames: [{ sanType: 'URI', matcher: { prefix: `spiffe://${trustDomain}/ns/` } }],
              },
            },
          }),
        },
        filters: [{ name: 'tunnels', typedConfig: tunnels(settings) }],
      },
    ],
  };
  return resourceJson(LISTENER, 'egress', listener, []);
}

function tunnels(settings: CompilerSettings): ReturnType<typeof any> {
  return any('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
    statPrefix: 'tunnels',
    codecType: 'HTTP2',
    http2ProtocolOptions: { allowConnect: true, maxConcurrentStreams: 10_000 },
    upgradeConfigs: [{ upgradeType: 'CONNECT' }],
    generateRequestId: false,
    streamIdleTimeout: '3600s',
    requestHeadersTimeout: '10s',
    accessLog: [requestLog(LOG_TUNNEL)],
    earlyHeaderMutationExtensions: [
      {
        name: 'scope',
        typedConfig: any('envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation', {
          mutations: [{ remove: OUTER_SCOPE_HEADER }],
        }),
      },
    ],
    scopedRoutes: {
      name: 'outer',
      scopeKeyBuilder: {
        fragments: [{ headerValueExtractor: { name: OUTER_SCOPE_HEADER, elementSeparator: '', index: 0 } }],
      },
      rdsConfigSource: { ...ADS, initialFetchTimeout: '1s' },
      scopedRds: { scopedRdsConfigSource: ADS },
    },
    localReplyConfig: { mappers: REFUSALS },
    httpFilters: [verifiedToken(settings), tokenIsCertificate(), identity(), router()],
  });
}

/**
 * The uid of the token becomes the scope key. Both the early removal of the header and `clearRouteCache` are needed:
 * without them a header that the client sent would choose the set (findings on D33).
 */
function verifiedToken(settings: CompilerSettings): HttpFilterJson {
  return {
    name: 'envoy.filters.http.jwt_authn',
    typedConfig: any('envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication', {
      providers: {
        sbx: {
          issuer: settings.tokenIssuer,
          audiences: [settings.tokenAudience],
          localJwks: { inlineString: settings.tokenJwks },
          fromHeaders: [{ name: 'x-sandbox-token' }],
          requireExpiration: true,
          payloadInMetadata: 'sbx',
          claimToHeaders: [{ headerName: OUTER_SCOPE_HEADER, claimName: 'sub' }],
          clearRouteCache: true,
        },
      },
      rules: [{ match: { connectMatcher: {} }, requires: { providerName: 'sbx' } }],
    }),
  };
}

/** A token is worth nothing with another sandbox's certificate (D5). */
function tokenIsCertificate(): HttpFilterJson {
  return {
    name: 'envoy.filters.http.rbac',
    typedConfig: any('envoy.extensions.filters.http.rbac.v3.RBAC', {
      rules: {
        action: 'ALLOW',
        policies: {
          'token-is-certificate': {
            permissions: [{ any: true }],
            principals: [{ any: true }],
            condition: TOKEN_IS_CERTIFICATE,
          },
        },
      },
    }),
  };
}

/** Hashable, or connections of one pool would carry the identity of another sandbox (findings on identity). */
function identity(): HttpFilterJson {
  const uid = '%DYNAMIC_METADATA(envoy.filters.http.jwt_authn:sbx:sub)%';
  return {
    name: 'envoy.filters.http.set_filter_state',
    typedConfig: any('envoy.extensions.filters.http.set_filter_state.v3.Config', {
      onRequestHeaders: [
        {
          objectKey: STATE_UID,
          factoryKey: 'envoy.hashable_string',
          formatString: { textFormatSource: { inlineString: uid } },
          sharedWithUpstream: 'ONCE',
        },
        {
          objectKey: 'envoy.filters.listener.original_dst.local_ip',
          formatString: { textFormatSource: { inlineString: '%REQ(:AUTHORITY)%' } },
          sharedWithUpstream: 'ONCE',
        },
      ],
    }),
  };
}

function router(): HttpFilterJson {
  return {
    name: 'envoy.filters.http.router',
    typedConfig: any('envoy.extensions.filters.http.router.v3.Router', {}),
  };
}

const REFUSALS: MapperJson[] = [
  refusal({ responseFlagFilter: { flags: ['NR'] } }, 404, 'unknown-sandbox'),
  refusal(statusIs(401), 401, 'token'),
  refusal(statusIs(403), 403, 'identity'),
];

function statusIs(status: number): NonNullable<MapperJson['filter']> {
  return {
    statusCodeFilter: {
      comparison: { op: 'EQ', value: { defaultValue: status, runtimeKey: `sandgate.refusal.${status}` } },
    },
  };
}

function refusal(filter: NonNullable<MapperJson['filter']>, statusCode: number, reason: string): MapperJson {
  return {
    filter,
    statusCode,
    headersToAdd: [{ header: { key: 'x-sandgate-reason', value: reason }, appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD' }],
    bodyFormatOverride: {
      jsonFormat: { error: 'tunnel_refused', reason, detail: '%RESPONSE_CODE_DETAILS%', retryable: false },
      contentType: 'application/json',
    },
  };
}

/** An address and a port, and nothing else: any other authority would leave the destination unset. */
const AUTHORITY =
  '(?:[0-9]{1,3}\\.){3}[0-9]{1,3}:[0-9]{1,5}|\\[[0-9a-f:]+(?:[0-9]{1,3}(?:\\.[0-9]{1,3}){3})?\\]:[0-9]{1,5}';

/** The outer table of an egress set, and the cluster that leads to its inner listener. */
export function tunnelResources(hash: string): readonly ResourceJson[] {
  const inner = `in-${hash}`;
  const cluster: EnvoyJson['envoy.config.cluster.v3.Cluster'] = {
    name: inner,
    type: 'STATIC',
    connectTimeout: '5s',
    circuitBreakers: {
      thresholds: [{ maxConnections: 1_000_000, maxPendingRequests: 1_000_000, maxRequests: 1_000_000 }],
    },
    loadAssignment: {
      clusterName: inner,
      endpoints: [
        { lbEndpoints: [{ endpoint: { address: { envoyInternalAddress: { serverListenerName: inner } } } }] },
      ],
    },
    transportSocket: {
      name: 'envoy.transport_sockets.internal_upstream',
      typedConfig: any('envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport', {
        transportSocket: {
          name: 'envoy.transport_sockets.raw_buffer',
          typedConfig: any('envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer', {}),
        },
      }),
    },
  };
  const name = `eset-${hash}`;
  const table: EnvoyJson['envoy.config.route.v3.RouteConfiguration'] = {
    name,
    virtualHosts: [
      {
        name: 'tunnel',
        domains: ['*'],
        routes: [
          {
            match: {
              connectMatcher: {},
              headers: [{ name: ':authority', stringMatch: { safeRegex: { regex: AUTHORITY } } }],
            },
            requestHeadersToRemove: [OUTER_SCOPE_HEADER],
            route: {
              cluster: inner,
              timeout: '0s',
              upgradeConfigs: [{ upgradeType: 'CONNECT', connectConfig: {} }],
            },
          },
        ],
      },
    ],
  };
  return [
    resourceJson(CLUSTER, inner, cluster, []),
    resourceJson(ROUTES, name, table, [], [nameOf(CLUSTER, inner), nameOf(LISTENER, inner)]),
  ];
}
