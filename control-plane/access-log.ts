import type * as grpc from '@grpc/grpc-js';
import type { Clock } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { counter } from '../base/metrics.ts';
import { decodeDetails } from '../extproc/details.ts';
import { parseSpiffeId } from '../identity/spiffe.ts';
import { LOG_INGRESS } from '../policy-compiler/ingress-listener.ts';
import { LOG_L4, LOG_L7, LOG_TUNNEL } from '../policy-compiler/output.ts';
import { service } from '../proto/service.ts';
import type { ExtraService } from '../xds/server.ts';
import { callerOf } from '../xds/tls.ts';
import type { DecisionLog, DecisionRecord } from './decision-log.ts';

const entriesTotal = counter('sandgate_access_log_entries_total', 'Access log entries received', ['log']);

/** The names that label the metric; a caller's own text never does. */
const LOGS: ReadonlySet<string> = new Set([LOG_L4, LOG_L7, LOG_TUNNEL, LOG_INGRESS]);

/** The parts of Envoy's access log messages that are read here (camelCase, as the gRPC codec gives them). */
interface CommonEntry {
  readonly customTags?: Readonly<Record<string, string>>;
  readonly startTime?: { readonly seconds?: string; readonly nanos?: number };
  readonly timeToLastDownstreamTxByte?: { readonly seconds?: string; readonly nanos?: number };
  readonly downstreamLocalAddress?: {
    readonly socketAddress?: { readonly address?: string; readonly portValue?: number };
  };
  readonly responseFlags?: Readonly<Record<string, unknown>>;
  readonly upstreamCluster?: string;
  readonly routeName?: string;
  readonly filterStateObjects?: Readonly<Record<string, unknown>>;
}

interface HttpEntry {
  readonly commonProperties?: CommonEntry;
  readonly request?: {
    readonly requestMethod?: string;
    readonly authority?: string;
    readonly path?: string;
  };
  readonly response?: { readonly responseCode?: { readonly value?: number }; readonly responseCodeDetails?: string };
}

interface LogMessage {
  readonly identifier?: { readonly logName?: string };
  readonly httpLogs?: { readonly logEntry?: readonly HttpEntry[] };
  readonly tcpLogs?: { readonly logEntry?: readonly { readonly commonProperties?: CommonEntry }[] };
}

/** What the policies say of a connection: the object and rule that decided, and why. */
export type ConnectionMeaning = (
  sandbox: string,
  address: string,
  port: number,
) => { readonly policy: string; readonly rule: string; readonly action: string; readonly reason: string };

export interface AccessLogOptions {
  readonly log: DecisionLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly meaning: ConnectionMeaning;
}

/**
 * Receives the gRPC access logs of every Envoy as the source of `sandgate logs`. Whose connection it was comes from the
 * caller's certificate (a sidecar) or from the gateway's verified filter state, never from what a sandbox could send.
 */
export function accessLogService(options: AccessLogOptions): ExtraService {
  return {
    definition: service('envoy.service.accesslog.v3.AccessLogService'),
    handlers: {
      StreamAccessLogs(call: grpc.ServerReadableStream<LogMessage, object>, done: grpc.sendUnaryData<object>): void {
        const caller = callerOf(call);
        const identity = caller === null ? null : parseSpiffeId(caller.spiffeId);
        let logName = '';
        call.on('data', (message: LogMessage) => {
          logName = message.identifier?.logName ?? logName;
          if (identity !== null) {
            receiveSafely(message, logName, identity.kind === 'sandbox' ? identity.uid : null, options);
          }
        });
        call.on('end', () => done(null, {}));
        call.on('error', () => {});
      },
    },
  };
}

/** An entry that cannot be understood is no reason for anything else to stop. */
function receiveSafely(...args: Parameters<typeof receive>): void {
  try {
    receive(...args);
  } catch (error) {
    args[3].logger.warn({ error: errorText(error) }, 'an access log message was not understood');
  }
}

