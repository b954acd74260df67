/** A control plane of the smallest kind for bootstraps under test: real mutual TLS, real delta ADS, fixed resources. */
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import type { BootstrapSettings } from '../../envoy/bootstrap-common.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { type EnvoyJson, resource, typeUrl } from '../../proto/resource.ts';
import { service } from '../../proto/service.ts';

const LISTENER = 'envoy.config.listener.v3.Listener';
const CLUSTER = 'envoy.config.cluster.v3.Cluster';

interface DeltaRequest {
  readonly typeUrl: string;
  readonly responseNonce?: string;
  readonly errorDetail?: { readonly message?: string };
  readonly node?: { readonly id?: string };
}

export interface Plane {
  readonly folder: string;
  readonly pki: Pki;
  /** What has arrived: ids of nodes on new streams, refusals, the names of RPC methods. */
  readonly nodes: string[];
  readonly refusals: string[];
  readonly methods: string[];
  settings(role: string): BootstrapSettings;
  close(): Promise<void>;
}

/** Serves these listeners and no clusters on `<folder>/xds.sock`. */
export async function startPlane(listeners: readonly EnvoyJson[typeof LISTENER][] = []): Promise<Plane> {
  const folder = mkdtempSync(join(tmpdir(), 'sandgate-envoy-'));
  const pki = await openPki(join(folder, 'pki'));
  for (const role of ['control-plane', 'egress', 'ingress'] as const) {
    await pki.issueRoleCertificate(role);
  }
  const plane = { folder, pki, nodes: [] as string[], refusals: [] as string[], methods: [] as string[] };
  const server = await startServer(plane, listeners);
  return {
    ...plane,
    settings: (role) => ({
      id: `${role}-1`,
      folder,
      xdsSocket: join(folder, 'xds.sock'),
      adminSocket: join(folder, `envoy-${role}.sock`),
      certificate: {
        certificateFile: join(pki.directory, 'egress.crt'),
        keyFile: join(pki.directory, 'egress.key'),
        caFile: pki.caFile,
      },
    }),
    async close() {
      server.forceShutdown();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

type Record3 = Pick<Plane, 'folder' | 'pki' | 'nodes' | 'refusals' | 'methods'>;

async function startServer(plane: Record3, listeners: readonly EnvoyJson[typeof LISTENER][]): Promise<grpc.Server> {
  const server = new grpc.Server();
  const answers = new Map([
    [typeUrl(CLUSTER), []],
    [typeUrl(LISTENER), listeners.map((json) => ({ name: json.name, bytes: resource(LISTENER, json) }))],
  ]);
  server.addService(service('envoy.service.discovery.v3.AggregatedDiscoveryService'), {
    StreamAggregatedResources: (call: grpc.ServerDuplexStream<unknown, unknown>) => {
      plane.methods.push('state-of-the-world');
      call.end();
    },
    DeltaAggregatedResources: (call: grpc.ServerDuplexStream<DeltaRequest, unknown>) => {
      plane.methods.push('delta');
      call.on('error', () => {});
      call.on('end', () => call.end());
      call.on('data', (request: DeltaRequest) => {
        if (request.node?.id !== undefined) {
          plane.nodes.push(request.node.id);
        }
        if (request.errorDetail !== undefined) {
          plane.refusals.push(request.errorDetail.message ?? '');
        }
        if ((request.responseNonce ?? '') === '') {
          call.write({
            typeUrl: request.typeUrl,
            nonce: '1',
            resources: (answers.get(request.typeUrl) ?? []).map(({ name, bytes }) => ({
              name,
              version: '1',
              resource: { typeUrl: request.typeUrl, value: bytes },
            })),
          });
        }
      });
    },
  });
  const own = await plane.pki.issueRoleCertificate('control-plane');
  const pair = { cert_chain: await readFile(own.certificateFile), private_key: await readFile(own.keyFile) };
  const credentials = grpc.ServerCredentials.createSsl(Buffer.from(plane.pki.caPem), [pair], true);
  await new Promise<void>((bound, failed) => {
    server.bindAsync(`unix:${plane.folder}/xds.sock`, credentials, (error) => (error ? failed(error) : bound()));
  });
  return server;
}

/** Waits until `check` gives something other than undefined or false; rejects after the time. */
export async function eventually<T>(what: string, check: () => T | Promise<T>, timeoutMs = 10_000): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value !== undefined && value !== false) {
      return value;
    }
    if (Date.now() > deadline) {
      throw new Error(`timed out: ${what}`);
    }
    await new Promise((wake) => setTimeout(wake, 20));
  }
}
