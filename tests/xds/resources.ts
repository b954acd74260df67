/** Small real resources of every type, as the compiler would make them. */
import type { AnyJson, EnvoyJson } from '../../proto/resource.ts';
import { any, resource, typeUrl } from '../../proto/resource.ts';
import { CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPE, SECRET } from '../../xds/types.ts';
import type { EncodedResource, ResourceKey } from '../../xds/view.ts';
import { made } from './support.ts';

const ADS = { ads: {}, resourceApiVersion: 'V3' } as const;

const key = (type: string, name: string): ResourceKey => ({ typeUrl: type, name });

function encoded<N extends keyof EnvoyJson>(
  type: N,
  name: string,
  json: EnvoyJson[N],
  requires: ResourceKey[] = [],
): EncodedResource {
  return made(typeUrl(type), name, resource(type, json), requires, typeUrl(type) === SECRET);
}

function address(port: number): EnvoyJson['envoy.config.core.v3.Address'] {
  return { socketAddress: { address: '127.0.0.1', portValue: port } };
}

/** A cluster with one fixed endpoint. */
export function staticCluster(name: string, port: number, connectTimeout = '1s'): EncodedResource {
  return encoded('envoy.config.cluster.v3.Cluster', name, {
    name,
    type: 'STATIC',
    connectTimeout,
    loadAssignment: {
      clusterName: name,
      endpoints: [{ lbEndpoints: [{ endpoint: { address: address(port) } }] }],
    },
  });
}

/** A cluster that Envoy refuses when it builds it: its load balancing policy does not exist. */
export function badCluster(name: string): EncodedResource {
  return encoded('envoy.config.cluster.v3.Cluster', name, {
    name,
    type: 'STATIC',
    connectTimeout: '1s',
    loadBalancingPolicy: {
      policies: [
        {
          typedExtensionConfig: {
            name: 'zzz',
            typedConfig: any('google.protobuf.StringValue', 'x'),
          },
        },
      ],
    },
  });
}

/** A cluster whose endpoints come over ADS, and those endpoints. */
export function edsCluster(name: string, port: number, connectTimeout: string): EncodedResource[] {
  return [
    encoded(
      'envoy.config.cluster.v3.Cluster',
      name,
      { name, type: 'EDS', connectTimeout, edsClusterConfig: { edsConfig: ADS } },
      [key(ENDPOINTS, name)],
    ),
    encoded('envoy.config.endpoint.v3.ClusterLoadAssignment', name, {
      clusterName: name,
      endpoints: [{ lbEndpoints: [{ endpoint: { address: address(port) } }] }],
    }),
  ];
}

function manager(
  routes: Partial<EnvoyJson['envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager']>,
): AnyJson {
  return any('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
    statPrefix: 'test',
    httpFilters: [{ name: 'router', typedConfig: any('envoy.extensions.filters.http.router.v3.Router', {}) }],
    ...routes,
  });
}

const RDS = { ...ADS, initialFetchTimeout: '1s' } as const;

/** A listener on a free port that picks a scope by the header `x-key`. */
export function scopedListener(name: string, requires: ResourceKey[] = []): EncodedResource {
  const typedConfig = manager({
    scopedRoutes: {
      name: 'scopes',
      scopeKeyBuilder: {
        fragments: [{ headerValueExtractor: { name: 'x-key', elementSeparator: '', index: 0 } }],
      },
      rdsConfigSource: RDS,
      scopedRds: { scopedRdsConfigSource: ADS },
    },
  });
  return encoded(
    'envoy.config.listener.v3.Listener',
    name,
    { name, address: address(0), filterChains: [{ filters: [{ name: 'hcm', typedConfig }] }] },
    requires,
  );
}

/** A TLS listener on a free port with a certificate from SDS and one table. */
export function tlsListener(name: string, secret: string, table: string): EncodedResource {
  const typedConfig = manager({ rds: { routeConfigName: table, configSource: RDS } });
  const tls = any('envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext', {
    commonTlsContext: { tlsCertificateSdsSecretConfigs: [{ name: secret, sdsConfig: ADS }] },
  });
  return encoded(
    'envoy.config.listener.v3.Listener',
    name,
    {
      name,
      address: address(0),
      filterChains: [{ filters: [{ name: 'hcm', typedConfig }], transportSocket: { name: 'tls', typedConfig: tls } }],
    },
    [key(SECRET, secret), key(ROUTES, table)],
  );
}

/** A listener that Envoy refuses when it builds it: two chains match the same. */
export function badListener(name: string): EncodedResource {
  const typedConfig = any('envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy', { statPrefix: 'x', cluster: 'x' });
  const chain = { filters: [{ name: 'tcp', typedConfig }] };
  return encoded('envoy.config.listener.v3.Listener', name, {
    name,
    address: address(0),
    filterChains: [chain, { ...chain }],
  });
}

/** A table that sends everything to one cluster and says its own name in `x-table`. */
export function table(name: string, cluster: string, regex = '.*'): EncodedResource {
  return encoded(
    'envoy.config.route.v3.RouteConfiguration',
    name,
    {
      name,
      virtualHosts: [
        {
          name: 'all',
          domains: ['*'],
          routes: [{ match: { safeRegex: { regex } }, route: { cluster } }],
          responseHeadersToAdd: [{ header: { key: 'x-table', value: name } }],
        },
      ],
    },
    [key(CLUSTER, cluster)],
  );
}

/** The scope of a key, and the pin of a table. */
export function scope(name: string, routeConfigurationName: string): EncodedResource {
  return encoded(
    'envoy.config.route.v3.ScopedRouteConfiguration',
    name,
    { name, routeConfigurationName, key: { fragments: [{ stringKey: name }] } },
    name.startsWith('!pin-') ? [] : [key(ROUTES, routeConfigurationName)],
  );
}

export function pin(tableName: string): EncodedResource {
  return scope(`!pin-${tableName}`, tableName);
}

/** A certificate as a secret. */
export function certificateSecret(name: string, certificatePem: string, keyPem: string): EncodedResource {
  return encoded('envoy.extensions.transport_sockets.tls.v3.Secret', name, {
    name,
    tlsCertificate: { certificateChain: { inlineString: certificatePem }, privateKey: { inlineString: keyPem } },
  });
}

export const TYPE = { CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPE, SECRET };