function receive(message: LogMessage, logName: string, sidecarOf: string | null, options: AccessLogOptions): void {
  for (const { commonProperties = {} } of message.tcpLogs?.logEntry ?? []) {
    entriesTotal.inc({ log: LOGS.has(logName) ? logName : 'other' });
    const sandbox = sidecarOf ?? known(commonProperties.customTags?.['sandbox']);
    if (sandbox !== '') {
      options.log.add(sandbox, connectionRecord(sandbox, commonProperties, options));
    }
  }
  for (const entry of message.httpLogs?.logEntry ?? []) {
    entriesTotal.inc({ log: LOGS.has(logName) ? logName : 'other' });
    if (logName === LOG_TUNNEL && entry.response?.responseCode?.value === 200) {
      continue; // The decisions about what is inside an open tunnel come by themselves.
    }
    const tags = entry.commonProperties?.customTags ?? {};
    const sandbox = sidecarOf ?? (known(tags['sandbox']) || known(tags['processor.sandbox']));
    if (sandbox !== '') {
      options.log.add(sandbox, requestRecord(sandbox, logName, entry, options.clock));
    }
  }
}

function connectionRecord(sandbox: string, common: CommonEntry, { meaning, clock }: AccessLogOptions): DecisionRecord {
  const { address = '', portValue = 0 } = common.downstreamLocalAddress?.socketAddress ?? {};
  const named = meaning(sandbox, address, portValue);
  return {
    ...base(common, clock),
    direction: 'connection',
    sandbox,
    action: named.action,
    method: '',
    authority: '',
    path: '',
    status: 0,
    policy: named.policy,
    rule: named.rule,
    reason: named.reason,
    executor: 'envoy',
  };
}

function requestRecord(sandbox: string, logName: string, entry: HttpEntry, clock: Clock): DecisionRecord {
  const common = entry.commonProperties ?? {};
  const tags = common.customTags ?? {};
  const details = entry.response?.responseCodeDetails ?? '';
  const rules = decided(tags['rules'] ?? '');
  const answered = decodeDetails(details);
  const byProcessor = answered !== null || tags['action'] === 'processor' || known(tags['processor.sandbox']) !== '';
  const action = known(tags['action']);
  return {
    ...base(common, clock),
    direction: logName === LOG_INGRESS ? 'ingress' : 'egress',
    sandbox,
    action: action !== '' && action !== 'processor' ? action : details === 'via_upstream' ? 'forward' : 'deny',
    method: entry.request?.requestMethod ?? '',
    authority: entry.request?.authority ?? '',
    path: (entry.request?.path ?? '').split('?')[0] ?? '',
    status: entry.response?.responseCode?.value ?? 0,
    policy: answered?.policy ?? rules.policy,
    rule: answered?.rule ?? rules.rule,
    reason: answered?.reason ?? details,
    executor: byProcessor ? 'ext_proc' : 'envoy',
  };
}

/** The last of the rules that a route names (`Kind namespace/name/rule, …`), which is the one that decided. */
function decided(text: string): { policy: string; rule: string } {
  const last = known(text).split(', ').at(-1) ?? '';
  const cut = last.lastIndexOf('/');
  return cut < 0 ? { policy: last, rule: '' } : { policy: last.slice(0, cut), rule: last.slice(cut + 1) };
}

/** Envoy writes `-` for what it does not have. */
function known(text: string | undefined): string {
  return text === undefined || text === '-' ? '' : text;
}

function base(common: CommonEntry, clock: Clock): Pick<DecisionRecord, 'time' | 'destination' | 'durationMs'> {
  const { seconds, nanos = 0 } = common.startTime ?? {};
  const at = seconds === undefined ? clock.now() : Number(seconds) * 1000 + Math.floor(nanos / 1e6);
  const address = common.downstreamLocalAddress?.socketAddress;
  const tags = common.customTags ?? {};
  const ip = known(tags['destination.ip']) || (address?.address ?? '');
  const port = known(tags['destination.port']) || String(address?.portValue ?? '');
  const duration = common.timeToLastDownstreamTxByte;
  return {
    time: new Date(at).toISOString(),
    destination: ip === '' ? '' : ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`,
    durationMs: Number(duration?.seconds ?? 0) * 1000 + Math.round((duration?.nanos ?? 0) / 1e6),
  };
}
