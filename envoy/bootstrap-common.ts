/** What the bootstraps of all roles share. Everything that depends on policy or facts comes over xDS instead. */
import { mkdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { canonicalJson } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import { replacePrivate } from '../identity/files.ts';
import { type Role, roleId } from '../identity/spiffe.ts';
import { type AnyJson, any, type EnvoyJson, resource } from '../proto/resource.ts';

export type BootstrapJson = EnvoyJson['envoy.config.bootstrap.v3.Bootstrap'];
type ClusterJson = EnvoyJson['envoy.config.cluster.v3.Cluster'];

/** A bootstrap with the files that it refers to. */
export interface Bootstrap {
  /** Where the bootstrap itself goes. */
  readonly path: string;
  readonly json: BootstrapJson;
  /** Absolute path → JSON content of the SDS files that lie beside it. */
  readonly files: Readonly<Record<string, object>>;
}

/** PEM files of a mutual-TLS client; replaced by a rename into their folder, which Envoy watches. */
export interface CertificatePaths {
  readonly certificateFile: string;
  readonly keyFile: string;
  /** CA of workloads: signs the servers that this Envoy calls. */
  readonly caFile: string;
}

/** What every role needs to know. Paths are absolute; sockets have at most 107 bytes. */
export interface BootstrapSettings {
  /** `node.id`, unique per process; informative only, the certificate decides what an Envoy may see (D6). */
  readonly id: string;
  /** Folder for the bootstrap and its SDS files. */
  readonly folder: string;
  readonly xdsSocket: string;
  readonly adminSocket: string;
  readonly certificate: CertificatePaths;
  /** Instead of the role's own limits. */
  readonly limits?: Limits;
}

/** Where an Envoy begins to refuse work instead of growing. */
export interface Limits {
  /** Downstream connections beyond this are refused. */
  readonly maxConnections: number;
  /** Heap bytes that it should not exceed; from 85 % on it gives memory back, from 95 % on it refuses requests. */
  readonly maxHeapBytes: number;
}

/** For a gateway that serves thousands of sandboxes. */
export const GATEWAY_LIMITS: Limits = { maxConnections: 50_000, maxHeapBytes: 2 * 1024 ** 3 };

const SOCKET_PATH_BYTES = 107;

/** A static cluster of one UNIX socket that speaks HTTP/2. Circuit breakers are no limit: held requests wait here. */
export function socketCluster(name: string, socket: string, tls?: AnyJson): ClusterJson {
  return {
    name,
    type: 'STATIC',
    connectTimeout: '1s',
    loadAssignment: {
      clusterName: name,
      endpoints: [{ lbEndpoints: [{ endpoint: { address: pipe(socket) } }] }],
    },
    circuitBreakers: {
      thresholds: ['DEFAULT' as const, 'HIGH' as const].map((priority) => ({
        priority,
        maxConnections: 1_000_000,
        maxPendingRequests: 1_000_000,
        maxRequests: 1_000_000,
        maxRetries: 1_000_000,
      })),
    },
    typedExtensionProtocolOptions: {
      'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': any(
        'envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
        { explicitHttpConfig: { http2ProtocolOptions: { connectionKeepalive: { interval: '30s', timeout: '5s' } } } },
      ),
    },
    ...(tls === undefined ? {} : { transportSocket: { name: 'envoy.transport_sockets.tls', typedConfig: tls } }),
  };
}

/** The address of a UNIX socket; throws `socket-path` when it does not fit into a socket address. */
export function pipe(path: string, mode?: number): EnvoyJson['envoy.config.core.v3.Address'] {
  if (!path.startsWith('/') || Buffer.byteLength(path) > SOCKET_PATH_BYTES) {
    throw new CodedError('socket-path', `${path} must be absolute and have at most ${SOCKET_PATH_BYTES} bytes`);
  }
  return { pipe: { path, ...(mode === undefined ? {} : { mode }) } };
}

/** Names of the secrets in the SDS files. */
const OWN_CERTIFICATE = 'own-certificate';
const WORKLOAD_CA = 'workload-ca';

/** Mutual TLS to the server with exactly that role's identity. TLS 1.3 alone: a client's maximum is 1.2 by default. */
export function mutualTls(settings: BootstrapSettings, server: Role): AnyJson {
  return any('envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext', {
    commonTlsContext: {
      tlsParams: { tlsMinimumProtocolVersion: 'TLSv1_3', tlsMaximumProtocolVersion: 'TLSv1_3' },
      alpnProtocols: ['h2'],
      tlsCertificateSdsSecretConfigs: [
        { name: OWN_CERTIFICATE, sdsConfig: secretSource(settings, settings.certificate.certificateFile) },
      ],
      combinedValidationContext: {
        defaultValidationContext: {
          matchTypedSubjectAltNames: [{ sanType: 'URI', matcher: { exact: roleId(server) } }],
        },
        validationContextSdsSecretConfig: {
          name: WORKLOAD_CA,
          sdsConfig: secretSource(settings, settings.certificate.caFile),
        },
      },
    },
  });
}

/** The SDS file of a certificate file; several roles may share the folder. */
function secretPath(settings: BootstrapSettings, certificateFile: string): string {
  return join(settings.folder, `${basename(certificateFile)}.sds.json`);
}

function secretSource(
  settings: BootstrapSettings,
  certificateFile: string,
): EnvoyJson['envoy.config.core.v3.ConfigSource'] {
  return { resourceApiVersion: 'V3', pathConfigSource: { path: secretPath(settings, certificateFile) } };
}

/** Certificates are reloaded only through SDS, so that files that never change point to the files that do. */
function secretFiles(settings: BootstrapSettings): Readonly<Record<string, object>> {
  const { certificateFile, keyFile, caFile } = settings.certificate;
  const secret = (json: EnvoyJson['envoy.extensions.transport_sockets.tls.v3.Secret']): object => ({
    resources: [any('envoy.extensions.transport_sockets.tls.v3.Secret', json)],
  });
  return {
    [secretPath(settings, certificateFile)]: secret({
      name: OWN_CERTIFICATE,
      tlsCertificate: {
        certificateChain: { filename: certificateFile },
        privateKey: { filename: keyFile },
        watchedDirectory: { path: dirname(certificateFile) },
      },
    }),
    [secretPath(settings, caFile)]: secret({
      name: WORKLOAD_CA,
      validationContext: { trustedCa: { filename: caFile }, watchedDirectory: { path: dirname(caFile) } },
    }),
  };
}

/** Everything over one delta ADS stream; listeners and clusters are waited for without a limit, so nothing half works. */
const DYNAMIC_RESOURCES: NonNullable<BootstrapJson['dynamicResources']> = {
  adsConfig: {
    apiType: 'DELTA_GRPC',
    transportApiVersion: 'V3',
    setNodeOnFirstMessageOnly: true,
    grpcServices: [
      {
        envoyGrpc: {
          clusterName: 'xds',
          retryPolicy: { retryBackOff: { baseInterval: '0.1s', maxInterval: '2s' } },
        },
      },
    ],
  },
  ldsConfig: { ads: {}, resourceApiVersion: 'V3', initialFetchTimeout: '0s' },
  cdsConfig: { ads: {}, resourceApiVersion: 'V3', initialFetchTimeout: '0s' },
};

/** Shedding in order: give memory back, hurry the idle, refuse what is new, cut the greediest; never all at once. */
function overloadManager(limits: Limits): NonNullable<BootstrapJson['overloadManager']> {
  const heap = 'envoy.resource_monitors.fixed_heap';
  const action = (name: string, value: number): EnvoyJson['envoy.config.overload.v3.OverloadAction'] => ({
    name: `envoy.overload_actions.${name}`,
    triggers: [{ name: heap, threshold: { value } }],
  });
  return {
    refreshInterval: '0.250s',
    resourceMonitors: [
      {
        name: heap,
        typedConfig: any('envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig', {
          maxHeapSizeBytes: String(limits.maxHeapBytes),
        }),
      },
      {
        name: 'envoy.resource_monitors.global_downstream_max_connections',
        typedConfig: any('envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig', {
          maxActiveDownstreamConnections: String(limits.maxConnections),
        }),
      },
    ],
    actions: [
      action('shrink_heap', 0.85),
      action('disable_http_keepalive', 0.9),
      action('stop_accepting_requests', 0.95),
      action('stop_accepting_connections', 0.98),
    ],
  };
}

/**
 * Statistics that are kept. Every policy, name and set has clusters and listeners of its own, whose hundred counters
 * each would be most of the memory; of those only what tells of traffic and failures is kept.
 */
const STATS: NonNullable<BootstrapJson['statsConfig']> = {
  statsMatcher: {
    inclusionList: {
      patterns: [
        ...['server.', 'listener_manager.', 'cluster_manager.', 'control_plane.', 'overload.', 'sds.', 'runtime.'],
        ...['http.', 'tcp.', 'dns_filter.', 'dns_cache.', 'access_logs.', 'listener.', 'main_thread.', 'workers.'],
        ...['cluster.xds.', 'cluster.processor.', 'cluster.gateway.'],
      ]
        .map((prefix): EnvoyJson['envoy.type.matcher.v3.StringMatcher'] => ({ prefix }))
        .concat(
          ['cx_total', 'cx_active', 'cx_connect_fail', 'rq_total', 'rq_active', 'rq_2xx', 'rq_4xx', 'rq_5xx'].map(
            (name) => ({ suffix: `.upstream_${name}` }),
          ),
        ),
    },
  },
};

/** What a role adds to the common part. */
export interface RolePart {
  /** `node.cluster` and the names of the bootstrap's file. */
  readonly role: string;
  readonly clusters: readonly ClusterJson[];
  readonly limits: Limits;
  readonly extra?: Partial<BootstrapJson>;
}

/** The bootstrap of a role: admin on a UNIX socket, delta ADS over mutual TLS, overload limits, the role's clusters. */
export function commonBootstrap(settings: BootstrapSettings, part: RolePart): Bootstrap {
  const { role, clusters, limits, extra = {} } = part;
  const xds = socketCluster('xds', settings.xdsSocket, mutualTls(settings, 'control-plane'));
  return {
    path: join(settings.folder, `envoy-${role}.json`),
    files: secretFiles(settings),
    json: {
      node: { id: settings.id, cluster: `sandgate-${role}` },
      admin: { address: pipe(settings.adminSocket, 0o600) },
      bootstrapExtensions: [
        {
          name: 'envoy.bootstrap.internal_listener',
          typedConfig: any('envoy.extensions.bootstrap.internal_listener.v3.InternalListener', {}),
        },
      ],
      dynamicResources: DYNAMIC_RESOURCES,
      staticResources: { clusters: [xds, ...clusters] },
      layeredRuntime: {
        layers: [
          {
            name: 'static',
            // Without it every ext_proc stream ends in a reset, and Node closes a connection with too many resets.
            staticLayer: { 'envoy.reloadable_features.ext_proc_graceful_grpc_close': true },
          },
        ],
      },
      overloadManager: overloadManager(settings.limits ?? limits),
      statsConfig: STATS,
      deferredStatOptions: { enableDeferredCreationStats: true },
      ...extra,
    },
  };
}

/**
 * Checks a bootstrap and writes it with its files, mode 0600, each by one rename. Returns the path for Envoy's `-c`.
 * Throws `invalid-resource` before anything is written.
 */
export async function writeBootstrap(bootstrap: Bootstrap): Promise<string> {
  resource('envoy.config.bootstrap.v3.Bootstrap', bootstrap.json);
  const files = { ...bootstrap.files, [bootstrap.path]: bootstrap.json };
  for (const [path, json] of Object.entries(files)) {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await replacePrivate(path, `${canonicalJson(json)}\n`);
  }
  return bootstrap.path;
}
