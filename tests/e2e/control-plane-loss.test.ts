import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { openPki } from '../../identity/pki-directory.ts';
import { sandboxId } from '../../identity/spiffe.ts';
import { layoutOf } from '../../local/layout.ts';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane, until, within } from './plane.ts';
import { processes } from './processes.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** What goes on while the control plane is dead, and what its return costs; then the same for the Envoys. */
const loss = suite('loss of the control plane');

const LOST_MS = process.env['SANDGATE_LONG'] === '1' ? 60_000 : 5000;
const ENVOY_BACK_MS = 2000;
const IDLE = 'other.example.test';

interface Tick {
  readonly at: number;
  readonly what: string;
  readonly status: number;
}

let plane: TestPlane;
let dir: string;
let upstream: Upstream;
let control: ChildProcess | null = null;
let traffic: ChildProcess;
const ticks: Tick[] = [];
const idle: string[] = [];

/**
 * Runs inside the sandbox: requests on one kept connection, on a connection of their own, to a blocked path, and MCP
 * calls that the processor allows and denies; and one idle connection.
 */
function script(port: number): string {
  return `
const http = require('node:http'), net = require('node:net');
const kept = new http.Agent({ keepAlive: true, maxSockets: 1 });
function ask(what, path, pause, agent, tool) {
  const at = Date.now();
  const body = tool && JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool } });
  const headers = body ? { 'content-type': 'application/json', 'content-length': body.length,
    'mcp-protocol-version': '2025-11-25' } : {};
  const done = (status) => { console.log('tick', what, at, status); setTimeout(ask, pause, what, path, pause, agent, tool); };
  const call = http.request({ host: '${API}', port: ${port}, path, agent, headers, method: body ? 'POST' : 'GET' }, (answer) => {
    answer.resume();
    answer.on('end', () => done(answer.statusCode));
  });
  call.setTimeout(5000, () => call.destroy());
  call.on('error', () => done(0));
  call.end(body);
}
ask('kept', '/kept', 20, kept);
ask('fresh', '/fresh', 50, false);
ask('blocked', '/blocked', 100, false);
ask('mcp-read', '/mcp', 100, false, 'read');
ask('mcp-write', '/mcp', 100, false, 'write');
const socket = net.connect(${port}, '${IDLE}');
socket.on('connect', () => socket.write('GET /idle HTTP/1.1\\r\\nHost: ${IDLE}:${port}\\r\\n\\r\\n'));
socket.once('data', () => console.log('idle open'));
socket.on('error', () => {});
socket.on('close', () => console.log('idle closed'));`;
}

const EXPECTED: Readonly<Record<string, number>> = {
  kept: 200,
  fresh: 200,
  blocked: 403,
  'mcp-read': 200,
  'mcp-write': 403,
};

function policies(blocked: string): string {
  const mcp = { defaultAction: 'deny', rules: [{ method: 'tools/call', toolNames: ['read'], action: 'allow' }] };
  const at = (type: string, value: string) => [{ domains: [API], paths: [{ type, value }] }];
  return yaml(
    trafficPolicy('egress', 'worker', [{ action: 'allow', to: [{ fqdn: API }, { fqdn: IDLE }] }]),
    securityProfile('requests', 'worker', [
      { name: 'stop', match: at('Exact', blocked), actions: { block: {} } },
      { name: 'tools', match: at('Prefix', '/mcp'), actions: { mcpToolPolicy: mcp } },
    ]),
  );
}

async function save(text: string): Promise<void> {
  await writeFile(join(dir, 'policy.yaml.tmp'), text, { mode: 0o600 });
  await rename(join(dir, 'policy.yaml.tmp'), join(dir, 'policy.yaml'));
}

