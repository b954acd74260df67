import { type AddressRange, PRIVATE_RANGES, parseRange, rangesOverlap } from '../base/addresses.ts';
import { contentHash } from '../base/canonical.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import type { CompilerSettings } from './compilation.ts';
import { type Dial, dialCluster } from './dial.ts';
import { ADS, CLUSTER, type ResourceJson, resourceJson } from './output.ts';

type ClusterJson = EnvoyJson['envoy.config.cluster.v3.Cluster'];
type DnsCacheJson = EnvoyJson['envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig'];
type HttpFilterJson = EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter'];

/** Filter state that overrides what an ORIGINAL_DST cluster dials. */
export const STATE_DIAL_ADDRESS = 'envoy.network.transport_socket.original_dst_address';
/** Filter state that overrides what a dynamic forward proxy resolves and dials. */
export const STATE_DIAL_HOST = 'envoy.upstream.dynamic_host';
export const STATE_DIAL_PORT = 'envoy.upstream.dynamic_port';

/** Clusters that exist whatever the policies are: `deny` without endpoints, and `resolver` for the DNS tunnel, which ends at the relay. */
export function fixedClusters(settings: CompilerSettings): readonly ResourceJson[] {
  const deny: ClusterJson = {
    name: 'deny',
    type: 'STATIC',
    connectTimeout: '1s',
    loadAssignment: { clusterName: 'deny' },
  };
  const { resolver } = settings;
  if (resolver === null) {
    return [resourceJson(CLUSTER, 'deny', deny, [])];
  }
  const dns: ClusterJson = {
    name: 'resolver',
    type: 'STATIC',
    connectTimeout: '5s',
    loadAssignment: {
      clusterName: 'resolver',
      endpoints: [{ lbEndpoints: [{ endpoint: { address: { pipe: { path: resolver.relay } } } }] }],
    },
  };
  return [resourceJson(CLUSTER, 'deny', deny, []), resourceJson(CLUSTER, 'resolver', dns, [])];
}

/** The cluster of a way to dial (docs/architecture.md "Egress gateway"). It depends on nothing else, so tables share it. */
export function dialClusterResource(dial: Dial, settings: CompilerSettings): ResourceJson {
  const name = dialCluster(dial);
  const cluster: ClusterJson = {
    name,
    lbPolicy: 'CLUSTER_PROVIDED',
    connectTimeout: '10s',
    circuitBreakers: { thresholds: [UNLIMITED] },
    ...(dial.kind === 'name'
      ? { clusterType: forwardProxy(dial.notDialled, settings) }
      : { type: 'ORIGINAL_DST', cleanupInterval: '60s' }),
    ...(dial.tls ? { transportSocket: originTls(settings) } : {}),
    typedExtensionProtocolOptions: {
      'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': any(
        'envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
        {
          // Without TLS these two do nothing, but a forward proxy is refused without them.
          upstreamHttpProtocolOptions: { autoSni: true, autoSanValidation: true },
          ...(dial.tls
            ? { autoConfig: { httpProtocolOptions: {}, http2ProtocolOptions: {} } }
            : { useDownstreamProtocolConfig: { httpProtocolOptions: {}, http2ProtocolOptions: {} } }),
          commonHttpProtocolOptions: { idleTimeout: '60s' },
          httpFilters: upstreamFilters(dial),
        },
      ),
    },
  };
  return resourceJson(CLUSTER, name, cluster, []);
}

/** Policy limits traffic, not the default of 1,024 connections and requests per cluster. */
const UNLIMITED = {
  maxConnections: 1_000_000,
  maxPendingRequests: 1_000_000,
  maxRequests: 1_000_000,
  maxRetries: 1000,
};

function forwardProxy(
  notDialled: readonly string[],
  settings: CompilerSettings,
): NonNullable<ClusterJson['clusterType']> {
  return {
    name: 'envoy.clusters.dynamic_forward_proxy',
    typedConfig: any('envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig', {
      dnsCacheConfig: dnsCache(notDialled, settings),
    }),
  };
}

