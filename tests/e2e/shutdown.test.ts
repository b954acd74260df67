import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { layoutOf } from '../../local/layout.ts';
import { sandbox, settings, yaml } from './manifests.ts';
import { TestPlane, until, within } from './plane.ts';
import { type ProcessInfo, stillRunning, tree } from './processes.ts';

/** Whatever ends local mode, nothing of it stays (Done when 1). */
const shutdown = suite('the end of local mode');

const files = () => ({
  'sandgate.yaml': settings().replace('trust: [ca.pem]\n', ''),
  'sandboxes.yaml': yaml(sandbox('one'), sandbox('two', { command: ['sleep', '1000000'] })),
});

/** Mounts and sockets of a directory that this machine still has. */
function remains(dir: string): string[] {
  const mounts = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .filter((line) => line.includes(dir));
  const run = layoutOf(dir).run;
  const sockets = existsSync(run) ? readdirSync(run).filter((name) => name.endsWith('.sock')) : [];
  const listening = readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .filter((line) => line.includes(dir));
  return [...mounts, ...sockets, ...listening];
}

async function gone(list: readonly ProcessInfo[]): Promise<void> {
  await until(`no process: ${list.map(({ command }) => command.slice(0, 60)).join('; ')}`, 15_000, () => {
    return stillRunning(list).length === 0;
  });
}

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  shutdown(`${signal} ends every process, mount and socket`, async () => {
    const plane = await TestPlane.start({ files: files() });
    await plane.phase('one', 'Running');
    const all = tree(plane.process.pid!);
    assert.ok(all.length >= 8, `${all.length} processes`);
    const dir = plane.dir;
    await plane.store.close();
    plane.process.kill(signal);
    await within('up to end', 30_000, new Promise((resolve) => plane.process.once('exit', resolve)));
    await gone(all);
    assert.equal(remains(dir), []);
    await rm(dir, { recursive: true, force: true });
  });
}

shutdown('a kill leaves no process; the next up clears the rest and works', async () => {
  const first = await TestPlane.start({ files: files() });
  await first.phase('one', 'Running');
  const all = tree(first.process.pid!);
  await first.stop('SIGKILL');
  await gone(all);
  const second = await TestPlane.start({ files: {}, dir: first.dir });
  await second.phase('one', 'Running');
  assert.equal(stillRunning(all), []);
  await second.stop();
  assert.equal(remains(first.dir), []);
  await rm(first.dir, { recursive: true, force: true });
});

shutdown('SIGTERM to npm alone ends npm start whole', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'sg-start-'));
  const root = join(import.meta.dirname, '..', '..');
  const npm = spawn('npm', ['start'], {
    cwd: root,
    env: { ...process.env, SANDGATE_DIR: dir, SANDGATE_INGRESS: '127.0.0.1:0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await says(npm, 'Ctrl-C ends everything', 90_000);
  const all = tree(npm.pid!);
  npm.kill('SIGTERM');
  await within('npm to end', 30_000, new Promise((resolve) => npm.once('exit', resolve)));
  await gone(all);
  assert.equal(remains(dir), []);
  await rm(dir, { recursive: true, force: true });
});

function says(child: ChildProcess, text: string, timeoutMs: number): Promise<void> {
  let printed = '';
  const said = new Promise<void>((resolve, reject) => {
    child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
      printed += chunk;
      if (printed.includes(text)) {
        resolve();
      }
    });
    child.once('exit', (code) => reject(new Error(`ended with ${code}: ${printed}`)));
  });
  return within(`"${text}"`, timeoutMs, said);
}

shutdown.run();
