import { type AnyJson, any, type EnvoyJson } from '../proto/resource.ts';
import { refusedOrSome } from './access-log.ts';
import type { IngressSettings } from './ingress.ts';
import { FALL_THROUGH_OR_WOKEN } from './ingress-fallback.ts';
import { METADATA_NAMESPACE } from './ingress-names.ts';
import { ADS } from './output.ts';

type ListenerJson = EnvoyJson['envoy.config.listener.v3.Listener'];
type ManagerJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager'];
type HttpFilterJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter'];
type ReplyMapperJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper'];
type LogFilterJson = EnvoyJson['envoy.config.accesslog.v3.AccessLogFilter'];
type MutationsJson = EnvoyJson['envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation'];

/** Names of the filters that routes configure. */
export const PROCESSOR = 'processor';
export const TARGET_FILTER = 'target';

/** Log name of requests to sandboxes. */
export const LOG_INGRESS = 'sandgate.ingress';

/** Longer than a request is held while its sandbox wakes. */
const IDLE = '600s';

/** What one client connection may ask for at a time, and how much it may send ahead. */
const EDGE_HTTP2: NonNullable<ManagerJson['http2ProtocolOptions']> = {
  maxConcurrentStreams: 100,
  initialStreamWindowSize: 64 * 1024,
  initialConnectionWindowSize: 1024 * 1024,
};

/** Response flags of a request that did not get through to its sandbox. */
const UPSTREAM_FAILURES = ['UF', 'UH', 'UC', 'UR', 'URX', 'UO', 'LR'];

/** The public listener: scope by host name, then the hot route, or the processor for everything else. */
export function ingressListener(settings: IngressSettings): ListenerJson {
  return {
    name: 'ingress',
    address: { pipe: { path: settings.ingressSocket, mode: 0o600 } },
    perConnectionBufferLimitBytes: 1024 * 1024,
    filterChains: [
      {
        filters: [
          manager({
            statPrefix: 'ingress',
            useRemoteAddress: true,
            http2ProtocolOptions: EDGE_HTTP2,
            ...early({
              mutations: [
                ...['x-sandgate-', 'x-sbx-', 'x-envoy-'].map((prefix) => ({
                  removeOnMatch: { keyMatcher: { prefix, ignoreCase: true } },
                })),
                // The key of the scope is what follows the first `-`, a port that clients write included (D5).
                {
                  append: {
                    header: { key: 'x-sbx-scope', value: '%REQ(:authority)%' },
                    appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD' as const,
                  },
                },
              ],
            }),
            scopedRoutes: {
              name: 'ingress',
              scopeKeyBuilder: {
                fragments: [{ headerValueExtractor: { name: 'x-sbx-scope', elementSeparator: '-', index: 1 } }],
              },
              rdsConfigSource: ADS,
              scopedRds: { scopedRdsConfigSource: ADS },
            },
          }),
        ],
      },
    ],
  };
}

/**
 * Where a hot route leads when its Pod cannot be reached: the processor decides anew, and about the token too. The id
 * may have passed to another sandbox since the route was made (D12).
 */
export function missListener(): ListenerJson {
  return {
    name: 'miss',
    internalListener: {},
    perConnectionBufferLimitBytes: 1024 * 1024,
    filterChains: [
      {
        filters: [
          manager({
            statPrefix: 'miss',
            useRemoteAddress: false,
            skipXffAppend: true,
            routeConfig: {
              name: 'miss',
              requestHeadersToRemove: ['x-sbx-scope'],
              virtualHosts: [{ name: 'miss', domains: ['*'], routes: [...FALL_THROUGH_OR_WOKEN] }],
            },
          }),
        ],
      },
    ],
  };
}

function early(mutations: MutationsJson): Pick<ManagerJson, 'earlyHeaderMutationExtensions'> {
  return {
    earlyHeaderMutationExtensions: [
      {
        name: 'own-headers',
        typedConfig: any('envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation', mutations),
      },
    ],
  };
}

