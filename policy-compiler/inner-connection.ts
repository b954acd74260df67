import { any, type EnvoyJson } from '../proto/resource.ts';
import { requestLog } from './access-log.ts';
import { HOST_IS_SERVER_NAME, PORT_IS_OTHER } from './cel.ts';
import { CREDENTIAL_UNAVAILABLE, denialBody } from './denials.ts';
import { VIRTUAL } from './l4-set.ts';
import { ADS, INNER_SCOPE_HEADER, LOG_L7, STATE_IP, STATE_PORT, STATE_UID } from './output.ts';
import { DIAL_FILTER, PROCESSOR_FILTER } from './route-table.ts';

type FilterJson = EnvoyJson['envoy.config.listener.v3.Filter'];
type HttpFilterJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter'];
type MapperJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper'];
type EarlyMutationJson = EnvoyJson['envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation'];

/** Where a request comes from: plain HTTP on its own port or on another one, or intercepted TLS. */
export type Arrival = 'http' | 'http-port' | 'https';

/**
 * The check of the Host header before anything else. On port 80 clients write no port, so the table itself can say what
 * a written one means; a filter that compares would cost each of those requests as much as a tenth of its way.
 */
const HOST_CHECKS: Readonly<Record<Arrival, readonly HttpFilterJson[]>> = {
  http: [],
  'http-port': [portIsTheConnections()],
  https: [hostIsServerName()],
};

/** Reads the requests of one chain of the inner listener and routes them by the table of the sandbox. */
export function innerConnection(arrival: Arrival): FilterJson {
  const scheme = arrival === 'https' ? 'https' : 'http';
  return {
    name: 'requests',
    typedConfig: any('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
      statPrefix: `inner-${scheme}`,
      codecType: 'AUTO',
      httpProtocolOptions: { acceptHttp10: true },
      http2ProtocolOptions: { maxConcurrentStreams: 100 },
      schemeHeaderTransformation: { schemeToOverwrite: scheme },
      stripTrailingHostDot: true,
      useRemoteAddress: false,
      skipXffAppend: true,
      generateRequestId: false,
      preserveExternalRequestId: true,
      serverHeaderTransformation: 'PASS_THROUGH',
      streamIdleTimeout: '1800s',
      requestHeadersTimeout: '30s',
      upgradeConfigs: [{ upgradeType: 'websocket' }],
      accessLog: [requestLog(LOG_L7)],
      earlyHeaderMutationExtensions: [
        {
          name: 'scope',
          typedConfig: any('envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation', SCOPE_KEY),
        },
      ],
      scopedRoutes: {
        name: 'inner',
        scopeKeyBuilder: {
          fragments: [{ headerValueExtractor: { name: INNER_SCOPE_HEADER, elementSeparator: '', index: 0 } }],
        },
        rdsConfigSource: { ...ADS, initialFetchTimeout: '1s' },
        scopedRds: { scopedRdsConfigSource: ADS },
      },
      localReplyConfig: { mappers: [noTable(), noCredential(), noAddress(), hostMismatch()] },
      httpFilters: [
        ...HOST_CHECKS[arrival],
        {
          name: DIAL_FILTER,
          typedConfig: any('envoy.extensions.filters.http.set_filter_state.v3.Config', {}),
        },
        processor(),
        {
          name: 'envoy.filters.http.router',
          typedConfig: any('envoy.extensions.filters.http.router.v3.Router', { suppressEnvoyHeaders: true }),
        },
      ],
    }),
  };
}

/**
 * The scope key comes from the verified identity; what a client sent under the names of our own headers, or of Envoy's
 * control headers, is dropped before anything reads it.
 */
const SCOPE_KEY: EarlyMutationJson = {
  mutations: [
    ...['x-sandgate-', 'x-agents-'].map((prefix) => ({
      removeOnMatch: { keyMatcher: { prefix, ignoreCase: true } },
    })),
    { removeOnMatch: { keyMatcher: { prefix: 'x-envoy-', ignoreCase: true } } },
    {
      append: {
        header: { key: INNER_SCOPE_HEADER, value: `i:%FILTER_STATE(${STATE_UID}:PLAIN)%` },
        appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD',
      },
    },
  ],
};

