import { parseRange } from '../base/addresses.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import { connectionLog } from './access-log.ts';
import { dnsCache, STATE_DIAL_ADDRESS, STATE_DIAL_HOST, STATE_DIAL_PORT } from './clusters.ts';
import type { CompilerSettings } from './compilation.ts';
import { type Dial, dialCluster } from './dial.ts';
import type { EgressSet, TunnelName } from './egress-set.ts';
import { innerConnection } from './inner-connection.ts';
import { type Ports, portsText } from './l4-policy.ts';
import { OWN_RANGES, VIRTUAL } from './l4-set.ts';
import {
  allOf,
  anyOf,
  firstOf,
  IS_HTTP,
  IS_TLS,
  type MatcherJson,
  NO_SNI,
  type PredicateJson,
  sniEnds,
  sniIs,
  toPorts,
  toRanges,
  when,
} from './matchers.ts';
import { ADS, DNS_TUNNEL_ADDRESS, HTTP_PORT, LOG_TUNNEL, STATE_IP, STATE_PORT, STATE_UID } from './output.ts';
import type { ListedAt } from './policy-set.ts';

type ListenerJson = EnvoyJson['envoy.config.listener.v3.Listener'];
type FilterChainJson = EnvoyJson['envoy.config.listener.v3.FilterChain'];
type FilterJson = EnvoyJson['envoy.config.listener.v3.Filter'];
type Step = ReturnType<typeof when>;

/** Name of the SDS secret with the interception certificate of a name. */
export function leafName(name: string): string {
  return `leaf:${name}`;
}

/** The inner listener of an egress set, with the ways in which its chains dial (docs/architecture.md "Egress gateway"). */
export function innerListener(
  set: EgressSet,
  settings: CompilerSettings,
): { readonly listener: ListenerJson; readonly dials: readonly Dial[] } {
  const names = set.invalid === null ? set.names.filter(({ pieces }) => pieces.length > 0) : [];
  const chains = names.flatMap((name) => nameChains(name, settings));
  const captured: Dial = { kind: 'captured', tls: false, notDialled: [], injections: [] };
  const intercepted = set.listed.intercepted;
  return {
    listener: {
      name: `in-${set.hash}`,
      internalListener: {},
      perConnectionBufferLimitBytes: 1024 * 1024,
      listenerFilters: listenerFilters(),
      // A connection that stays silent has shown neither a server name nor a Host: where a rule could stop what comes
      // later, it is closed instead of being taken for bytes that no rule reads. Any other rule misses what comes later,
      // so where there is one, servers that speak first are made to wait for longer.
      listenerFiltersTimeout: set.listed.restricts ? '5s' : set.listed.reads ? '2s' : '0.3s',
      continueOnListenerFiltersTimeout: !set.listed.restricts,
      filterChainMatcher: matcher(set, names, settings),
      filterChains: [
        ...(intercepted.length === 0 ? [] : [interceptChain(intercepted.map(({ text }) => text))]),
        { name: 'http', filters: [original(), innerConnection('http')] },
        { name: 'http-port', filters: [original(), innerConnection('http-port')] },
        ...chains.map(({ chain }) => chain),
        tcpChain('captured', dialCluster(captured)),
        ...(settings.resolver === null ? [] : [tcpChain('dns', 'resolver')]),
        ...['deny', 'deny-tls', 'deny-not-http'].map((name) => tcpChain(name, 'deny')),
      ],
    },
    dials: [captured, ...chains.map(({ dial }) => dial)],
  };
}

function listenerFilters(): NonNullable<ListenerJson['listenerFilters']> {
  return [
    { name: 'original_dst', typedConfig: any('envoy.extensions.filters.listener.original_dst.v3.OriginalDst', {}) },
    { name: 'tls_inspector', typedConfig: any('envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector', {}) },
    {
      name: 'http_inspector',
      typedConfig: any('envoy.extensions.filters.listener.http_inspector.v3.HttpInspector', {}),
    },
  ];
}

