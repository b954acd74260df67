import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { silentLogger } from '../../base/logger.ts';
import { Child, type ChildState } from '../../cli/child-process.ts';
import { until } from './stage.ts';

/** A role of a plane as a process that is kept alive. */
const children = suite('child processes');
let directory: string;
const open: Child[] = [];

children.before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sg-child-'));
});

children.after.each(async () => {
  await Promise.all(open.splice(0).map((child) => child.stop()));
});

children.after(async () => {
  await rm(directory, { recursive: true, force: true });
});

function start(script: string, states: ChildState[] = [], argv?: readonly string[]): Child {
  const child = new Child({
    name: 'role',
    argv: argv ?? ['/bin/sh', '-c', script],
    logger: silentLogger,
    graceMs: 500,
    onState: (state) => states.push(state),
  });
  open.push(child);
  return child;
}

const READY = `echo '{"ready":true}'`;
const WAIT = 'exec sleep 1000';

children('is ready by its word, and ends on SIGTERM', async () => {
  const states: ChildState[] = [];
  const child = start(`echo other; ${READY}; ${WAIT}`, states);
  assert.is(child.state, 'starting');
  await child.ready(5000);
  assert.is(child.state, 'running');
  const { pid } = child;
  assert.ok(pid !== undefined);
  await child.stop();
  assert.equal([child.state, child.pid, states], ['stopped', undefined, ['running', 'stopped']]);
  assert.throws(() => process.kill(pid, 0));
});

children('one that ignores SIGTERM is killed after its grace', async () => {
  const child = start(`trap '' TERM; ${READY}; while :; do sleep 0.05; done`);
  await child.ready(5000);
  const at = Date.now();
  await child.stop();
  assert.ok(Date.now() - at >= 450);
});

children('is started again when it ends, and is then ready again', async () => {
  const child = start(`${READY}; ${WAIT}`);
  await child.ready(5000);
  const first = child.pid!;
  process.kill(first, 'SIGKILL');
  await until('another process', 5000, () => child.pid !== undefined && child.pid !== first);
  await child.ready(5000);
  assert.is(child.restarts, 1);
});

children('whoever waits for the first readiness gets it from a later process', async () => {
  const file = join(directory, 'count');
  await writeFile(file, '');
  const child = start(`echo x >> ${file}; [ $(wc -l < ${file}) -ge 3 ] || exit 1; ${READY}; ${WAIT}`);
  await child.ready(10_000);
  assert.is(child.restarts, 2);
  assert.is((await readFile(file, 'utf8')).length, 6);
});

children('one that keeps ending is failing, and running again once it is ready', async () => {
  const states: ChildState[] = [];
  const file = join(directory, 'mend');
  const child = start(`[ -e ${file} ] || exit 7; ${READY}; ${WAIT}`, states);
  await until('failing', 10_000, () => child.state === 'failing');
  assert.ok(child.restarts >= 3);
  await writeFile(file, '');
  await child.ready(10_000);
  assert.equal(states, ['failing', 'running']);
});

children('a program that cannot be started is failing too, and can be stopped', async () => {
  const child = start('', [], ['/nonexistent/program']);
  await until('failing', 10_000, () => child.state === 'failing');
  await child.stop();
  assert.is(child.state, 'stopped');
});

children('says when it is not ready in time', async () => {
  const child = start(WAIT);
  const failed = await child.ready(50).catch((error: Error) => error);
  assert.match((failed as Error).message, 'role was not ready within 50 ms');
});

children.run();