/** Runs the control plane apart; it ends with status 1 as long as there is no plane to join. */
async function startControlPlane(): Promise<void> {
  const main = join(import.meta.dirname, '..', '..', 'cli', 'main.ts');
  const end = Date.now() + 30_000;
  while (Date.now() < end) {
    const child = spawn(process.execPath, [main, 'control-plane', '--dir', dir], {
      stdio: ['ignore', 'pipe', process.env['SHOW_LOG'] === undefined ? 'ignore' : 'inherit'],
    });
    control = child;
    const isReady = await new Promise<boolean>((resolve) => {
      createInterface({ input: child.stdout! }).on('line', (line) => line === '{"ready":true}' && resolve(true));
      child.once('exit', () => resolve(false));
    });
    if (isReady) {
      return;
    }
    await sleep(300);
  }
  throw new Error('the control plane was not ready within 30 s');
}

async function killControlPlane(): Promise<void> {
  const ended = new Promise((resolve) => control!.once('exit', resolve));
  control!.kill('SIGKILL');
  await within('the end of the control plane', 5000, ended);
}

/** Resources in responses of the control plane that runs now, by type; it counts from its start. */
async function sent(): Promise<Record<string, number>> {
  const { metrics } = (await plane.admin('GET', '/metrics')) as { metrics: string };
  const lines = metrics.matchAll(/^sandgate_xds_resources_total\{type="(\w+)",kind="(\w+)"\} (\d+)/gm);
  return Object.fromEntries(
    [...lines]
      .filter(([, , , count]) => count !== '0')
      .map(([, type, kind, count]) => [`${type} ${kind}`, Number(count)]),
  );
}

/** The tokens that the sidecars have to have now; they change every ten minutes. */
async function tokens(): Promise<readonly string[]> {
  const issuer = await (await openPki(layoutOf(dir).pki)).tokens();
  const { items } = await plane.store.list('Pod');
  return Promise.all(
    items.map(async ({ metadata }) => {
      const uid = metadata.ownerReferences?.[0]?.uid ?? '';
      const spiffeId = sandboxId({ namespace: metadata.namespace ?? '', uid });
      return (await issuer.issue({ uid, pod: metadata.uid!, spiffeId })).token.reveal();
    }),
  );
}

async function everyEnvoyIsUpToDate(): Promise<boolean> {
  const answer = (await plane.admin('GET', '/status')) as { envoys?: { upToDate: boolean }[] };
  // Two gateways and two sidecars.
  return answer.envoys?.length === 4 && answer.envoys.every(({ upToDate }) => upToDate);
}

function wrong(from: number, to = Date.now()): Tick[] {
  return ticks.filter(({ at, what, status }) => at >= from && at < to && status !== EXPECTED[what]);
}

function counts(from: number, to = Date.now()): Record<string, number> {
  const seen = Map.groupBy(
    ticks.filter(({ at }) => at >= from && at < to),
    ({ what }) => what,
  );
  return Object.fromEntries([...seen].map(([what, list]) => [what, list.length]));
}

loss.before(async () => {
  upstream = await startUpstream(API);
  dir = await mkdtemp(join(tmpdir(), 'sg-loss-'));
  const starting = TestPlane.start({
    dir,
    without: ['control-plane'],
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'sandboxes.yaml': yaml(sandbox('worker'), sandbox('bystander')),
      'policy.yaml': policies('/blocked'),
    },
  });
  await startControlPlane();
  plane = await starting;
  await Promise.all([plane.phase('worker', 'Running'), plane.phase('bystander', 'Running')]);
  const { argv, env } = await plane.execSpec('worker', ['/opt/sandgate/node', '-e', script(upstream.httpPort)]);
  traffic = spawn(argv[0]!, argv.slice(1), { env, stdio: ['ignore', 'pipe', 'inherit'] });
  createInterface({ input: traffic.stdout! }).on('line', (line) => {
    const [kind = '', what = '', at = '', status = ''] = line.split(' ');
    if (kind === 'tick') {
      ticks.push({ at: Number(at), what, status: Number(status) });
    } else {
      idle.push(what);
    }
  });
  await until('traffic', 15_000, () => Object.keys(counts(0)).length === 5 && idle.length > 0);
  await until('every Envoy to be up to date', 15_000, everyEnvoyIsUpToDate);
});

