import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { contentHash } from '../../base/canonical.ts';
import { isCoded } from '../../base/errors.ts';
import { layoutOf } from '../../local/layout.ts';
import { openNode } from '../../local/node-namespace.ts';
import { descendantsOf, isRunning, type RecordedProcess, recordOf } from '../../local/process-record.ts';
import { isSecondRun, repeatAsUser, shouldRepeat } from './as-user.ts';
import { conditionOf, eventually, LocalPlane, shell, temporaryFolder } from './harness.ts';

const PROCESS = fileURLToPath(new URL('./agent-process.ts', import.meta.url));
const test = suite(`a killed agent${isSecondRun ? ' of an ordinary user' : ''}`);

async function startAgent(dir: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['--no-warnings', PROCESS, dir], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const timer = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const [line] = (await Promise.race([once(lines, 'line'), once(child, 'exit')])) as [unknown];
  clearTimeout(timer);
  assert.is(line, 'ready');
  return child;
}

/** Everything below a process, by records that survive it. */
function family(pid: number): RecordedProcess[] {
  return descendantsOf(pid).flatMap((child) => {
    try {
      return [recordOf(child)];
    } catch {
      return [];
    }
  });
}

function groupsOf(dir: string): string[] {
  const name = `sandgate-${contentHash(layoutOf(dir).dir)}`;
  const mounts = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '));
  return mounts
    .filter(([, , type]) => type?.startsWith('cgroup') === true)
    .map(([, at]) => `${at}/${name}`)
    .filter(existsSync);
}

test('kill -9 ends every process, whatever it does against it; the next start removes the rest', async () => {
  const dir = await temporaryFolder();
  const layout = layoutOf(dir);
  const first = await startAgent(dir);
  const members = family(first.pid!);
  // Two Pods of two containers, with three helpers each, the stubborn one's seven children, and the node.
  assert.ok(members.length >= 20, `only ${members.length} processes`);
  const before = readdirSync(layout.sandboxes);
  first.kill('SIGKILL');
  await eventually('the end of all processes', () => (members.some(isRunning) ? null : true), 5000);
  const second = await startAgent(dir);
  const after = readdirSync(layout.sandboxes);
  assert.equal(
    before.filter((name) => name !== 'last-address' && after.includes(name)),
    [],
  );
  const others = family(second.pid!);
  second.kill('SIGTERM');
  await once(second, 'exit');
  assert.is(second.exitCode, 0);
  assert.equal(others.filter(isRunning), []);
  assert.equal(readdirSync(layout.sandboxes), ['last-address']);
  assert.equal(readdirSync(layout.run), []);
  assert.equal(groupsOf(dir), []);
  assert.not.match(readFileSync('/proc/self/mounts', 'utf8'), dir);
  await rm(dir, { recursive: true, force: true });
});

test('a node namespace whose maker lives is not taken away from it', async () => {
  const plane = await LocalPlane.open();
  try {
    const failure = await openNode(plane.layout).catch((error: unknown) => error);
    assert.ok(isCoded(failure, 'already-running'));
    assert.ok(isRunning(plane.node.holder));
  } finally {
    await plane.close();
  }
});

test('a restarted agent starts Pods anew as their restart policy says', async () => {
  const plane = await LocalPlane.open();
  try {
    await plane.createPod('always', { containers: [shell('main', 'exec sleep 1000')] });
    await plane.createPod('never', { restartPolicy: 'Never', containers: [shell('main', 'exec sleep 1000')] });
    await plane.createPod('done', { restartPolicy: 'Never', containers: [shell('main', 'exit 0')] });
    await plane.createPod('paused', { containers: [shell('main', 'exec sleep 1000')] });
    const address = (await plane.ready('always')).status!.podIP;
    await plane.ready('never');
    await plane.until('done', ({ status }) => status?.phase === 'Succeeded');
    await plane.ready('paused');
    await plane.patch('paused', { annotations: { 'sandgate.dev/freeze': 'true' } });
    await plane.until('paused', (pod) => conditionOf(pod, 'ContainersPaused') === 'True');
    await plane.restartAgent();
    const never = await plane.until('never', ({ status }) => status?.phase === 'Failed');
    assert.match(never.status!.message!, 'restartPolicy is Never');
    const always = await plane.until(
      'always',
      (pod) => conditionOf(pod, 'Ready') === 'True' && pod.status?.podIP !== address,
    );
    assert.is(always.status!.containerStatuses![0]!.restartCount, 1);
    assert.is((await plane.pod('done'))!.status!.phase, 'Succeeded');
    // Nothing runs for a paused one until it is wanted again.
    const paused = await plane.until(
      'paused',
      ({ status }) => status?.containerStatuses?.[0]?.state?.running === undefined,
    );
    assert.is(conditionOf(paused, 'ContainersPaused'), 'True');
    await plane.patch('paused', { annotations: { 'sandgate.dev/freeze': null } });
    await plane.until(
      'paused',
      (pod) => conditionOf(pod, 'Ready') === 'True' && conditionOf(pod, 'ContainersResumed') === 'True',
    );
    for (const name of ['always', 'never', 'done', 'paused']) {
      await plane.store.delete('Pod', { namespace: 'default', name });
      await plane.gone(name);
    }
  } finally {
    await plane.close();
  }
});

if (shouldRepeat) {
  test('all of it holds for an ordinary user too', async () => {
    const { code, output } = await repeatAsUser(import.meta.url);
    assert.is(code, 0, output);
  });
}

test.run();