/** Edge settings; the path and odd header names pass as they are (D8). */
function manager(own: Partial<ManagerJson>): { readonly name: string; readonly typedConfig: AnyJson } {
  return {
    name: 'requests',
    typedConfig: any('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
      codecType: 'AUTO',
      streamIdleTimeout: IDLE,
      requestHeadersTimeout: '30s',
      drainTimeout: '1s',
      delayedCloseTimeout: '1s',
      commonHttpProtocolOptions: { idleTimeout: '3600s' },
      upgradeConfigs: [{ upgradeType: 'websocket' }],
      httpFilters: [portOfHost(), processor(), target(), router()],
      accessLog: [accessLog()],
      localReplyConfig: {
        mappers: [unavailable('sandbox_unreachable', UPSTREAM_FAILURES), unavailable('gateway_failed')],
      },
      ...own,
    } as ManagerJson),
  };
}

/**
 * What no processor has put into words, such as a sandbox that listens nowhere or a processor that is away, keeps
 * Envoy's text and says why and when to come again (D10). The first mapper that fits is used.
 */
function unavailable(reason: string, flags: readonly string[] | null = null): ReplyMapperJson {
  const isUnavailable: LogFilterJson = {
    statusCodeFilter: {
      comparison: { op: 'EQ', value: { defaultValue: 503, runtimeKey: 'sandgate.ingress.unavailable' } },
    },
  };
  const header = (key: string, value: string) => ({ header: { key, value }, appendAction: 'ADD_IF_ABSENT' as const });
  return {
    filter:
      flags === null
        ? isUnavailable
        : { andFilter: { filters: [isUnavailable, { responseFlagFilter: { flags: [...flags] } }] } },
    headersToAdd: [header('x-sandgate-reason', reason), header('retry-after', '5')],
  };
}

function portOfHost(): HttpFilterJson {
  return {
    name: 'port',
    typedConfig: any('envoy.extensions.filters.http.header_to_metadata.v3.Config', {
      requestRules: [
        {
          header: ':authority',
          onHeaderPresent: {
            metadataNamespace: 'sbx',
            key: 'port',
            type: 'STRING',
            regexValueRewrite: { pattern: { regex: '^([0-9]{1,5})-.*$' }, substitution: '\\1' },
          },
        },
      ],
    }),
  };
}

/** On wherever no hot route says otherwise; it may hold a request for as long as a sandbox takes to wake. */
function processor(): HttpFilterJson {
  return {
    name: PROCESSOR,
    typedConfig: any('envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor', {
      grpcService: { envoyGrpc: { clusterName: 'processor' }, timeout: '0s' },
      failureModeAllow: false,
      statusOnError: { code: 'ServiceUnavailable' },
      messageTimeout: '5s',
      maxMessageTimeout: '130s',
      processingMode: {
        requestHeaderMode: 'SEND',
        responseHeaderMode: 'SKIP',
        requestBodyMode: 'NONE',
        responseBodyMode: 'NONE',
        requestTrailerMode: 'SKIP',
        responseTrailerMode: 'SKIP',
      },
      metadataOptions: { receivingNamespaces: { untyped: ['envoy.lb.original_dst', METADATA_NAMESPACE] } },
    }),
  };
}

function target(): HttpFilterJson {
  return { name: TARGET_FILTER, typedConfig: any('envoy.extensions.filters.http.set_filter_state.v3.Config', {}) };
}

function router(): HttpFilterJson {
  return {
    name: 'envoy.filters.http.router',
    typedConfig: any('envoy.extensions.filters.http.router.v3.Router', {}),
  };
}

/** No header is logged: one of them is the access token (D7). */
function accessLog(): EnvoyJson['envoy.config.accesslog.v3.AccessLog'] {
  return {
    name: 'requests',
    filter: refusedOrSome({ answersBelow400: false }),
    typedConfig: any('envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig', {
      commonConfig: {
        logName: LOG_INGRESS,
        transportApiVersion: 'V3',
        grpcService: { envoyGrpc: { clusterName: 'xds' }, timeout: '5s' },
        bufferFlushInterval: '1s',
        customTags: [
          { tag: 'sandbox', value: `%METADATA(ROUTE:${METADATA_NAMESPACE}:sandbox)%` },
          { tag: 'action', value: `%METADATA(ROUTE:${METADATA_NAMESPACE}:action)%` },
          { tag: 'processor.sandbox', value: `%DYNAMIC_METADATA(${METADATA_NAMESPACE}:sandbox)%` },
        ],
      },
    }),
  };
}
