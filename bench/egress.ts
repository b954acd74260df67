import type { CompiledPlane } from '../control-plane/routes.ts';
import { any } from '../proto/resource.ts';
import { ask, expect } from './ask.ts';
import { BENCH_LISTENER, type ListenerJson, startBare, startGateway, startUpstream } from './envoys.ts';
import { serveNames } from './names.ts';
import { BenchPlane } from './plane.ts';
import { processCpu } from './processes.ts';
import { type Metrics, metric } from './report.ts';
import { middle, ratio, runRounds, type Sample, type Variant } from './rounds.ts';
import { startSandboxNetwork } from './sandbox-network.ts';
import { ip, onStage, type Stage, type SuiteContext } from './suite.ts';
import { SEEN_MARK } from './upstream.ts';
import { apiHost, egressWorld, NAMESPACE } from './worlds.ts';

const SANDBOXES = 1000;
/** A sandbox of group 7, and a host that only this group's table lists. */
const SUBJECT = 'sandbox-527';
const HOST = apiHost(57);
const UPSTREAM = { address: '198.51.100.10', port: 80 };
const BARE_PORT = 8080;
const RESOLVER_PORT = 5300;
const CONNECTIONS = 64;
const STATE_UID = 'agents.sandbox.uid';

/** The egress gateway's paths for HTTP requests to a listed name, against a bare Envoy. */
export function run(context: SuiteContext): Promise<Metrics> {
  return onStage(async (stage) => {
    const egress = await prepare(stage, context);
    const samples = await runRounds(egress.variants, context);
    return metricsOf(samples);
  });
}

async function prepare(stage: Stage, { say }: SuiteContext): Promise<{ readonly variants: readonly Variant[] }> {
  await ip('addr', 'add', `${UPSTREAM.address}/32`, 'dev', 'lo');
  const names = await serveNames(RESOLVER_PORT, UPSTREAM.address);
  stage.defer(() => names.close());
  say(`loading ${SANDBOXES} sandboxes and 100 profiles, starting control plane and egress processor …`);
  const plane = await BenchPlane.start({
    world: egressWorld(SANDBOXES),
    settings: `dns:\n  resolver: 127.0.0.1:${RESOLVER_PORT}\n`,
    roles: ['control-plane', 'egress-processor'],
  });
  stage.defer(() => plane.close());
  const address = await plane.virtualAddress(HOST);
  await ip('addr', 'add', `${address}/32`, 'dev', 'lo');
  const { uid = '' } = (await plane.store.get('Sandbox', { namespace: NAMESPACE, name: SUBJECT })).metadata;
  const compiled = await plane.compiled();
  const tables = compiled.egress.filter(({ name }) => name.startsWith('pset-'));
  say(`the sandbox's table has ${routesOf(compiled, uid)} routes; there are ${tables.length} tables`);
  const folder = await stage.folder();
  const upstream = await startUpstream(UPSTREAM);
  stage.defer(() => upstream.stop());
  const bare = stage.keep(await startBare(folder, BARE_PORT, UPSTREAM));
  const native = stage.keep(await startGateway(plane, 'egress', innerListener(compiled, uid, address)));
  const { sidecar, enter } = await startSandboxNetwork(stage, plane, { namespace: NAMESPACE, uid });
  await plane.settled(2);
  // In this spelling wrk leaves out its own.
  const headers = { Host: HOST };
  const processed = async () =>
    (await native.admin.stats('^cluster\\.processor\\.upstream_rq_total$'))['cluster.processor.upstream_rq_total'] ?? 0;
  const node = { node: () => processCpu(plane.pid('egress-processor')) };
  const url = `http://${address}:80`;
  return {
    variants: [
      {
        name: 'bare',
        envoy: bare,
        load: { url: `http://127.0.0.1:${BARE_PORT}/v1/items/42`, headers, connections: CONNECTIONS },
        processor: null,
        prove: async () => {
          expect('bare: an unruled path', (await ask(`http://127.0.0.1:${BARE_PORT}/admin/x`, headers)).status, 200);
        },
      },
      {
        name: 'native',
        envoy: native,
        load: { url: `${url}/v1/items/42`, headers, connections: CONNECTIONS },
        processor: null,
        processed,
        prove: () => proof('native', url, '/admin/x', '/v1/items/42'),
      },
      {
        name: 'tunnel',
        envoy: native,
        load: { url: `${url}/v1/items/42`, headers, connections: CONNECTIONS },
        prefix: enter,
        processor: null,
        processed,
        others: { sidecar: () => processCpu(sidecar.pid!) },
        prove: () => proof('tunnel', url, '/admin/x', '/v1/items/42', enter),
      },
      {
        name: 'ext_proc',
        envoy: native,
        // A path that normalising would change: the same decision, taken by the processor (D8).
        load: { url: `${url}/v1//items/42`, headers, connections: CONNECTIONS },
        processor: () => plane.pid('egress-processor'),
        processed,
        others: node,
        prove: () => proof('ext_proc', url, '/admin//x', '/v1//items/42'),
      },
    ],
  };
}

