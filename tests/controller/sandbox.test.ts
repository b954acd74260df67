import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { CodedError } from '../../base/errors.ts';
import { KEY, NOW, World } from './harness.ts';

test('SB1: a new Sandbox gets its Pod', async () => {
  const world = new World();
  const { metadata } = await world.create({
    template: {
      metadata: { labels: { app: 'x', 'agents.kruise.io/sandbox-uid': 'forged' } },
      spec: { containers: [{ name: 'main', command: ['serve'] }] },
    },
  });
  await world.pass();
  const sandbox = (await world.sandbox())!;
  const pod = (await world.pod())!;
  const status = await world.status();
  assert.equal(status.phase, 'Pending');
  assert.equal(status.observedGeneration, 1);
  assert.deepEqual(pod.metadata.labels, {
    app: 'x',
    'agents.kruise.io/created-by': 'sandbox',
    'agents.kruise.io/sandbox-name': 'fox',
    'agents.kruise.io/sandbox-uid': metadata.uid,
    'pod-template-hash': status.updateRevision,
  });
  assert.deepEqual(pod.metadata.annotations, { 'agents.kruise.io/created-by': 'sandbox' });
  assert.deepEqual(pod.metadata.ownerReferences, [
    {
      apiVersion: 'agents.kruise.io/v1alpha1',
      kind: 'Sandbox',
      name: 'fox',
      uid: metadata.uid,
      controller: true,
      blockOwnerDeletion: true,
    },
  ]);
  assert.deepEqual(pod.metadata.finalizers, ['sandgate.dev/withdrawal']);
  assert.match(sandbox.metadata.annotations!['agents.kruise.io/runtime-access-token']!, /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
  assert.match(sandbox.metadata.annotations!['sandbox.agents.kruise.io/hash-immutable-part']!, /^[a-z0-9]{9}$/);
  assert.equal(sandbox.metadata.labels, undefined);
  assert.equal(sandbox.metadata.finalizers, undefined);
});

test('SB2, SB9 (row 9): it runs, is ready, and fails when its Pod is deleted by hand', async () => {
  const world = new World();
  await world.running();
  assert.equal(await world.phase(), 'Running');
  assert.equal(await world.condition('Ready'), 'True/PodReady');
  assert.equal((await world.status()).sandboxIp, '10.244.0.5');
  await world.store.delete('Pod', KEY);
  await world.settle();
  assert.equal(await world.phase(), 'Failed');
  assert.equal(await world.condition('Ready'), 'False/PodReady');
  assert.equal((await world.status()).message, 'Pod Not Found');
  assert.deepEqual(world.events(), ['SandboxRunning', 'SandboxFailed']);
});

test('a settled Sandbox causes no further write, and no log line holds its token', async () => {
  const world = new World();
  await world.running();
  const before = await world.sandbox();
  await world.pass();
  await world.restarted().reconcile(KEY);
  assert.equal((await world.sandbox())!.metadata.resourceVersion, before!.metadata.resourceVersion);
  const token = before!.metadata.annotations!['agents.kruise.io/runtime-access-token']!;
  assert.ok(!JSON.stringify(world.lines).includes(token));
});

test('token and id that are there are kept', async () => {
  const world = new World({ shortIds: true });
  await world.create(
    {},
    {
      labels: { 'agents.kruise.io/sandbox-id': 'mine' },
      annotations: { 'agents.kruise.io/runtime-access-token': '' },
    },
  );
  await world.pass();
  const { labels, annotations } = (await world.sandbox())!.metadata;
  assert.equal(labels!['agents.kruise.io/sandbox-id'], 'mine');
  assert.equal(annotations!['agents.kruise.io/runtime-access-token'], '');
});

test('with shortIds a Sandbox gets an id once', async () => {
  const world = new World({ shortIds: true });
  await world.create();
  await world.pass();
  const id = (await world.sandbox())!.metadata.labels!['agents.kruise.io/sandbox-id']!;
  assert.match(id, /^[a-p][a-z2-7]{12}$/);
  await world.settle();
  assert.equal((await world.sandbox())!.metadata.labels!['agents.kruise.io/sandbox-id'], id);
});

test('SB3: a Pod of a Sandbox that had the name before is left alone', async () => {
  const world = new World();
  await world.store.create({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      ...KEY,
      finalizers: ['test/held'],
      ownerReferences: [{ apiVersion: 'x', kind: 'Sandbox', name: 'fox', uid: 'old' }],
    },
    spec: { containers: [] },
  });
  await world.create();
  const uid = (await world.pod())!.metadata.uid;
  await world.settle();
  assert.equal(await world.phase(), 'Pending');
  assert.equal((await world.pod())!.metadata.uid, uid);
  assert.deepEqual(world.events(), ['PodOwnerMismatch']);
});

