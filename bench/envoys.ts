/** The Envoys of a run: upstream, bare, and gateways with a TCP listener in front of their compiled resources. */
import { join } from 'node:path';
import { createLogger, type Logger, silentLogger } from '../base/logger.ts';
import { Child } from '../cli/child-process.ts';
import { type Bootstrap, type BootstrapJson, pipe, writeBootstrap } from '../envoy/bootstrap-common.ts';
import { egressBootstrap } from '../envoy/bootstrap-egress.ts';
import { ingressBootstrap } from '../envoy/bootstrap-ingress.ts';
import { findEnvoy } from '../envoy/find.ts';
import type { Wrap } from '../envoy/guard.ts';
import { type EnvoyProcess, superviseEnvoy } from '../envoy/supervise.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import type { BenchPlane } from './plane.ts';
import { pinned } from './processes.ts';

export type ListenerJson = EnvoyJson['envoy.config.listener.v3.Listener'];

/** Name of the listener that the load is sent to. */
export const BENCH_LISTENER = 'bench';

/** Where something listens. */
export interface Address {
  readonly address: string;
  readonly port: number;
}

/** Starts the upstream, apart from the Envoys under test. */
export async function startUpstream({ address, port }: Address): Promise<Child> {
  const argv = [process.execPath, join(import.meta.dirname, 'upstream.ts'), address, String(port)];
  const child = new Child({ name: 'upstream', argv: pinned('rest', argv), logger: createLogger('bench') });
  await child.ready(10_000);
  return child;
}

/** An Envoy with one route and its defaults: what the compiled paths are compared with. */
export async function startBare(folder: string, port: number, upstream: Address): Promise<EnvoyProcess> {
  const adminSocket = join(folder, 'bare-admin.sock');
  const socketAddress = { address: upstream.address, portValue: upstream.port };
  const endpoint = { lbEndpoints: [{ endpoint: { address: { socketAddress } } }] };
  const json: BootstrapJson = {
    node: { id: 'bare', cluster: 'bench' },
    admin: { address: pipe(adminSocket, 0o600) },
    staticResources: {
      listeners: [tcpListener({ address: '127.0.0.1', port }, 'upstream')],
      clusters: [
        {
          name: 'upstream',
          type: 'STATIC',
          connectTimeout: '1s',
          loadAssignment: { clusterName: 'upstream', endpoints: [endpoint] },
        },
      ],
    },
  };
  const bootstrap = { path: join(folder, 'bare.json'), json, files: {} };
  return startEnvoy(bootstrap, { name: 'bare', adminSocket, listeners: [BENCH_LISTENER] });
}

function tcpListener({ address, port }: Address, cluster: string): ListenerJson {
  const manager = any('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
    statPrefix: BENCH_LISTENER,
    routeConfig: {
      name: 'one',
      virtualHosts: [{ name: 'all', domains: ['*'], routes: [{ match: { prefix: '/' }, route: { cluster } }] }],
    },
    httpFilters: [
      {
        name: 'envoy.filters.http.router',
        typedConfig: any('envoy.extensions.filters.http.router.v3.Router', {}),
      },
    ],
  });
  return {
    name: BENCH_LISTENER,
    address: { socketAddress: { address, portValue: port } },
    filterChains: [{ filters: [{ name: 'requests', typedConfig: manager }] }],
  };
}

/**
 * A gateway of the plane, with the bootstrap of its role and one listener more, which takes the load where production
 * has a UNIX socket or a tunnel.
 */
export async function startGateway(
  plane: BenchPlane,
  role: 'egress' | 'ingress',
  listener: ListenerJson | null,
  xdsSocket = plane.layout.socket('xds'),
): Promise<EnvoyProcess> {
  const { layout, pki } = plane;
  const { certificateFile, keyFile } = await pki.issueRoleCertificate(role);
  const adminSocket = layout.socket(`envoy-${role}`);
  const settings = {
    id: role,
    folder: join(layout.run, `envoy-${role}`),
    xdsSocket,
    adminSocket,
    processorSocket: layout.socket(`${role}-processor`),
    certificate: { certificateFile, keyFile, caFile: pki.caFile },
  };
  const { path, json, files } = role === 'egress' ? egressBootstrap(settings) : ingressBootstrap(settings);
  const listeners = listener === null ? [] : [listener];
  const bootstrap = { path, files, json: { ...json, staticResources: { ...json.staticResources, listeners } } };
  return startEnvoy(bootstrap, { name: role, adminSocket, listeners: [role, ...listeners.map(({ name }) => name!)] });
}

type Place = Parameters<typeof pinned>[0];

/** Starts an Envoy and waits until its listeners are there. */
export async function startEnvoy(
  bootstrap: Bootstrap,
  options: {
    readonly name: string;
    readonly adminSocket: string;
    readonly listeners: readonly string[];
    readonly place?: Place;
    readonly wrap?: Wrap;
  },
): Promise<EnvoyProcess> {
  const { name, adminSocket, listeners, place = 'test', wrap = (argv) => argv } = options;
  const envoy = superviseEnvoy({
    binary: await findEnvoy(),
    bootstrapPath: await writeBootstrap(bootstrap),
    adminSocket,
    logger: onlyErrors(createLogger(`envoy-${name}`)),
    concurrency: 1,
    drainSeconds: 1,
    listeners,
    wrap: (argv) => wrap(pinned(place, argv)),
  });
  await envoy.ready(60_000).catch(async (error: Error) => {
    await envoy.stop();
    throw error;
  });
  return envoy;
}

/** Envoy warns of many things that do not matter here, such as the end of a stream when it is stopped. */
function onlyErrors(logger: Logger): Logger {
  return { ...silentLogger, error: (fields, message) => logger.error(fields, message) };
}
