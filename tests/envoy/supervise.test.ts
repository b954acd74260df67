import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { writeBootstrap } from '../../envoy/bootstrap-common.ts';
import { ingressBootstrap } from '../../envoy/bootstrap-ingress.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { findSetpriv, guarded } from '../../envoy/guard.ts';
import { type EnvoyOptions, type EnvoyState, superviseEnvoy } from '../../envoy/supervise.ts';
import { any, type EnvoyJson } from '../../proto/resource.ts';
import { eventually, type Plane, startPlane } from './plane.ts';

const test = suite('supervise');
const HCM = 'envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager';
const ANSWER_OK: EnvoyJson[typeof HCM] = {
  statPrefix: 'edge',
  drainTimeout: '0.100s',
  delayedCloseTimeout: '0.100s',
  routeConfig: {
    virtualHosts: [
      { name: 'all', domains: ['*'], routes: [{ match: { prefix: '/' }, directResponse: { status: 200 } }] },
    ],
  },
  httpFilters: [{ name: 'router', typedConfig: any('envoy.extensions.filters.http.router.v3.Router', {}) }],
};
let plane: Plane;
let options: EnvoyOptions;

test.before(async () => {
  plane = await startPlane([
    {
      name: 'edge',
      address: { socketAddress: { address: '127.0.0.1', portValue: 0 } },
      filterChains: [{ filters: [{ name: 'hcm', typedConfig: any(HCM, ANSWER_OK) }] }],
    },
  ]);
  const settings = plane.settings('ingress');
  options = {
    binary: await findEnvoy(),
    bootstrapPath: await writeBootstrap(ingressBootstrap({ ...settings, processorSocket: join(plane.folder, 'p') })),
    adminSocket: settings.adminSocket,
    logger: silentLogger,
    concurrency: 1,
    drainSeconds: 2,
  };
});
test.after(() => plane.close());