/** The order is the meaning: own addresses, the resolver, TLS, HTTP, everything else (D1, D4). */
function matcher(set: EgressSet, names: readonly TunnelName[], settings: CompilerSettings): MatcherJson {
  const first: Step[] = [when(toRanges(OWN_RANGES), 'deny')];
  if (set.invalid !== null) {
    return firstOf([...first, ...httpSteps()], 'deny');
  }
  const dns = allOf(toRanges([parseRange(DNS_TUNNEL_ADDRESS)!]), toPorts([{ from: 53, to: 53 }]));
  return {
    matcherList: {
      matchers: [
        ...first,
        ...(settings.resolver === null ? [] : [when(dns, 'dns')]),
        { predicate: IS_TLS, onMatch: { matcher: firstOf(tlsSteps(set, names), 'captured') } },
        ...httpSteps(),
        ...rawSteps(set, names),
      ],
    },
    onNoMatch: firstOf([], 'captured').onNoMatch!,
  };
}

function tlsSteps(set: EgressSet, names: readonly TunnelName[]): Step[] {
  const { listed } = set;
  return [
    ...step(NO_SNI, listed.restrictedHttps, 'deny-tls'),
    // Envoy compares the bytes of a server name; a trailing dot would be another spelling of a listed one.
    ...(listed.intercepted.length + listed.httpsSuffixes.length === 0 ? [] : [when(sniEnds('.'), 'deny-tls')]),
    ...byPorts(listed.intercepted, (texts) => anyOf(texts.map(sniIs)), 'intercept'),
    ...byPorts(listed.withoutLeaf, (texts) => anyOf(texts.map(sniIs)), 'deny-tls'),
    ...names.flatMap((name) => step(toVirtual(name), name.https, 'deny-tls')),
    ...byPorts(listed.httpsSuffixes, (texts) => anyOf(texts.map((suffix) => sniEnds(`.${suffix}`))), 'deny-tls'),
    ...step(null, listed.anyHttps, 'deny-tls'),
    ...nameSteps(names),
    when(toRanges([VIRTUAL]), 'deny'),
  ];
}

/** HTTP on its own port, and on every other one. */
function httpSteps(): Step[] {
  const ownPort = toPorts([{ from: HTTP_PORT, to: HTTP_PORT }]);
  return [when(allOf(IS_HTTP, ownPort), 'http'), when(IS_HTTP, 'http-port')];
}

function rawSteps(set: EgressSet, names: readonly TunnelName[]): Step[] {
  return [
    ...names.flatMap((name) => step(toVirtual(name), name.http, 'deny-not-http')),
    ...step(null, set.listed.wildcards, 'deny-not-http'),
    ...nameSteps(names),
    when(toRanges([VIRTUAL]), 'deny'),
  ];
}

function toVirtual({ virtual }: TunnelName): PredicateJson {
  return toRanges([parseRange(virtual)!]);
}

/** One step for each set of ports, so that a long list of names is one test. */
function byPorts(
  list: readonly ListedAt[],
  predicate: (texts: readonly string[]) => PredicateJson,
  chain: string,
): Step[] {
  const groups = Map.groupBy(list, ({ ports }) => ports.map(portsText).join(' '));
  return [...groups.values()].flatMap((group) =>
    step(predicate(group.map(({ text }) => text)), group[0]!.ports, chain),
  );
}

/** A step that holds at these ports; none when there are none. */
function step(predicate: PredicateJson | null, ports: readonly Ports[], chain: string): Step[] {
  if (ports.length === 0) {
    return [];
  }
  const atPorts = toPorts(ports);
  const both = predicate === null && atPorts === null ? toRanges(EVERYWHERE) : allOf(predicate, atPorts);
  return [when(both, chain)];
}

const EVERYWHERE = [parseRange('0.0.0.0/0')!, parseRange('::/0')!];