test('SB4, SB5: a Pod that cannot be made is seen, and made later', async () => {
  const world = new World();
  await world.create();
  const { create } = world.store;
  world.store.create = async () => {
    throw new CodedError('invalid', 'exceeded quota');
  };
  await assert.rejects(world.pass(), /exceeded quota/);
  await assert.rejects(world.pass(), /exceeded quota/);
  assert.equal(await world.condition('Ready'), 'False/PodCreateFailed');
  assert.deepEqual(world.events(), ['PodCreateFailed']);
  world.store.create = async () => {
    throw new CodedError('already-exists', 'there is one');
  };
  await world.pass();
  world.store.create = create;
  await world.pass();
  assert.ok((await world.pod()) !== null);
});

test('SB8–SB15: timers', async () => {
  const past = '2029-12-31T23:59:55Z';
  const retention = (value: string) => ({ annotations: { 'agents.kruise.io/reserve-paused-sandbox-duration': value } });
  const after = async (spec: object, metadata: object = {}) => {
    const world = new World();
    await world.running();
    await world.store.patch('Sandbox', KEY, { type: 'merge', body: { spec, metadata } });
    const result = await world.pass();
    return { world, result, spec: (await world.sandbox())?.spec as Record<string, unknown> | undefined };
  };
  assert.equal((await after({ shutdownTime: '2029-12-31T23:59:59Z' })).spec, undefined);
  assert.notEqual((await after({ shutdownTime: '2030-01-01T00:00:00Z' })).spec, undefined);
  const both = { pauseTime: '2030-01-01T00:01:30Z', shutdownTime: '2030-01-01T00:10:00Z' };
  assert.deepEqual((await after(both)).result, { againAfterMs: 90_000 });
  const paused = await after({ pauseTime: '2029-12-31T23:59:59Z' });
  assert.deepEqual(
    [paused.spec!['paused'], paused.spec!['pauseTime'], paused.spec!['shutdownTime']],
    [true, '2029-12-31T23:59:59Z', undefined],
  );
  assert.equal(await paused.world.phase(), 'Running');
  const kept = (await after({ pauseTime: past, shutdownTime: past }, retention('2h'))).spec!;
  assert.deepEqual(
    [kept['paused'], kept['pauseTime'], kept['shutdownTime']],
    [true, '2030-01-01T02:00:00Z', '2030-01-01T02:00:00Z'],
  );
  const forever = await after({ pauseTime: past, shutdownTime: past }, retention('1d'));
  assert.equal(forever.spec!['shutdownTime'], `${new Date(NOW + 36_500 * 86_400_000).toISOString().slice(0, 19)}Z`);
  assert.deepEqual(forever.world.events().at(-1), 'BadRetention');
  assert.equal((await after({ pauseTime: past, shutdownTime: past })).spec, undefined);
  const noShutdown = (await after({ pauseTime: past }, retention('45m'))).spec!;
  assert.deepEqual(
    [noShutdown['paused'], noShutdown['pauseTime'], noShutdown['shutdownTime']],
    [true, past, undefined],
  );
  const failed = await after({});
  await failed.world.store.delete('Pod', KEY);
  await failed.world.settle();
  await failed.world.patchSpec({ shutdownTime: past });
  await failed.world.pass();
  assert.equal(await failed.world.sandbox(), null);
});