/** Whether a process runs; one that has ended and was not waited for does not. */
function runs(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

test('a killed Envoy is back within two seconds', async () => {
  const states: EnvoyState[] = [];
  const envoy = superviseEnvoy({ ...options, onState: (state) => states.push(state) });
  try {
    await envoy.ready(15_000);
    const first = envoy.pid!;
    const killed = Date.now();
    process.kill(first, 'SIGKILL');
    await eventually('the end is noticed', () => envoy.state !== 'live');
    await envoy.ready(5000);
    assert.ok(Date.now() - killed < 2000, `${Date.now() - killed} ms`);
    assert.is(envoy.restarts, 1);
    assert.is.not(envoy.pid, first);
    assert.equal(states, ['live', 'waiting', 'starting', 'live']);
  } finally {
    await Promise.all([envoy.stop(), envoy.stop()]);
  }
  assert.is(envoy.state, 'stopped');
  assert.is(envoy.pid, null);
  assert.ok(await rejects(envoy.ready(), 'envoy-not-ready'));
});

async function rejects(work: Promise<unknown>, code: string): Promise<boolean> {
  return work.then(
    () => false,
    (error: unknown) => isCoded(error, code),
  );
}

test('an Envoy that cannot start is tried again with growing pauses until it is stopped', async () => {
  const delays: unknown[] = [];
  const logger = {
    ...silentLogger,
    warn: (fields: object): void => void delays.push((fields as { delayMs?: unknown }).delayMs),
  };
  const envoy = superviseEnvoy({ ...options, bootstrapPath: '/nowhere.json', logger });
  assert.ok(await rejects(envoy.ready(700), 'envoy-not-ready'));
  await eventually('two pauses', () => delays.length >= 2);
  await envoy.stop();
  assert.equal(delays.slice(0, 2), [50, 100]);
  const missing = superviseEnvoy({ ...options, binary: '/nowhere/envoy' });
  assert.ok(await rejects(missing.ready(200), 'envoy-not-ready'));
  await missing.stop();
});

test('it is not ready without its listeners', async () => {
  const envoy = superviseEnvoy({ ...options, listeners: ['outbound'] });
  try {
    await eventually('Envoy itself is live', () => envoy.admin.ready());
    assert.ok(await rejects(envoy.ready(300), 'envoy-not-ready'));
  } finally {
    await envoy.stop();
  }
});

test('draining lets open connections finish and refuses none of their requests', async () => {
  const envoy = superviseEnvoy({ ...options, listeners: ['edge'] });
  try {
    await envoy.ready(15_000);
    const port = Number((await envoy.admin.listeners())[0]!.address!.split(':').at(-1));
    const socket = connect(port, '127.0.0.1');
    socket.setEncoding('utf8');
    let received = '';
    socket.on('data', (text: string) => {
      received += text;
    });
    const closed = new Promise((done) => socket.once('close', done));
    const ask = (): boolean => socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    ask();
    await eventually('the first answer', () => received.includes('200 OK'));
    const began = Date.now();
    const stopped = envoy.stop({ drain: true });
    await new Promise((wake) => setTimeout(wake, 300));
    assert.is(envoy.state, 'stopping');
    received = '';
    ask();
    await eventually('an answer while draining', () => received.includes('200 OK'));
    assert.match(received, /connection: close/);
    await Promise.all([closed, stopped]);
    assert.ok(Date.now() - began < 2000, 'it did not wait for the whole drain time');
  } finally {
    await envoy.stop();
  }
});

/** A parent that supervises in its own process and prints Envoy's pid; killed without warning. */
const PARENT = `
import { superviseEnvoy } from '${join(import.meta.dirname, '../../envoy/supervise.ts')}';
import { silentLogger } from '${join(import.meta.dirname, '../../base/logger.ts')}';
const { wrap, ...options } = JSON.parse(process.argv[1]);
const envoy = superviseEnvoy({
  ...options,
  logger: silentLogger,
  ...(wrap === null ? {} : { wrap: (argv) => [...wrap, ...argv] }),
});
await envoy.ready(15000);
process.stdout.write(envoy.pid + '\\n');
setInterval(() => {}, 1000);
`;

async function envoyOfKilledParent(wrap: readonly string[] | null): Promise<void> {
  const parent = spawn(
    process.execPath,
    ['--input-type=module', '-e', PARENT, JSON.stringify({ ...options, logger: null, wrap })],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const line = await new Promise<string>((resolve) => parent.stdout.once('data', (data) => resolve(String(data))));
  const pid = Number(line);
  try {
    assert.ok(runs(pid));
    parent.kill('SIGKILL');
    await eventually('Envoy has ended', () => !runs(pid), 3000);
  } finally {
    if (runs(pid)) {
      process.kill(pid, 'SIGKILL');
    }
  }
}

test('no Envoy outlives a killed parent', () => envoyOfKilledParent(null));

test('no Envoy outlives a killed parent from other namespaces either', () =>
  envoyOfKilledParent(['unshare', '--user', '--map-root-user', '--net']));

/** Only root can start a command as another user; others have nothing to change. */
const OTHER_USER = process.getuid?.() === 0 ? ['setpriv', '--reuid', '65534', '--clear-groups', '--'] : ['env'];

for (const [title, prefix, setpriv] of [
  ['by the kernel', ['env'], findSetpriv()],
  ['by the kernel, as another user', OTHER_USER, findSetpriv()],
  ['by a reader of a pipe', ['env'], null],
] as const) {
  test(`a guarded command ends with its parent, ${title}`, async () => {
    const script = `
      import { spawn } from 'node:child_process';
      import { guarded } from '${join(import.meta.dirname, '../../envoy/guard.ts')}';
      const wrap = (argv) => [...${JSON.stringify(prefix)}, ...argv];
      const { argv, needsPipe } = guarded(['sleep', '100'], wrap, ${JSON.stringify(setpriv)});
      const pipes = needsPipe ? ['pipe'] : [];
      const child = spawn(argv[0], argv.slice(1), { stdio: ['ignore', 'ignore', 'ignore', ...pipes] });
      process.stdout.write(child.pid + '\\n');
      setInterval(() => {}, 1000);`;
    const parent = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const pid = Number(await new Promise<string>((got) => parent.stdout.once('data', (data) => got(String(data)))));
    try {
      await eventually('the command has replaced its guard', () => command(pid).startsWith('sleep'));
      parent.kill('SIGKILL');
      await eventually('the command has ended', () => !runs(pid), 3000);
    } finally {
      if (runs(pid)) {
        process.kill(pid, 'SIGKILL');
      }
    }
  });
}

function command(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
}

test('a guarded command is not started when the parent has already gone', async () => {
  const [file, ...rest] = guarded(['echo', 'started']).argv;
  const asOther = rest.map((word) => (word === String(process.pid) ? '1' : word));
  const child = spawn(file!, asOther, { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (data) => {
    output += String(data);
  });
  assert.is(await new Promise((ended) => child.once('close', ended)), 1);
  assert.is(output, '');
});

test.run();
