import { any, type EnvoyJson } from '../proto/resource.ts';
import { ADS, type ResourceJson, resourceJson, STATE_IP, STATE_PORT, STATE_UID, TOKEN_BUCKET } from './output.ts';

type FilterJson = EnvoyJson['envoy.config.accesslog.v3.AccessLogFilter'];
type AccessLogJson = EnvoyJson['envoy.config.accesslog.v3.AccessLog'];

/** Route metadata under which an access log finds the policy and rules that decided. */
export const METADATA = 'sandgate';

function common(logName: string, tags: Readonly<Record<string, string>>) {
  return {
    logName,
    transportApiVersion: 'V3' as const,
    grpcService: { envoyGrpc: { clusterName: 'xds' }, timeout: '5s' },
    bufferFlushInterval: '1s',
    customTags: Object.entries(tags).map(([tag, value]) => ({ tag, value })),
  };
}

/** Connections by gRPC to the control plane; `chain` is the filter chain, and so the rule, that took them. */
export function connectionLog(logName: string, tags: Readonly<Record<string, string>> = {}): AccessLogJson {
  return {
    name: 'connections',
    typedConfig: any('envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig', {
      commonConfig: common(logName, { chain: '%FILTER_CHAIN_NAME%', ...tags }),
    }),
  };
}

/** Requests that a gateway logs each second although nothing stopped them, and how many of them at once. */
const FORWARDED_PER_SECOND = 200;
const FORWARDED_AT_ONCE = 1000;
const FORWARDED = 'forwarded-requests';

/** What {@link refusedOrSome} counts by; one for the whole process, so that many listeners share it. */
export function logRate(): ResourceJson {
  return resourceJson(
    TOKEN_BUCKET,
    FORWARDED,
    { maxTokens: FORWARDED_AT_ONCE, tokensPerFill: FORWARDED_PER_SECOND, fillInterval: '1s' },
    [],
  );
}

/**
 * Holds for every request that was not simply forwarded, and for some of the others: to tell of each of them would cost
 * Envoy a sixth of a forwarded request, and the control plane nearly as much as the request itself. `answersBelow400`:
 * whether a policy can stop a request with a status below 400.
 */
export function refusedOrSome({ answersBelow400 }: { readonly answersBelow400: boolean }): FilterJson {
  const failed: FilterJson = {
    statusCodeFilter: {
      comparison: { op: 'GE', value: { defaultValue: 400, runtimeKey: 'sandgate.log.status' } },
    },
  };
  const answered: FilterJson = {
    extensionFilter: {
      name: 'answered',
      typedConfig: any('envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter', {
        expression: "response.code_details != 'via_upstream'",
      }),
    },
  };
  const some: FilterJson = {
    extensionFilter: {
      name: 'some',
      typedConfig: any('envoy.extensions.access_loggers.filters.process_ratelimit.v3.ProcessRateLimitFilter', {
        dynamicConfig: { resourceName: FORWARDED, configSource: ADS },
      }),
    },
  };
  return { orFilter: { filters: [failed, ...(answersBelow400 ? [answered] : []), some] } };
}

/** Requests by gRPC to the control plane. No header is logged: one of them could be an injected credential (D7). */
export function requestLog(logName: string): AccessLogJson {
  return {
    name: 'requests',
    filter: refusedOrSome({ answersBelow400: true }),
    typedConfig: any('envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig', {
      commonConfig: common(logName, {
        sandbox: `%FILTER_STATE(${STATE_UID}:PLAIN)%`,
        'destination.ip': `%FILTER_STATE(${STATE_IP}:PLAIN)%`,
        'destination.port': `%FILTER_STATE(${STATE_PORT}:PLAIN)%`,
        rules: `%METADATA(ROUTE:${METADATA}:rules)%`,
        action: `%METADATA(ROUTE:${METADATA}:action)%`,
      }),
    }),
  };
}
