import type { CompiledPlane } from '../control-plane/routes.ts';
import type { EnvoyProcess } from '../envoy/supervise.ts';
import { ask, expect } from './ask.ts';
import { BENCH_LISTENER, type ListenerJson, startBare, startGateway, startUpstream } from './envoys.ts';
import { BenchPlane } from './plane.ts';
import { processCpu } from './processes.ts';
import { type Metrics, median, metric } from './report.ts';
import { middle, ratio, runRounds, type Sample, type Variant } from './rounds.ts';
import { ip, onStage, type Stage, type SuiteContext } from './suite.ts';
import { SEEN_ADDRESS } from './upstream.ts';
import { accessToken, ingressWorld, podAddress, sandboxId } from './worlds.ts';
import { runWrk } from './wrk.ts';

const SANDBOXES = 2000;
const SUBJECT = 1234;
const SANDBOX_PORT = 3000;
const DOMAIN = 'bench.test';
/** Not the default of the scheme, so that clients write it into Host, as in local mode. */
const PUBLIC_PORT = 8000;
const BARE_PORT = 8080;
const CONNECTIONS = 64;

/** The ingress gateway's paths to a running sandbox, against a bare Envoy. */
export function run(context: SuiteContext): Promise<Metrics> {
  return onStage(async (stage) => {
    const variants = await prepare(stage, context);
    const samples = await runRounds(variants, context);
    const [bare, native] = variants;
    const added = await addedLatency(bare!, native!, context);
    return { ...metricsOf(samples), 'ingress.added_p50_ms': added };
  });
}

async function prepare(stage: Stage, { say }: SuiteContext): Promise<readonly Variant[]> {
  await ip('addr', 'add', '10.244.0.1/16', 'dev', 'lo');
  say(`loading ${SANDBOXES} sandboxes, starting control plane and ingress processor …`);
  const plane = await BenchPlane.start({
    world: ingressWorld(SANDBOXES),
    settings: `domain: ${DOMAIN}\n`,
    roles: ['control-plane', 'ingress-processor'],
    ingressPort: PUBLIC_PORT,
  });
  stage.defer(() => plane.close());
  const compiled = await plane.compiled();
  const scopes = compiled.ingress.filter(({ name }) => name.endsWith(`.${DOMAIN}:${PUBLIC_PORT}`)).length;
  expect('native scopes', scopes, SANDBOXES);
  const upstream = await startUpstream({ address: '0.0.0.0', port: SANDBOX_PORT });
  stage.defer(() => upstream.stop());
  const pod = { address: podAddress(SUBJECT), port: SANDBOX_PORT };
  const bare = stage.keep(await startBare(await stage.folder(), BARE_PORT, pod));
  const gateway = stage.keep(await startGateway(plane, 'ingress', tcpListener(compiled)));
  await plane.settled(1);
  return variantsOf({ plane, bare, gateway });
}

/** The compiled listener, on TCP instead of the UNIX socket behind the relay of `up`. */
function tcpListener({ ingress }: CompiledPlane): ListenerJson {
  const found = ingress.find(({ type, name }) => type.endsWith('.Listener') && name === 'ingress');
  const address = { socketAddress: { address: '127.0.0.1', portValue: PUBLIC_PORT } };
  return { ...(found!.resource as ListenerJson), name: BENCH_LISTENER, address };
}

interface Stand {
  readonly plane: BenchPlane;
  readonly bare: EnvoyProcess;
  readonly gateway: EnvoyProcess;
}

