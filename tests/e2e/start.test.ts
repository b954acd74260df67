import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { layoutOf } from '../../local/layout.ts';
import { sandbox, settings, yaml } from './manifests.ts';
import { type Ran, run, TestPlane, until } from './plane.ts';
import { processes, tree } from './processes.ts';

/** How `up` says that it cannot start, and what it says while it runs. */
const start = suite('start of local mode');
const main = join(import.meta.dirname, '..', '..', 'cli', 'main.ts');
const directories: string[] = [];

async function directory(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'sg-start-'));
  directories.push(dir);
  return dir;
}

start.after(async () => {
  for (const dir of directories) {
    await rm(dir, { recursive: true, force: true });
  }
});

function up(dir: string, args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): Promise<Ran> {
  const all = [main, 'up', '--dir', dir, '--ingress', '127.0.0.1:0', ...args];
  return run(process.execPath, all, { SANDGATE_LOG: 'error', ...env }, 40_000);
}

/** One line, no stack trace, and nothing left. */
function refused({ status, stderr }: Ran, words: RegExp, code = 1): void {
  assert.is(status, code, stderr);
  const errors = stderr.split('\n').filter((line) => line.startsWith('error: '));
  assert.is(errors.length, 1, stderr);
  assert.match(errors[0]!, words);
  assert.not.match(stderr, /^\s+at /m);
}

function nothingRunsIn(dir: string): void {
  assert.equal(
    processes().filter(({ command }) => command.includes(dir)),
    [],
  );
}

start('a port that is in use', async () => {
  const blocker = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => blocker.once('listening', resolve));
  const { port } = blocker.address() as { port: number };
  const dir = await directory();
  refused(await up(dir, ['--ingress', `127.0.0.1:${port}`]), new RegExp(`127\\.0\\.0\\.1:${port} is in use`));
  refused(await up(dir, ['--admin', `127.0.0.1:${port}`]), new RegExp(`127\\.0\\.0\\.1:${port} is in use`));
  nothingRunsIn(dir);
  blocker.close();
});

start('wrong options and wrong settings', async () => {
  const dir = await directory();
  refused(await up(dir, ['--domain', 'no_domain..x']), /--domain no_domain\.\.x/, 2);
  refused(await up(dir, ['--admin', '0.0.0.0:1']), /--admin 0\.0\.0\.0:1/, 2);
  await writeFile(join(dir, 'sandgate.yaml'), 'domian: x\n');
  refused(await up(dir), /sandgate\.yaml: domian/);
  nothingRunsIn(dir);
});

start('an Envoy that is none', async () => {
  const dir = await directory();
  refused(await up(dir, [], { SANDGATE_ENVOY: '/bin/true' }), /SANDGATE_ENVOY: \/bin\/true cannot be run as an Envoy/);
  nothingRunsIn(dir);
});

start('a machine that forbids namespaces', async () => {
  const dir = await directory();
  const forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"';
  const command = [process.execPath, main, 'up', '--dir', dir, '--ingress', '127.0.0.1:0'];
  const ran = await run('unshare', ['-Ur', 'sh', '-c', forbid, 'sh', ...command], { SANDGATE_LOG: 'error' }, 40_000);
  refused(ran, /this machine makes no user namespace/);
  nothingRunsIn(dir);
});

start('a second up in the same directory, which leaves the first alone', async () => {
  const plane = await TestPlane.start({ files: { 'sandgate.yaml': 'domain: localhost\n' } });
  const { dir } = plane;
  const sockets = ['store', 'admin', 'xds', 'egress', 'ingress'].map((name) => layoutOf(dir).socket(name));
  refused(await up(dir), new RegExp(`plane of ${dir} is running already: process ${plane.process.pid}`));
  assert.equal(
    sockets.filter((path) => !existsSync(path)),
    [],
  );
  const { components } = (await plane.admin('GET', '/components')) as { components: { state: string }[] };
  assert.equal(
    components.map(({ state }) => state),
    components.map(() => 'running'),
  );
  await plane.stop();
  nothingRunsIn(dir);
});

start('--domain wins over the settings', async () => {
  const dir = await directory();
  await writeFile(join(dir, 'sandgate.yaml'), 'domain: sandboxes.test\n');
  await writeFile(join(dir, 'one.yaml'), yaml(sandbox('one')));
  const child = spawn(
    process.execPath,
    [main, 'up', '--dir', dir, '--ingress', '127.0.0.1:0', '--domain', 'Other.Test', '-o', 'json'],
    { stdio: ['ignore', 'pipe', 'ignore'] },
  );
  let printed = '';
  child.stdout!.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  await until('ready', 60_000, () => printed.includes('"ready":true'));
  const event = JSON.parse(printed.trim().split('\n').at(-1)!) as { domain: string };
  assert.is(event.domain, 'other.test');
  const record = JSON.parse(await readFile(join(layoutOf(dir).run, 'plane.json'), 'utf8')) as { domain: string };
  assert.is(record.domain, 'other.test');
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await ended;
});

start('wrong settings while it runs are reported once, and their end too', async () => {
  const plane = await TestPlane.start({ files: { 'sandgate.yaml': settings().replace('trust: [ca.pem]\n', '') } });
  const count = (words: RegExp) =>
    plane
      .log()
      .split('\n')
      .filter((line) => words.test(line)).length;
  const file = join(plane.dir, 'sandgate.yaml');
  const good = await readFile(file, 'utf8');
  await writeFile(file, 'hosts: {a: b}\n');
  await until('the report', 5000, () => count(/last good settings stay/) > 0);
  await new Promise((resolve) => setTimeout(resolve, 2500));
  assert.is(count(/last good settings stay/), 1);
  await writeFile(file, good);
  await until('the all-clear', 5000, () => count(/settings are right again/) > 0);
  await writeFile(file, good.replace('domain: localhost', 'domain: other.test'));
  await until('the notice', 5000, () => count(/take effect with the next start/) > 0);
  await plane.stop();
});

start('a role that ends again and again is reported, once', async () => {
  const plane = await TestPlane.start({ files: { 'sandgate.yaml': 'domain: localhost\n' } });
  const role = () => tree(plane.process.pid!).find(({ command }) => / egress-processor --dir/.test(command));
  const reports = () =>
    plane
      .log()
      .split('\n')
      .filter((line) => /ends again and again/.test(line));
  const end = Date.now() + 20_000;
  while (reports().length === 0 && Date.now() < end) {
    const found = role();
    if (found !== undefined) {
      process.kill(found.pid, 'SIGKILL'); // Before it can become ready.
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.is(reports().length, 1);
  assert.match(reports()[0]!, /egress-processor/);
  await until('its recovery', 15_000, () => /egress-processor is well again/.test(plane.log()));
  assert.is(reports().length, 1);
  await plane.stop();
});

start.run();
