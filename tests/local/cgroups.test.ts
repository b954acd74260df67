import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { type CgroupRoots, Cgroups, findCgroups } from '../../local/cgroups.ts';
import { memoryLimit } from '../../local/pod-sandbox.ts';

const test = suite('control groups');
const found = findCgroups();
const LIMITS = { memoryBytes: 64 * 1024 * 1024, processes: 20 };

/** A process that counts into a pipe, so that it is seen whether it runs. */
async function counter(joinFiles: readonly string[]): Promise<{ child: ChildProcess; count: () => number }> {
  let bytes = 0;
  const child = spawn('/bin/sh', ['-c', 'read go; while :; do echo; sleep 0.01; done'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  child.stdout!.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  for (const file of joinFiles) {
    writeFileSync(file, String(child.pid));
  }
  child.stdin!.write('\n');
  while (bytes === 0) {
    await sleep(10);
  }
  return { child, count: () => bytes };
}

async function freezes(roots: CgroupRoots): Promise<void> {
  const groups = new Cgroups(`/test-${process.pid}`, roots);
  const group = await groups.create('pod-uid', LIMITS);
  assert.ok(group.canFreeze);
  const { child, count } = await counter(group.joinFiles);
  await group.freeze(true);
  await sleep(50);
  const before = count();
  await sleep(150);
  assert.is(count(), before);
  await group.freeze(false);
  await sleep(150);
  assert.ok(count() > before);
  await group.freeze(true);
  // What a killed agent leaves: a frozen group with a process in it.
  await new Cgroups(`/test-${process.pid}`, roots).clear();
  if (child.exitCode === null && child.signalCode === null) {
    await once(child, 'exit');
  }
  assert.ok(group.joinFiles.every((file) => !existsSync(dirname(file))));
}

if (found.unified !== null) {
  test('version 2 freezes, thaws, and is cleared while frozen', () => freezes({ ...found, freezer: null }));
}
if (found.freezer !== null) {
  test('version 1 freezes, thaws, and is cleared while frozen', () => freezes({ ...found, unified: null }));
}
if (found.memory !== null && found.pids !== null) {
  test('limits are set', async () => {
    const groups = new Cgroups(`/test-${process.pid}`, found);
    const group = await groups.create('pod-uid', LIMITS);
    const values = group.joinFiles.flatMap((file) =>
      ['memory.limit_in_bytes', 'pids.max'].map((name) => join(dirname(file), name)).filter(existsSync),
    );
    assert.equal(
      values.map((file) => readFileSync(file, 'utf8').trim()),
      [String(LIMITS.memoryBytes), '20'],
    );
    await group.remove();
    await groups.clear();
  });
}

test('without control groups nothing is made', async () => {
  const group = await new Cgroups('/x', { unified: null, freezer: null, memory: null, pids: null }).create('u', LIMITS);
  assert.equal(group.joinFiles, []);
  assert.not.ok(group.canFreeze);
  await group.remove();
});

test('the limit of a Pod is the sum of those of its containers, if all have one', () => {
  const pod = (...limits: unknown[]) =>
    memoryLimit({
      spec: { containers: limits.map((memory, index) => ({ name: `c${index}`, resources: { limits: { memory } } })) },
    } as never);
  assert.is(pod('64Mi', '1G'), 64 * 2 ** 20 + 1e9);
  assert.is(pod('64Mi', undefined), null);
  assert.is(pod('much'), null);
  assert.is(pod(1000), 1000);
});

test.run();