function nameSteps(names: readonly TunnelName[]): Step[] {
  return names.flatMap((name) =>
    name.pieces.map((piece, index) => when(allOf(toVirtual(name), toPorts([piece.ports])), chainName(name, index))),
  );
}

function chainName({ name }: TunnelName, piece: number): string {
  return piece === 0 ? `name:${name}` : `name:${name}:${piece}`;
}

/** Puts the original destination where routes, logs and the external processor find it. */
function original(...more: readonly (readonly [key: string, value: string])[]): FilterJson {
  const states = [
    [STATE_IP, '%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%'],
    [STATE_PORT, '%DOWNSTREAM_LOCAL_PORT%'],
    ...more,
  ];
  return {
    name: 'original',
    typedConfig: any('envoy.extensions.filters.network.set_filter_state.v3.Config', {
      onNewConnection: states.map(([objectKey, inlineString]) => ({
        objectKey: objectKey!,
        ...(objectKey!.startsWith('agents.') ? { factoryKey: 'envoy.string' } : {}),
        formatString: { textFormatSource: { inlineString: inlineString! } },
      })),
    }),
  };
}

function interceptChain(names: readonly string[]): FilterChainJson {
  return {
    name: 'intercept',
    transportSocket: {
      name: 'envoy.transport_sockets.tls',
      typedConfig: any('envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext', {
        requireSni: true,
        commonTlsContext: {
          alpnProtocols: ['h2', 'http/1.1'],
          tlsParams: { tlsMinimumProtocolVersion: 'TLSv1_2', tlsMaximumProtocolVersion: 'TLSv1_3' },
          tlsCertificateSdsSecretConfigs: names.map((name) => ({ name: leafName(name), sdsConfig: ADS })),
        },
      }),
    },
    transportSocketConnectTimeout: '10s',
    filters: [original(), innerConnection('https')],
  };
}

/** Bytes to a name that no rule reads: dialled by name at the original port, or at the operator's address (D4). */
function nameChains(
  name: TunnelName,
  settings: CompilerSettings,
): { readonly chain: FilterChainJson; readonly dial: Dial }[] {
  return name.pieces.map((piece, index) => {
    const kind = name.host === null ? 'name' : 'hosts';
    const dial: Dial = { kind, tls: false, notDialled: piece.notDialled, injections: [] };
    const port = '%DOWNSTREAM_LOCAL_PORT%';
    if (name.host !== null) {
      const { address, port: own } = name.host;
      const target = `${address.includes(':') ? `[${address}]` : address}:${own ?? port}`;
      const hostsDial: Dial = { ...dial, notDialled: [] };
      const filters = [original([STATE_DIAL_ADDRESS, target]), tcpProxy('name', dialCluster(hostsDial))];
      return { chain: { name: chainName(name, index), filters }, dial: hostsDial };
    }
    const resolve: FilterJson = {
      name: 'resolve',
      typedConfig: any('envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig', {
        portValue: 443,
        dnsCacheConfig: dnsCache(piece.notDialled, settings),
      }),
    };
    const filters = [
      original([STATE_DIAL_HOST, name.name], [STATE_DIAL_PORT, port]),
      resolve,
      tcpProxy('name', dialCluster(dial)),
    ];
    return { chain: { name: chainName(name, index), filters }, dial };
  });
}

function tcpChain(name: string, cluster: string): FilterChainJson {
  return { name, filters: [original(), tcpProxy(name, cluster)] };
}

function tcpProxy(statPrefix: string, cluster: string): FilterJson {
  return {
    name: 'tcp',
    typedConfig: any('envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy', {
      statPrefix,
      cluster,
      idleTimeout: '3600s',
      accessLog: [
        connectionLog(LOG_TUNNEL, {
          sandbox: `%FILTER_STATE(${STATE_UID}:PLAIN)%`,
          'destination.ip': `%FILTER_STATE(${STATE_IP}:PLAIN)%`,
          'destination.port': `%FILTER_STATE(${STATE_PORT}:PLAIN)%`,
        }),
      ],
    }),
  };
}