test('SB16: a lost race is tried again, and nothing is overwritten', async () => {
  const world = new World();
  await world.running({ pauseTime: '2030-01-01T00:01:00Z' });
  world.clock.advance(61_000);
  const { get } = world.store;
  let raced = false;
  world.store.get = async (kind, key) => {
    const object = await get.call(world.store, kind, key);
    if (kind === 'Sandbox' && !raced) {
      raced = true;
      await world.patchSpec({ pauseTime: '2030-01-01T01:00:00Z' });
    }
    return object;
  };
  assert.deepEqual(await world.pass(), { againAfterMs: 5 });
  await world.pass();
  const spec = (await world.sandbox())!.spec as Record<string, unknown>;
  assert.deepEqual([spec['paused'], spec['pauseTime']], [undefined, '2030-01-01T01:00:00Z']);
});

test('a status that another writer raced is worked out anew', async () => {
  const world = new World();
  await world.create();
  await world.settle();
  await world.start();
  const { patchStatus } = world.store;
  world.store.patchStatus = async (...args) => {
    world.store.patchStatus = patchStatus;
    await world.patchSpec({ paused: true });
    return patchStatus.apply(world.store, args);
  };
  assert.deepEqual(await world.pass(), { againAfterMs: 5 });
  assert.equal(await world.phase(), 'Pending');
  await world.settle();
  assert.equal(await world.phase(), 'Paused');
});

test('SB17, SB19: pause and resume by Stop give a new Pod', async () => {
  const world = new World();
  await world.running({ pauseStrategy: { type: 'Stop' } });
  const first = (await world.pod())!;
  await world.patchSpec({ paused: true });
  await world.pass();
  assert.equal(await world.phase(), 'Paused');
  assert.equal(await world.condition('SandboxPaused'), 'False/Pending');
  assert.equal(await world.condition('Ready'), 'False/PodReady');
  assert.deepEqual((await world.sandbox())!.metadata.finalizers, ['agents.kruise.io/sandbox']);
  const going = (await world.pod())!;
  assert.ok(going.metadata.deletionTimestamp !== undefined);
  assert.equal(going.metadata.annotations!['sandgate.dev/grace-period-seconds'], '5');
  assert.deepEqual(world.withdrawals, [first.metadata.uid === undefined ? '' : (await world.sandbox())!.metadata.uid]);
  await world.settle();
  assert.equal(await world.condition('SandboxPaused'), 'False/Pending');
  await world.release();
  await gone(world);
  await world.settle();
  assert.equal(await world.condition('SandboxPaused'), 'True/StopPauseSucceed');
  assert.equal((await world.status()).sandboxIp, undefined);

  await world.patchSpec({ paused: false });
  await world.settle();
  assert.equal(await world.phase(), 'Resuming');
  assert.equal(await world.condition('SandboxResumed'), 'False/CreatePod');
  assert.notEqual((await world.pod())!.metadata.uid, first.metadata.uid);
  await world.podStatus({ phase: 'Running', podIP: '10.244.0.9' });
  await world.settle();
  assert.equal(await world.phase(), 'Running');
  assert.equal(await world.condition('SandboxResumed'), 'True/ResumePod');
  assert.equal(await world.condition('RuntimeInitialized'), 'False/Pending');
  assert.equal(await world.condition('SandboxPaused'), undefined);
  assert.equal(await world.condition('Ready'), 'False/PodReady');
  assert.deepEqual((await world.sandbox())!.metadata.finalizers ?? [], []);
  assert.equal((await world.status()).sandboxIp, '10.244.0.9');
  await world.start('10.244.0.9');
  await world.settle();
  assert.equal(await world.condition('Ready'), 'True/PodReady');
  assert.equal(await world.condition('RuntimeInitialized'), 'True/Succeeded');
});

