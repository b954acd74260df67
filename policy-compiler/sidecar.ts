import { LINK_LOCAL_RANGES, parseRange } from '../base/addresses.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import { connectionLog } from './access-log.ts';
import { type L4Set, OWN_RANGES, reachesAddresses, VIRTUAL } from './l4-set.ts';
import { allOf, firstOf, type MatcherJson, not, toPorts, toRanges, when } from './matchers.ts';
import {
  ADS,
  CLUSTER,
  DNS_TUNNEL_ADDRESS,
  LISTENER,
  LOG_L4,
  nameOf,
  PROXY_PORTS,
  type ResourceJson,
  resourceJson,
} from './output.ts';
import { type Chain, chainMetadata, chainsOf, type Step, stepsOf } from './sidecar-chains.ts';

type ListenerJson = EnvoyJson['envoy.config.listener.v3.Listener'];
type FilterChainJson = EnvoyJson['envoy.config.listener.v3.FilterChain'];

/** Names of the chains that deny without a rule; an access log shows them. */
export const DENY_OWN = 'deny:own-address';
export const DENY_PRIVATE = 'deny:private-address';
export const DENY_INVALID = 'deny:policy-invalid';
export const DENY = 'deny';
/** What no policy governs. */
export const DEFAULT = 'default';

/** Listeners and clusters of every sidecar with this set (docs/architecture.md "Sidecar"). */
export function sidecarResources(set: L4Set): readonly ResourceJson[] {
  const deny = nameOf(CLUSTER, DENY);
  return [
    resourceJson(
      CLUSTER,
      DENY,
      { name: DENY, type: 'STATIC', connectTimeout: '1s', loadAssignment: { clusterName: DENY } },
      [],
    ),
    resourceJson(LISTENER, 'outbound', outbound(set), set.origins, [deny]),
    resourceJson(LISTENER, 'dns', dnsListener(set), set.origins),
    ...(reachesAddresses(set) ? [resourceJson(LISTENER, DNS_TUNNEL, dnsTunnel(), [])] : []),
  ];
}

function outbound(set: L4Set): ListenerJson {
  const steps = stepsOf(set);
  const rejects = new Set([...steps.addresses, ...steps.names].filter(isReject).map(({ chain }) => chain));
  const allowed: readonly Chain[] = [
    ...(set.governed || set.invalid !== null ? [] : [{ name: DEFAULT, shadow: '' }]),
    ...(set.invalid === null ? chainsOf(set) : []),
  ];
  const denied = [DENY, DENY_OWN, DENY_PRIVATE, DENY_INVALID, ...[...rejects].sort()];
  return {
    name: 'outbound',
    address: { socketAddress: { address: '::', portValue: 15001, ipv4Compat: true } },
    trafficDirection: 'OUTBOUND',
    listenerFilters: [
      {
        name: 'original_dst',
        typedConfig: any('envoy.extensions.filters.listener.original_dst.v3.OriginalDst', {}),
      },
    ],
    filterChainMatcher: set.invalid === null ? matcher(set, steps) : firstOf([], DENY_INVALID),
    filterChains: [...allowed.map(tunnelChain), ...denied.map(denyChain)],
  };
}

function isReject({ rule }: Step): boolean {
  return rule.action === 'reject';
}

/** Names by their virtual addresses (D4), what D3 refuses, then the rules over real addresses. */
function matcher(set: L4Set, steps: ReturnType<typeof stepsOf>): MatcherJson {
  const otherwise = set.governed ? DENY : DEFAULT;
  const proxyPorts = PROXY_PORTS.map((port) => ({ from: port, to: port }));
  const named = set.linkLocal.length === 0 ? null : not(toRanges(set.linkLocal));
  const virtuals = set.names.map(({ virtual }) => parseRange(virtual)!);
  const names = steps.names.map(stepMatcher);
  if (!set.governed && virtuals.length > 0) {
    names.push(when(toRanges(virtuals), DEFAULT));
  }
  return {
    matcherList: {
      matchers: [
        { predicate: toRanges([VIRTUAL]), onMatch: { matcher: firstOf(names, DENY) } },
        when(toRanges(OWN_RANGES), DENY_OWN),
        when(toPorts(proxyPorts)!, DENY_OWN),
        when(allOf(toRanges(LINK_LOCAL_RANGES), named), DENY_PRIVATE),
        ...steps.addresses.map(stepMatcher),
      ],
    },
    onNoMatch: firstOf([], otherwise).onNoMatch!,
  };
}

