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
import { API, sandbox, settings, yaml } from './manifests.ts';
import { TestPlane, until, within } from './plane.ts';
import { processes } from './processes.ts';
import { EXPECTED, Traffic, workerPolicies } from './traffic.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** What goes on while the control plane is dead, and what its return costs; then the same for the Envoys. */
const loss = suite('loss of the control plane');

const LOST_MS = process.env['SANDGATE_LONG'] === '1' ? 60_000 : 5000;
const ENVOY_BACK_MS = 2000;

let plane: TestPlane;
let dir: string;
let upstream: Upstream;
let control: ChildProcess | null = null;
let traffic: Traffic;

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
      'policy.yaml': workerPolicies('/blocked'),
    },
  });
  await startControlPlane();
  plane = await starting;
  await Promise.all([plane.phase('worker', 'Running'), plane.phase('bystander', 'Running')]);
  traffic = await Traffic.start(plane, upstream.httpPort);
  await until('traffic', 15_000, () => traffic.isRunning);
  await until('every Envoy to be up to date', 15_000, everyEnvoyIsUpToDate);
});

loss.after(async () => {
  traffic?.stop();
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
  const now = traffic.counts(before);
  for (const what of Object.keys(EXPECTED)) {
    assert.ok((now[what] ?? 0) >= LOST_MS / 500, `${what}: ${now[what]}`);
  }
  assert.equal(traffic.wrong(before), []);
  assert.equal(traffic.idle, ['open']);

  await startControlPlane();
  await until('every Envoy to be back and up to date', 20_000, everyEnvoyIsUpToDate);
  await sleep(2500); // Removals linger for a second.
  const rolled = (await tokens()).filter((token) => !due.includes(token)).length;
  const resent = await sent();
  assert.equal(resent, rolled === 0 ? {} : { 'secret sent': rolled });
  assert.equal(traffic.wrong(before), []);
  assert.equal(traffic.idle, ['open']);
});

loss('after its return an edit is in force as ever', async () => {
  const at = Date.now();
  await save(workerPolicies('/fresh'));
  await until('the edit', 5000, () => traffic.ticks.some((tick) => tick.what === 'fresh' && tick.status === 403));
  const first = traffic.ticks.find((tick) => tick.what === 'fresh' && tick.status === 403)!;
  assert.ok(first.at - at < 1000, `${first.at - at} ms`);
  await save(workerPolicies('/blocked'));
  await until(
    'its end',
    5000,
    () => traffic.ticks.at(-1)!.at > at && traffic.last('fresh') === 200 && traffic.last('blocked') === 403,
  );
});

loss('an edit while it is dead is in force once it is back', async () => {
  await killControlPlane();
  await save(workerPolicies('/kept'));
  await sleep(500);
  assert.is(traffic.last('kept'), 200);
  await startControlPlane();
  await until('the edit', 5000, () => traffic.last('kept') === 403);
  await save(workerPolicies('/blocked'));
  await until('its end', 5000, () => traffic.last('kept') === 200 && traffic.last('blocked') === 403);
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
      traffic.ticks.find((tick) => tick.at > at + 50 && tick.what === name && tick.status === EXPECTED[name]);
    await until('traffic', 15_000, () => Object.keys(EXPECTED).every((name) => good(name) !== undefined));
    const back = Math.max(...Object.keys(EXPECTED).map((name) => good(name)!.at)) - at;
    assert.ok(back <= ENVOY_BACK_MS, `${back} ms`);
    // Whatever was answered meanwhile: nothing that is forbidden got through.
    assert.equal(
      traffic.ticks.filter((tick) => tick.at >= at && tick.status === 200 && EXPECTED[tick.what] === 403),
      [],
    );
  });
}

loss.run();