/** The name inside must be the name of the handshake (egress-policy §10.6, D1). */
function hostIsServerName(): HttpFilterJson {
  return {
    name: 'envoy.filters.http.rbac',
    typedConfig: any('envoy.extensions.filters.http.rbac.v3.RBAC', {
      rules: {
        action: 'ALLOW',
        policies: {
          'host-is-server-name': {
            permissions: [{ any: true }],
            principals: [{ any: true }],
            condition: HOST_IS_SERVER_NAME,
            celConfig: { enableStringFunctions: true, enableStringConcat: true, enableStringConversion: true },
          },
        },
      },
    }),
  };
}

/** A port written in Host must be the connection's, for a connection to a name (docs/egress-semantics.md 13). */
function portIsTheConnections(): HttpFilterJson {
  return {
    name: 'envoy.filters.http.rbac',
    typedConfig: any('envoy.extensions.filters.http.rbac.v3.RBAC', {
      rules: {
        action: 'DENY',
        policies: {
          'other-port': {
            permissions: [
              {
                andRules: {
                  rules: [
                    { header: { name: ':authority', stringMatch: { contains: ':' } } },
                    { destinationIp: { addressPrefix: VIRTUAL.address, prefixLen: VIRTUAL.prefix } },
                  ],
                },
              },
            ],
            principals: [{ any: true }],
            condition: PORT_IS_OTHER,
            celConfig: { enableStringFunctions: true, enableStringConcat: true, enableStringConversion: true },
          },
        },
      },
    }),
  };
}

/** Off unless a route enables it; then it decides the whole request (docs/architecture.md "How a decision reaches ext_proc"). */
function processor(): HttpFilterJson {
  return {
    name: PROCESSOR_FILTER,
    disabled: true,
    typedConfig: any('envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor', {
      grpcService: { envoyGrpc: { clusterName: 'processor' }, timeout: '5s' },
      failureModeAllow: false,
      messageTimeout: '5s',
      allowModeOverride: true,
      processingMode: {
        requestHeaderMode: 'SEND',
        responseHeaderMode: 'SKIP',
        requestBodyMode: 'NONE',
        responseBodyMode: 'NONE',
        requestTrailerMode: 'SKIP',
        responseTrailerMode: 'SKIP',
      },
      requestAttributes: [STATE_UID, STATE_IP, STATE_PORT].map((key) => `filter_state['${key}']`),
    }),
  };
}

function onDetails(...texts: readonly string[]): NonNullable<MapperJson['filter']> {
  const expression = texts.map((text) => `response.code_details.contains('${text}')`).join(' || ');
  return {
    extensionFilter: {
      name: 'details',
      typedConfig: any('envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter', { expression }),
    },
  };
}

/** Unknown sandbox, or its table is not there: nothing is known, so nothing passes (findings §2). */
function noTable(): MapperJson {
  return {
    filter: { responseFlagFilter: { flags: ['NR'] } },
    statusCode: 403,
    headersToAdd: [reasonHeader('policy_not_available')],
    bodyFormatOverride: {
      jsonFormat: { error: 'policy_not_available', sandbox: `%FILTER_STATE(${STATE_UID}:PLAIN)%`, retryable: true },
      contentType: 'application/json',
    },
  };
}

function noCredential(): MapperJson {
  return {
    filter: onDetails('failed_to_inject_credential'),
    statusCode: 403,
    headersToAdd: [reasonHeader('credential-unavailable')],
    body: { inlineString: CREDENTIAL_UNAVAILABLE },
  };
}

/** The name resolves to nothing but ranges that must not be dialled (D3, D4). */
function noAddress(): MapperJson {
  return denialMapper(onDetails('address_denied', 'private-address'), 'private-address');
}

function hostMismatch(): MapperJson {
  return denialMapper(onDetails('rbac_access_denied_matched_policy[none]', 'other-port'), 'host-mismatch');
}

function denialMapper(filter: NonNullable<MapperJson['filter']>, reason: string): MapperJson {
  return {
    filter,
    statusCode: 403,
    headersToAdd: [reasonHeader(reason)],
    body: { inlineString: denialBody('denied', reason, null) },
    bodyFormatOverride: { textFormatSource: { inlineString: '%LOCAL_REPLY_BODY%' }, contentType: 'application/json' },
  };
}

function reasonHeader(value: string): NonNullable<MapperJson['headersToAdd']>[number] {
  return { header: { key: 'x-sandgate-reason', value }, appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD' };
}