/** The store removes what has no finalizer left soon after. */
async function gone(world: World): Promise<void> {
  for (let round = 0; round < 100 && (await world.pod()) !== null; round += 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.equal(await world.pod(), null);
}

test('pause by freezing: withdrawn first, then frozen; the same Pod runs on after the thaw', async () => {
  const world = new World();
  await world.running();
  const uid = (await world.pod())!.metadata.uid;
  world.withdrawal = async () => {
    assert.equal(await world.phase(), 'Paused');
    assert.equal((await world.pod())!.metadata.annotations!['sandgate.dev/freeze'], undefined);
  };
  await world.patchSpec({ paused: true });
  await world.settle();
  assert.equal((await world.pod())!.metadata.annotations!['sandgate.dev/freeze'], 'true');
  assert.equal(await world.condition('SandboxPaused'), 'False/Pending');
  await world.obeyFreeze();
  await world.settle();
  assert.equal(await world.condition('SandboxPaused'), 'True/FreezePauseSucceed');
  assert.equal(world.withdrawals.length, 1);

  await world.patchSpec({ paused: false });
  await world.settle();
  assert.equal(await world.phase(), 'Resuming');
  assert.equal((await world.pod())!.metadata.annotations!['sandgate.dev/freeze'], undefined);
  await world.obeyFreeze();
  await world.settle();
  assert.equal(await world.phase(), 'Running');
  assert.equal(await world.condition('Ready'), 'True/PodReady');
  assert.equal((await world.pod())!.metadata.uid, uid);
});

test('a gateway that never acknowledges delays a freeze by the deadline only', async () => {
  const world = new World({ shortIds: false, withdrawalDeadlineMs: 30 });
  await world.running();
  world.withdrawal = () => new Promise(() => {});
  await world.patchSpec({ paused: true });
  const begun = performance.now();
  await world.pass();
  assert.ok(performance.now() - begun >= 25);
  assert.equal((await world.pod())!.metadata.annotations!['sandgate.dev/freeze'], 'true');
  world.withdrawal = () => Promise.reject(new Error('no gateway'));
  assert.ok(world.lines.some(({ message }) => message.includes('in time')));
});

test('SB18: a pause that is taken back is finished and then resumed, also over restarts at every step', async () => {
  const world = new World();
  await world.running();
  await world.patchSpec({ paused: true });
  const step = async () => {
    world.restarted();
    await world.settle();
  };
  await step();
  await world.patchSpec({ paused: false });
  await step();
  assert.equal(await world.phase(), 'Paused');
  await world.obeyFreeze();
  await step();
  assert.equal(await world.phase(), 'Resuming');
  await world.patchSpec({ paused: true });
  await step();
  assert.equal(await world.phase(), 'Resuming');
  await world.obeyFreeze();
  await step();
  assert.equal(await world.phase(), 'Paused');
  assert.equal(await world.condition('SandboxPaused'), 'False/Pending');
  await world.obeyFreeze();
  await step();
  assert.equal(await world.condition('SandboxPaused'), 'True/FreezePauseSucceed');
});

test('a pass may be cut off at each of its writes and be begun again', async () => {
  const path = ['Pending', 'Running', 'Paused', 'Resuming', 'Running'];
  for (let cut = 1; cut <= 30; cut += 1) {
    const world = new World();
    let writes = 0;
    const methods = ['create', 'patch', 'patchStatus', 'delete'] as const;
    const original = Object.fromEntries(methods.map((name) => [name, world.store[name].bind(world.store)]));
    const attempt = async (): Promise<void> => {
      const counted = (call: () => Promise<unknown>) => {
        writes += 1;
        return writes === cut ? Promise.reject(new CodedError('unavailable', 'cut off')) : call();
      };
      Object.assign(world.store, {
        create: (...args: never[]) =>
          counted(() => (original['create'] as (...a: never[]) => Promise<unknown>)(...args)),
        patch: (...args: never[]) => counted(() => (original['patch'] as (...a: never[]) => Promise<unknown>)(...args)),
        patchStatus: (...args: never[]) =>
          counted(() => (original['patchStatus'] as (...a: never[]) => Promise<unknown>)(...args)),
      });
      try {
        await world.settle();
      } catch {
        world.restarted();
        await world.settle();
      } finally {
        Object.assign(world.store, original);
      }
    };
    const seen: string[] = [];
    await world.create();
    await attempt();
    seen.push((await world.phase())!);
    await world.start();
    await attempt();
    seen.push((await world.phase())!);
    await world.patchSpec({ paused: true });
    await attempt();
    await world.obeyFreeze();
    await attempt();
    seen.push((await world.phase())!);
    assert.equal(await world.condition('SandboxPaused'), 'True/FreezePauseSucceed');
    assert.deepEqual((await world.sandbox())!.metadata.finalizers, ['agents.kruise.io/sandbox']);
    await world.patchSpec({ paused: false });
    await attempt();
    seen.push((await world.phase())!);
    await world.obeyFreeze();
    await attempt();
    seen.push((await world.phase())!);
    assert.deepEqual(seen, path, `cut at write ${cut}`);
    assert.equal(await world.condition('Ready'), 'True/PodReady');
    if (writes < cut) {
      assert.ok(cut > 10, `${cut} writes in all`);
      return;
    }
  }
  assert.fail('more writes than expected');
});

test('row 24: a paused Sandbox that is deleted takes its Pod along', async () => {
  const world = new World();
  await world.running();
  await world.patchSpec({ paused: true });
  await world.settle();
  await world.obeyFreeze();
  await world.settle();
  await world.store.delete('Sandbox', KEY);
  await world.pass();
  assert.ok((await world.pod())!.metadata.deletionTimestamp !== undefined);
  await world.pass();
  assert.ok((await world.sandbox()) !== null);
  await world.release();
  await gone(world);
  await world.pass();
  for (let round = 0; round < 100 && (await world.sandbox()) !== null; round += 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.equal(await world.sandbox(), null);
  assert.equal(world.events().filter((event) => event === 'SandboxTerminating').length, 1);
});

test('D12: whoever deletes a Pod, it goes only after its withdrawal', async () => {
  const world = new World();
  await world.running();
  const uid = (await world.sandbox())!.metadata.uid;
  await world.store.delete('Sandbox', KEY);
  for (let round = 0; round < 100 && (await world.pod())!.metadata.deletionTimestamp === undefined; round += 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  world.withdrawal = () => promise;
  const released = world.release();
  await new Promise((next) => setTimeout(next, 20));
  assert.ok((await world.pod()) !== null);
  assert.deepEqual(world.withdrawals, [uid]);
  resolve();
  await released;
  await gone(world);
});

test('malformed Sandboxes are told what is wrong with them', async () => {
  for (const spec of [
    { template: 'str' },
    { template: { spec: null } },
    { template: { spec: { containers: 'x' } } },
    { template: [1], paused: 'yes' },
  ]) {
    const world = new World();
    await world.create(spec);
    await world.settle();
    assert.equal(await world.condition('Accepted'), 'False/InvalidSpec');
    assert.equal(await world.condition('Ready'), 'False/PodCreateFailed');
    assert.equal(await world.pod(), null);
  }
  const world = new World();
  await world.store.create({ apiVersion: 'agents.kruise.io/v1alpha1', kind: 'Sandbox', metadata: KEY, spec: 'str' });
  await world.settle();
  assert.equal(await world.phase(), undefined);
});

test.run();