/** The cache of names that may not resolve into these ranges, beside the private ones (D3, D4). */
export function dnsCache(notDialled: readonly string[], settings: CompilerSettings): DnsCacheJson {
  const v4Only = notDialled.includes('::/0');
  const { resolver } = settings;
  return {
    name: notDialled.length === 0 ? 'names' : `names:${contentHash(notDialled)}`,
    dnsLookupFamily: v4Only ? 'V4_ONLY' : 'V4_PREFERRED',
    dnsQueryTimeout: '5s',
    maxHosts: 16_384,
    hostTtl: '300s',
    resolvedAddressFilter: {
      ranges: [...PRIVATE_RANGES, ...notDialled.map((text) => parseRange(text)!)].map(({ address, prefix }) => ({
        addressPrefix: address,
        prefixLen: prefix,
      })),
    },
    typedDnsResolverConfig: {
      name: 'envoy.network.dns_resolver.cares',
      typedConfig: any('envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig', {
        ...(resolver === null
          ? {}
          : { resolvers: [{ socketAddress: { address: resolver.address, portValue: resolver.port } }] }),
        dnsResolverOptions: { useTcpForDnsLookups: resolver !== null, noDefaultSearchDomain: true },
      }),
    },
  };
}

/** Verification is always on; the server name and the name in the certificate come from the request (egress §10.6). */
function originTls(settings: CompilerSettings): NonNullable<ClusterJson['transportSocket']> {
  return {
    name: 'envoy.transport_sockets.tls',
    typedConfig: any('envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext', {
      commonTlsContext: {
        tlsParams: { tlsMinimumProtocolVersion: 'TLSv1_2', tlsMaximumProtocolVersion: 'TLSv1_3' },
        validationContext: { trustedCa: { filename: settings.originCaFile } },
      },
    }),
  };
}

/** Checks of the address that is dialled, then the credentials, so that a refused request never carries one. */
function upstreamFilters(dial: Dial): HttpFilterJson[] {
  return [
    ...(dial.kind === 'name' ? [addressCheck(dial.notDialled)] : []),
    ...dial.injections.map(injector),
    {
      name: 'envoy.filters.http.upstream_codec',
      typedConfig: any('envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec', {}),
    },
  ];
}

/** A second line behind the cache's own filter: an address of these ranges is never dialled by name. */
function addressCheck(notDialled: readonly string[]): HttpFilterJson {
  const ranges = [...PRIVATE_RANGES, ...notDialled.map((text) => parseRange(text)!)];
  return {
    name: 'envoy.filters.http.upstream_rbac',
    typedConfig: any('envoy.extensions.filters.http.rbac.v3.RBAC', {
      rules: {
        action: 'DENY',
        policies: {
          'private-address': {
            principals: [{ any: true }],
            permissions: AREAS.flatMap((area) => {
              const within = ranges.filter((range) => rangesOverlap(area, range));
              return within.length === 0 ? [] : [bothOf(isIn(area), anyOf(within.map(isIn)))];
            }),
          },
        },
      },
    }),
  };
}

/** Each holds the ranges of one part of the addresses, so that an address is compared with that part's alone. */
const AREAS = ['0.0.0.0/1', '128.0.0.0/1', '::/0'].map((text) => parseRange(text)!);

type PermissionJson = EnvoyJson['envoy.config.rbac.v3.Permission'];

function isIn({ address, prefix }: AddressRange): PermissionJson {
  return {
    matcher: {
      name: 'envoy.rbac.matchers.upstream_ip_port',
      typedConfig: any('envoy.extensions.rbac.matchers.upstream_ip_port.v3.UpstreamIpPortMatcher', {
        upstreamIp: { addressPrefix: address, prefixLen: prefix },
      }),
    },
  };
}

function anyOf(rules: PermissionJson[]): PermissionJson {
  return { orRules: { rules } };
}

function bothOf(...rules: PermissionJson[]): PermissionJson {
  return { andRules: { rules } };
}

/** Writes one credential over whatever the sandbox sent (egress-policy §6, findings about credentials). */
function injector({ header, id }: Dial['injections'][number]): HttpFilterJson {
  return {
    name: 'envoy.filters.http.credential_injector',
    typedConfig: any('envoy.extensions.filters.http.credential_injector.v3.CredentialInjector', {
      overwrite: true,
      credential: {
        name: 'envoy.http.injected_credentials.generic',
        typedConfig: any('envoy.extensions.http.injected_credentials.generic.v3.Generic', {
          credential: { name: id, sdsConfig: ADS },
          header,
        }),
      },
    }),
  };
}