function stepMatcher({ target, ports, chain }: Step): ReturnType<typeof when> {
  const range = target.kind === 'range' ? target.range : parseRange(target.name.virtual)!;
  return when(allOf(toRanges([range]), toPorts([ports])), chain);
}

function tunnelChain(chain: Chain): FilterChainJson {
  return {
    name: chain.name,
    ...(chain.shadow === '' ? {} : { metadata: chainMetadata(chain) }),
    filters: [tunnel('%DOWNSTREAM_LOCAL_ADDRESS%')],
  };
}

function denyChain(name: string): FilterChainJson {
  return {
    name,
    filters: [
      {
        name: 'deny',
        typedConfig: any('envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy', {
          statPrefix: 'deny',
          cluster: DENY,
          accessLog: [connectionLog(LOG_L4)],
        }),
      },
    ],
  };
}

const TOKEN = 'sandbox-token';

/** A CONNECT to the gateway that carries the sandbox's token, which the SDS secret of that name holds. */
function tunnel(hostname: string): EnvoyJson['envoy.config.listener.v3.Filter'] {
  return {
    name: 'tunnel',
    typedConfig: any('envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy', {
      statPrefix: 'tunnel',
      cluster: 'gateway',
      idleTimeout: '3600s',
      accessLog: [connectionLog(LOG_L4)],
      tunnelingConfig: {
        hostname,
        headersToAdd: [
          {
            header: { key: 'x-sandbox-token', value: `%SECRET(${TOKEN})%` },
            appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD',
          },
        ],
        formatters: [
          {
            name: 'envoy.formatter.generic_secret',
            typedConfig: any('envoy.extensions.formatter.generic_secret.v3.GenericSecret', {
              secretConfigs: { [TOKEN]: { name: TOKEN, sdsConfig: ADS } },
            }),
          },
        ],
      },
    }),
  };
}

const DNS_TUNNEL = 'dns-tunnel';
const DNS_PORT = 15053;
const DNS_TUNNEL_PORT = 15054;

/**
 * Answers listed names with their virtual addresses (D4). The rest is asked at the gateway's resolver only where the
 * sandbox may connect to some address: elsewhere no answer could be of use, and the name would only leave.
 */
function dnsListener(set: L4Set): ListenerJson {
  return {
    name: 'dns',
    address: { socketAddress: { address: '::', portValue: DNS_PORT, protocol: 'UDP', ipv4Compat: true } },
    listenerFilters: [
      {
        name: 'dns',
        typedConfig: any('envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig', {
          statPrefix: 'dns',
          caseInsensitive: true,
          serverConfig: {
            inlineDnsTable: {
              virtualDomains: set.names.map(({ name, virtual }) => ({
                name,
                endpoint: { addressList: { address: [virtual] } },
                answerTtl: '30s',
              })),
            },
          },
          ...(reachesAddresses(set) ? { clientConfig: RESOLVED } : {}),
        }),
      },
    ],
  };
}

const RESOLVED: NonNullable<EnvoyJson['envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig']['clientConfig']> = {
  resolverTimeout: '5s',
  maxPendingLookups: '256',
  typedDnsResolverConfig: {
    name: 'envoy.network.dns_resolver.cares',
    typedConfig: any('envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig', {
      resolvers: [{ socketAddress: { address: '127.0.0.1', portValue: DNS_TUNNEL_PORT } }],
      dnsResolverOptions: { useTcpForDnsLookups: true, noDefaultSearchDomain: true },
    }),
  },
};

function dnsTunnel(): ListenerJson {
  return {
    name: DNS_TUNNEL,
    address: { socketAddress: { address: '127.0.0.1', portValue: DNS_TUNNEL_PORT } },
    filterChains: [{ name: 'dns', filters: [tunnel(`${DNS_TUNNEL_ADDRESS}:53`)] }],
  };
}