/** One request that the policy blocks, and one that it changes. */
async function proof(
  name: string,
  url: string,
  blocked: string,
  changed: string,
  prefix: readonly string[] = [],
): Promise<void> {
  const refused = await ask(url + blocked, { host: HOST }, prefix);
  expect(`${name}: status of a blocked request`, refused.status, 403);
  expect(`${name}: body of a blocked request`, refused.body, 'no admin');
  const passed = await ask(url + changed, { host: HOST }, prefix);
  expect(`${name}: status of a changed request`, passed.status, 200);
  expect(`${name}: the header that the policy sets`, passed.headers[SEEN_MARK], HOST);
}

function compiledNamed<T>({ egress }: CompiledPlane, kind: string, name: string): T {
  const found = egress.find((resource) => resource.type.endsWith(`.${kind}`) && resource.name === name);
  if (found === undefined) {
    throw new Error(`the compiler made no ${kind} ${name}`);
  }
  return found.resource as T;
}

/** Name of the route configuration of a scope. */
function tableOf(compiled: CompiledPlane, scope: string): string {
  return compiledNamed<{ routeConfigurationName: string }>(compiled, 'ScopedRouteConfiguration', scope)
    .routeConfigurationName;
}

interface TableJson {
  readonly virtualHosts: readonly { readonly routes: readonly unknown[] }[];
}

function routesOf(compiled: CompiledPlane, uid: string): number {
  const table = compiledNamed<TableJson>(compiled, 'RouteConfiguration', tableOf(compiled, `i:${uid}`));
  return table.virtualHosts.reduce((sum, { routes }) => sum + routes.length, 0);
}

/**
 * The compiled inner listener of the sandbox, on TCP at the name's virtual address instead of behind the tunnel; the
 * tunnel's one contribution, the verified identity, is set by a filter in front of the compiled ones.
 */
function innerListener(compiled: CompiledPlane, uid: string, address: string): ListenerJson {
  const name = tableOf(compiled, uid).replace(/^eset-/, 'in-');
  const found = compiledNamed<ListenerJson>(compiled, 'Listener', name);
  const { internalListener: _, filterChains = [], ...listener } = found;
  const identity = {
    name: 'identity',
    typedConfig: any('envoy.extensions.filters.network.set_filter_state.v3.Config', {
      onNewConnection: [
        {
          objectKey: STATE_UID,
          factoryKey: 'envoy.hashable_string',
          formatString: { textFormatSource: { inlineString: uid } },
        },
      ],
    }),
  };
  return {
    ...listener,
    name: BENCH_LISTENER,
    address: { socketAddress: { address, portValue: 80 } },
    filterChains: filterChains.map((chain) => ({ ...chain, filters: [identity, ...(chain.filters ?? [])] })),
  };
}

function metricsOf(samples: Readonly<Record<string, readonly Sample[]>>): Metrics {
  const { bare = [], native = [], tunnel = [], ext_proc: extProc = [] } = samples;
  const base = `bare Envoy, ${middle(bare, ({ perSecond }) => perSecond).toFixed(0)} requests/s`;
  const cpu = (list: readonly Sample[]) => middle(list, ({ envoyUs }) => envoyUs);
  const bareCpu = `bare Envoy, ${cpu(bare).toFixed(1)} us`;
  return {
    'egress.native_ratio': metric(ratio(native, bare), 'ratio', base),
    'egress.tunnel_ratio': metric(ratio(tunnel, bare), 'ratio', base),
    'egress.extproc_ratio': metric(ratio(extProc, bare), 'ratio', base),
    'egress.native_envoy_us_per_request': metric(cpu(native), 'us', bareCpu),
    'egress.extproc_envoy_us_per_request': metric(cpu(extProc), 'us', bareCpu),
    'egress.node_us_per_request': metric(
      middle(extProc, ({ otherUs }) => otherUs['node']!),
      'us',
      'CPU time of the egress processor',
    ),
  };
}
