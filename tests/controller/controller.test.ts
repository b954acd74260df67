import * as assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import { kindNamed } from '../../api/kinds.ts';
import type { KubeObject } from '../../api/object.ts';
import type { SandboxStatus } from '../../api/sandbox.ts';
import { systemClock } from '../../base/clock.ts';
import { isCoded } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { runSandboxController } from '../../controller/sandbox.ts';
import { openDirectoryStore } from '../../store/directory.ts';
import { Informer } from '../../store/informer.ts';
import type { ObjectStore } from '../../store/object-store.ts';
import { SocketStore } from '../../store/socket-client.ts';
import { serveStore } from '../../store/socket-server.ts';

/** A node agent that starts Pods, freezes and thaws them, and lets them go, as it is told through the store. */
function nodeAgent(store: ObjectStore): Informer {
  const pods = new Informer(store, 'Pod');
  let address = 1;
  pods.onChange(({ type, object: pod }) => {
    if (type === 'deleted' || pod.metadata.deletionTimestamp !== undefined) {
      return;
    }
    const freeze = pod.metadata.annotations?.['sandgate.dev/freeze'] === 'true';
    const status = (pod.status ?? {}) as { phase?: string; conditions?: { type: string; status: string }[] };
    const frozen = status.conditions?.find((one) => one.type === 'ContainersPaused')?.status === 'True';
    if (status.phase === 'Running' && freeze === frozen) {
      return;
    }
    const conditions = [
      { type: 'Ready', status: freeze ? 'False' : 'True' },
      { type: 'ContainersPaused', status: freeze ? 'True' : 'False' },
      ...(status.phase === 'Running' ? [{ type: 'ContainersResumed', status: freeze ? 'False' : 'True' }] : []),
    ];
    const podIP = (pod.status as { podIP?: string } | undefined)?.podIP ?? `10.244.0.${address++}`;
    const { name, namespace = '' } = pod.metadata;
    const patch = { type: 'merge', body: { status: { phase: 'Running', podIP, conditions } } } as const;
    store.patchStatus('Pod', { namespace, name }, patch).catch((error: unknown) => {
      assert.ok(isCoded(error, 'not-found') || isCoded(error, 'unavailable'), String(error));
    });
  });
  return pods;
}

async function eventually(what: string, check: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!(await check())) {
    assert.ok(performance.now() < deadline, `not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function sandbox(name: string, spec: object = {}): KubeObject {
  return {
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'Sandbox',
    metadata: { name, namespace: 'lab' },
    spec: { template: { spec: { containers: [{ name: 'main', command: ['serve'] }] } }, ...spec },
  };
}

test('over a directory and a socket: many Sandboxes, one malformed, pause, resume, restart, end', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'controller-'));
  const owner = await openDirectoryStore(directory, { kinds: kindNamed });
  const path = join(directory, 's.sock');
  const server = await serveStore({ store: owner, path, incarnation: 'one' });
  const store = new SocketStore({ path });
  const agent = nodeAgent(owner);
  const start = () => {
    const end = new AbortController();
    const done = runSandboxController({
      store,
      clock: systemClock,
      logger: silentLogger,
      settings: { shortIds: true, withdrawalDeadlineMs: 1000 },
      withdrawal: async () => {},
      signal: end.signal,
    });
    return async () => {
      end.abort();
      await done;
    };
  };
  let stop = start();
  const key = (name: string) => ({ namespace: 'lab', name });
  const status = async (name: string) => ((await owner.get('Sandbox', key(name))).status ?? {}) as SandboxStatus;
  const is = (name: string, type: string, value: string) => async () =>
    (await status(name)).conditions?.find((one) => one.type === type)?.status === value;
  try {
    await owner.create(sandbox('odd', { template: 'str' }));
    await Promise.all(Array.from({ length: 8 }, (_, index) => owner.create(sandbox(`s${index}`))));
    await Promise.all(
      Array.from({ length: 8 }, (_, index) => eventually(`s${index} is ready`, is(`s${index}`, 'Ready', 'True'))),
    );
    await eventually('odd is refused', is('odd', 'Accepted', 'False'));
    const ids = (await owner.list('Sandbox')).items.map((one) => one.metadata.labels?.['agents.kruise.io/sandbox-id']);
    assert.equal(new Set(ids).size, 9);

    const pause = (name: string, paused: boolean) =>
      owner.patch('Sandbox', key(name), { type: 'merge', body: { spec: { paused } } });
    await pause('s0', true);
    await eventually('s0 is frozen', is('s0', 'SandboxPaused', 'True'));
    await stop();
    await pause('s0', false);
    await owner.patch('Sandbox', key('s1'), {
      type: 'merge',
      body: { spec: { paused: true, pauseStrategy: { type: 'Stop' } } },
    });
    const address = (await status('s1')).sandboxIp;
    stop = start();
    await eventually('s0 is ready again', is('s0', 'Ready', 'True'));
    await eventually('s1 is stopped', is('s1', 'SandboxPaused', 'True'));
    await assert.rejects(owner.get('Pod', key('s1')), (error) => isCoded(error, 'not-found'));
    await pause('s1', false);
    await eventually('s1 is ready again', is('s1', 'Ready', 'True'));
    assert.notEqual((await status('s1')).sandboxIp, address);

    await owner.patch('Sandbox', key('s2'), {
      type: 'merge',
      body: { spec: { shutdownTime: `${new Date(Date.now() + 1000).toISOString().slice(0, 19)}Z` } },
    });
    await owner.delete('Sandbox', key('s3'));
    const left = async (name: string) =>
      [...(await owner.list('Sandbox')).items, ...(await owner.list('Pod')).items].every(
        (one) => one.metadata.name !== name,
      );
    await eventually('s2 and its Pod are gone at their time', () => left('s2'));
    await eventually('s3 and its Pod are gone', () => left('s3'));
  } finally {
    await stop();
    await agent.close();
    await store.close();
    await server.close();
    await owner.close();
    await rm(directory, { recursive: true });
  }
});

test.run();