function variantsOf({ plane, bare, gateway }: Stand): readonly Variant[] {
  const counter = 'cluster.processor.upstream_rq_total';
  const processed = async () => (await gateway.admin.stats(`^${counter.replaceAll('.', '\\.')}$`))[counter] ?? 0;
  const token = { 'x-access-token': accessToken(SUBJECT) };
  // In this spelling wrk leaves out its own.
  const host = { Host: `${SANDBOX_PORT}-${sandboxId(SUBJECT)}.${DOMAIN}:${PUBLIC_PORT}` };
  const named = { Host: DOMAIN, 'e2b-sandbox-id': sandboxId(SUBJECT), 'e2b-sandbox-port': String(SANDBOX_PORT) };
  const url = (port: number) => `http://127.0.0.1:${port}/health`;
  const load = (port: number, headers: Readonly<Record<string, string>>) => ({
    url: url(port),
    headers: { ...headers, ...token },
    connections: CONNECTIONS,
  });
  return [
    {
      name: 'bare',
      envoy: bare,
      load: load(BARE_PORT, host),
      processor: null,
      prove: async () => expect('bare: any token', (await ask(url(BARE_PORT), host)).status, 200),
    },
    {
      name: 'native',
      envoy: gateway,
      load: load(PUBLIC_PORT, host),
      processor: null,
      processed,
      prove: () => proof('native', url(PUBLIC_PORT), host),
    },
    {
      name: 'ext_proc',
      envoy: gateway,
      // The header form has no scope of its own: the processor gives the same sandbox (ingress-gateway §1).
      load: load(PUBLIC_PORT, named),
      processor: () => plane.pid('ingress-processor'),
      processed,
      others: { node: () => processCpu(plane.pid('ingress-processor')) },
      prove: () => proof('ext_proc', url(PUBLIC_PORT), named),
    },
  ];
}

/** A wrong token is refused, and the right one leads to the right sandbox. */
async function proof(name: string, url: string, headers: Readonly<Record<string, string>>): Promise<void> {
  const refused = await ask(url, { ...headers, 'x-access-token': accessToken(SUBJECT + 1) });
  expect(`${name}: status with another sandbox's token`, refused.status, 401);
  const passed = await ask(url, { ...headers, 'x-access-token': accessToken(SUBJECT) });
  expect(`${name}: status with its own token`, passed.status, 200);
  const pod = `${podAddress(SUBJECT)}:${SANDBOX_PORT}`;
  expect(`${name}: the address that was reached`, passed.headers[SEEN_ADDRESS], pod);
}

/** How much later the median answer comes when nothing waits for anything: one connection, alternating short runs. */
async function addedLatency(bare: Variant, native: Variant, { wrk, rounds, say }: SuiteContext) {
  const p50 = async ({ load }: Variant) => (await runWrk(wrk, { ...load, connections: 1, seconds: 1 })).p50Ms;
  const pairs: (readonly [number, number])[] = [];
  for (let round = 0; round < rounds; round += 1) {
    pairs.push([await p50(bare), await p50(native)]);
  }
  say(`one connection, p50 in ms, bare and native: ${pairs.map((pair) => pair.join(' ')).join(', ')}`);
  const base = median(pairs.map(([plain]) => plain));
  return metric(median(pairs.map(([plain, ours]) => ours - plain)), 'ms', `bare Envoy, ${base} ms`);
}

function metricsOf(samples: Readonly<Record<string, readonly Sample[]>>): Metrics {
  const { bare = [], native = [], ext_proc: extProc = [] } = samples;
  const base = `bare Envoy, ${middle(bare, ({ perSecond }) => perSecond).toFixed(0)} requests/s`;
  const cpu = (list: readonly Sample[]) => middle(list, ({ envoyUs }) => envoyUs);
  const bareCpu = `bare Envoy, ${cpu(bare).toFixed(1)} us`;
  return {
    'ingress.native_ratio': metric(ratio(native, bare), 'ratio', base),
    'ingress.extproc_ratio': metric(ratio(extProc, bare), 'ratio', base),
    'ingress.native_envoy_us_per_request': metric(cpu(native), 'us', bareCpu),
    'ingress.extproc_envoy_us_per_request': metric(cpu(extProc), 'us', bareCpu),
    'ingress.node_us_per_request': metric(
      middle(extProc, ({ otherUs }) => otherUs['node']!),
      'us',
      'CPU time of the ingress processor',
    ),
  };
}