loss.after(async () => {
  traffic?.kill('SIGKILL');
  await plane?.stop();
  control?.kill('SIGKILL');
  await upstream?.close();
  await rm(dir, { recursive: true, force: true });
});

loss(`killed for ${LOST_MS / 1000} s: every request has its answer, and an idle connection stays open`, async () => {
  const before = Date.now();
  const due = await tokens();
  assert.ok(Object.keys(await sent()).length > 4); // What is counted below is counted at all.
  await killControlPlane();
  await sleep(LOST_MS);
  const now = counts(before);
  for (const what of Object.keys(EXPECTED)) {
    assert.ok((now[what] ?? 0) >= LOST_MS / 500, `${what}: ${now[what]}`);
  }
  assert.equal(wrong(before), []);
  assert.equal(idle, ['open']);

  await startControlPlane();
  await until('every Envoy to be back and up to date', 20_000, everyEnvoyIsUpToDate);
  await sleep(2500); // Removals linger for a second.
  const rolled = (await tokens()).filter((token) => !due.includes(token)).length;
  const resent = await sent();
  assert.equal(resent, rolled === 0 ? {} : { 'secret sent': rolled });
  assert.equal(wrong(before), []);
  assert.equal(idle, ['open']);
});

loss('after its return an edit is in force as ever', async () => {
  const at = Date.now();
  await save(policies('/fresh'));
  await until('the edit', 5000, () => ticks.some((tick) => tick.what === 'fresh' && tick.status === 403));
  const first = ticks.find((tick) => tick.what === 'fresh' && tick.status === 403)!;
  assert.ok(first.at - at < 1000, `${first.at - at} ms`);
  await save(policies('/blocked'));
  await until('its end', 5000, () => ticks.at(-1)!.at > at && last('fresh') === 200 && last('blocked') === 403);
});

loss('an edit while it is dead is in force once it is back', async () => {
  await killControlPlane();
  await save(policies('/kept'));
  await sleep(500);
  assert.is(last('kept'), 200);
  await startControlPlane();
  await until('the edit', 5000, () => last('kept') === 403);
  await save(policies('/blocked'));
  await until('its end', 5000, () => last('kept') === 200 && last('blocked') === 403);
});

for (const [what, bootstrap] of [
  ['the egress gateway', /envoy-egress\/envoy-egress\.json/],
  ['a sidecar', null],
] as const) {
  loss(`${what} killed: back with its configuration within ${ENVOY_BACK_MS} ms`, async () => {
    const { uid = '' } = (await plane.store.get('Pod', { namespace: 'default', name: 'worker' })).metadata;
    const mark = bootstrap ?? new RegExp(`sandboxes/${uid}/envoy-sidecar\\.json`);
    const found = processes().filter(
      ({ command }) => command.includes(dir) && mark.test(command) && / -c /.test(command),
    );
    assert.is(found.length, 1, JSON.stringify(found));
    const at = Date.now();
    process.kill(found[0]!.pid, 'SIGKILL');
    const good = (name: string) =>
      ticks.find((tick) => tick.at > at + 50 && tick.what === name && tick.status === EXPECTED[name]);
    await until('traffic', 15_000, () => Object.keys(EXPECTED).every((name) => good(name) !== undefined));
    const back = Math.max(...Object.keys(EXPECTED).map((name) => good(name)!.at)) - at;
    assert.ok(back <= ENVOY_BACK_MS, `${back} ms`);
    // Whatever was answered meanwhile: nothing that is forbidden got through.
    assert.equal(
      ticks.filter((tick) => tick.at >= at && tick.status === 200 && EXPECTED[tick.what] === 403),
      [],
    );
  });
}

function last(what: string): number | undefined {
  return ticks.findLast((tick) => tick.what === what)?.status;
}

loss.run();
