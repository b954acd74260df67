import { any, type EnvoyJson } from '../proto/resource.ts';
import { CLUSTER, nameOf, type ResourceJson, resourceJson } from './output.ts';

type ClusterJson = EnvoyJson['envoy.config.cluster.v3.Cluster'];
type Protocol = 'h1' | 'h2';

/** No limits of Envoy's own: they would count all sandboxes together, and stale routes are retried (D12). */
const UNLIMITED: NonNullable<ClusterJson['circuitBreakers']> = {
  thresholds: [
    { maxConnections: 1_000_000, maxPendingRequests: 1_000_000, maxRequests: 1_000_000, maxRetries: 1_000_000 },
  ],
};

/**
 * Per protocol: `od_…` dials the Pod that the route names; `missloop_…` leads to the listener `miss`; `hot_…` tries the
 * first and then the second, so that a stale route ends at the processor; `od_meta_…` and `od_woken_…` dial what the
 * processor said, of a running sandbox and of one that it has woken.
 */
export function ingressClusters(): readonly ResourceJson[] {
  return (['h1', 'h2'] as const).flatMap((protocol) => {
    const names = [`od_${protocol}`, `missloop_${protocol}`] as const;
    return [
      cluster(names[0], originalDestination(protocol, {})),
      cluster(names[1], missLoop(protocol)),
      resourceJson(
        CLUSTER,
        `hot_${protocol}`,
        composite(`hot_${protocol}`, names),
        [],
        names.map((name) => nameOf(CLUSTER, name)),
      ),
      cluster(`od_meta_${protocol}`, { ...originalDestination(protocol, {}), ...AS_ANSWERED }),
      // A connection from before a sandbox slept may be closed by it the moment it wakes: these requests get their own.
      cluster(`od_woken_${protocol}`, {
        ...originalDestination(protocol, { maxRequestsPerConnection: 1 }),
        ...AS_ANSWERED,
      }),
    ];
  });
}

function cluster(name: string, json: Omit<ClusterJson, 'name'>): ResourceJson {
  return resourceJson(CLUSTER, name, { name, circuitBreakers: UNLIMITED, ...json } as ClusterJson, []);
}

/** Dials what the processor's answer names. */
const AS_ANSWERED: Partial<ClusterJson> = {
  originalDstLbConfig: { metadataKey: { key: 'envoy.lb.original_dst', path: [{ key: 'host' }] } },
};

function originalDestination(protocol: Protocol, common: CommonOptions): Omit<ClusterJson, 'name'> {
  return { type: 'ORIGINAL_DST', lbPolicy: 'CLUSTER_PROVIDED', connectTimeout: '0.5s', ...spoken(protocol, common) };
}

type CommonOptions = EnvoyJson['envoy.config.core.v3.HttpProtocolOptions'];

function spoken(
  protocol: Protocol,
  commonHttpProtocolOptions: CommonOptions,
): Pick<ClusterJson, 'typedExtensionProtocolOptions'> {
  const explicit = protocol === 'h2' ? { http2ProtocolOptions: {} } : { httpProtocolOptions: {} };
  return {
    typedExtensionProtocolOptions: {
      'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': any(
        'envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
        { explicitHttpConfig: explicit, commonHttpProtocolOptions },
      ),
    },
  };
}

function missLoop(protocol: Protocol): Omit<ClusterJson, 'name'> {
  return {
    type: 'STATIC',
    connectTimeout: '1s',
    ...spoken(protocol, {}),
    loadAssignment: {
      clusterName: `missloop_${protocol}`,
      endpoints: [
        {
          lbEndpoints: [
            { endpoint: { address: { envoyInternalAddress: { serverListenerName: 'miss', endpointId: protocol } } } },
          ],
        },
      ],
    },
    transportSocket: {
      name: 'internal_upstream',
      typedConfig: any('envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport', {
        transportSocket: {
          name: 'raw_buffer',
          typedConfig: any('envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer', {}),
        },
      }),
    },
  };
}

function composite(name: string, members: readonly string[]): ClusterJson {
  return {
    name,
    connectTimeout: '1s',
    lbPolicy: 'CLUSTER_PROVIDED',
    circuitBreakers: UNLIMITED,
    clusterType: {
      name: 'envoy.clusters.composite',
      typedConfig: any('envoy.extensions.clusters.composite.v3.ClusterConfig', {
        clusters: members.map((member) => ({ name: member })),
      }),
    },
  };
}
