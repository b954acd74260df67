import { any, type EnvoyJson } from '../proto/resource.ts';
import { STATE_IP, STATE_PORT, STATE_UID } from './output.ts';

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

/** Requests by gRPC to the control plane. No header is logged: one of them could be an injected credential (D7). */
export function requestLog(logName: string): AccessLogJson {
  return {
    name: 'requests',
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
