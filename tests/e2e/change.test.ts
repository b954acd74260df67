import { type ChildProcess, spawn } from 'node:child_process';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane, until } from './plane.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** What an edit of a policy file does to traffic that runs (Done when 3). */
const change = suite('changing a policy under traffic');
let plane: TestPlane;
let upstream: Upstream;
let traffic: ChildProcess;
const ticks: { at: number; status: number }[] = [];
const closed: Record<string, number> = {};
const open = new Set<string>();

const OTHER = 'other.example.test';
const GONE = 'gone.example.test';

/** Runs inside the sandbox: a request every 20 ms on one kept connection, and one idle connection per name. */
function script(port: number): string {
  return `
const http = require('node:http'), net = require('node:net');
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const tick = () => {
  const at = Date.now();
  http.get({ host: '${API}', port: ${port}, path: '/tick', agent }, (answer) => {
    answer.resume();
    answer.on('end', () => { console.log('tick', at, answer.statusCode); setTimeout(tick, 20); });
  }).on('error', () => { console.log('tick', at, 0); setTimeout(tick, 20); });
};
tick();
for (const name of ['${OTHER}', '${GONE}']) {
  const socket = net.connect(${port}, name);
  socket.on('connect', () => socket.write('GET /idle HTTP/1.1\\r\\nHost: ' + name + ':${port}\\r\\n\\r\\n'));
  socket.once('data', () => console.log('open', name));
  socket.on('error', () => {});
  socket.on('close', () => console.log('closed', name, Date.now()));
}`;
}

function policies(allowed: readonly string[], blocked: string): string {
  return yaml(
    trafficPolicy(
      'mover-egress',
      'mover',
      allowed.map((fqdn) => ({ action: 'allow', to: [{ fqdn }] })),
    ),
    securityProfile('mover-requests', 'mover', [
      { name: 'stop', match: [{ domains: [API], paths: [{ type: 'Exact', value: blocked }] }], actions: { block: {} } },
    ]),
  );
}

/** Saves as an editor does; gives the time of the save. */
async function save(text: string): Promise<number> {
  const file = join(plane.dir, 'policy.yaml');
  await writeFile(`${file}.tmp`, text, { mode: 0o600 });
  await rename(`${file}.tmp`, file);
  return Date.now();
}

async function sent(): Promise<Record<string, number>> {
  const { metrics } = (await plane.admin('GET', '/metrics')) as { metrics: string };
  const lines = metrics.matchAll(/^sandgate_xds_resources_total\{type="(\w+)",kind="sent"\} (\d+)/gm);
  return Object.fromEntries([...lines].map(([, type = '', count]) => [type, Number(count)]));
}

function grown(before: Record<string, number>, after: Record<string, number>): Record<string, number> {
  const names = Object.keys(after).filter((name) => after[name] !== (before[name] ?? 0));
  return Object.fromEntries(names.map((name) => [name, after[name]! - (before[name] ?? 0)]));
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 2500));

change.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': `${settings()}`.replace('trust:', `  ${GONE}: 127.0.0.1\ntrust:`),
      'ca.pem': upstream.caPem,
      'sandboxes.yaml': yaml(sandbox('mover'), sandbox('bystander')),
      'policy.yaml': policies([API, OTHER, GONE], '/never'),
      'bystander.yaml': yaml(
        trafficPolicy('bystander-egress', 'bystander', [{ action: 'allow', to: [{ fqdn: API }] }]),
      ),
    },
  });
  await Promise.all([plane.phase('mover', 'Running'), plane.phase('bystander', 'Running')]);
  const { argv, env } = await plane.execSpec('mover', ['/opt/sandgate/node', '-e', script(upstream.httpPort)]);
  traffic = spawn(argv[0]!, argv.slice(1), { env, stdio: ['ignore', 'pipe', 'inherit'] });
  createInterface({ input: traffic.stdout! }).on('line', (line) => {
    const [what, first = '', second = ''] = line.split(' ');
    if (what === 'tick') {
      ticks.push({ at: Number(first), status: Number(second) });
    } else if (what === 'open') {
      open.add(first);
    } else if (what === 'closed') {
      closed[first] = Number(second);
    }
  });
  await until('traffic', 10_000, () => open.size === 2 && ticks.length > 5);
});

change.after(async () => {
  traffic?.kill('SIGKILL');
  await plane?.stop();
  await upstream?.close();
});

change('all of it runs', () => {
  assert.is(ticks.at(-1)?.status, 200);
  assert.equal(closed, {});
});

change('a rule that blocks is in force for the next request within 300 ms, on the same connection', async () => {
  await settled();
  const before = await sent();
  const at = await save(policies([API, OTHER, GONE], '/tick'));
  await until('a blocked tick', 5000, () => ticks.at(-1)?.status === 403);
  const first = ticks.find((tick) => tick.at >= at && tick.status === 403);
  assert.ok(first !== undefined && first.at - at <= 300, `${first === undefined ? 'never' : first.at - at} ms`);
  await settled();
  // One new table, its pin, and the scope of the one sandbox that it is for.
  assert.equal(grown(before, await sent()), { routes: 1, scope: 2 });
  assert.equal(closed, {});
  assert.is(ticks.filter((tick) => tick.status === 0).length, 0);
});

change('it is lifted as fast', async () => {
  const at = await save(policies([API, OTHER, GONE], '/never'));
  await until('an allowed tick', 5000, () => ticks.at(-1)?.status === 200);
  const first = ticks.find((tick) => tick.at >= at && tick.status === 200);
  assert.ok(first !== undefined && first.at - at <= 300, `${first === undefined ? 'never' : first.at - at} ms`);
});

change('a connection that has become forbidden ends within 5 s; those that stay allowed survive', async () => {
  await settled();
  const at = await save(policies([API, OTHER], '/never'));
  await until('the forbidden connection to end', 8000, () => closed[GONE] !== undefined);
  assert.ok(closed[GONE]! - at <= 5000, `${closed[GONE]! - at} ms`);
  await settled();
  assert.is(closed[OTHER], undefined);
  const after = ticks.filter((tick) => tick.at > at);
  assert.ok(after.length > 20);
  assert.equal([...new Set(after.map(({ status }) => status))], [200]);
});

change('the same file again sends nothing', async () => {
  await settled();
  const before = await sent();
  await save(policies([API, OTHER], '/never'));
  await settled();
  assert.equal(grown(before, await sent()), {});
});

change.run();
