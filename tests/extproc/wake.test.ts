import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { kindNamed } from '../../api/kinds.ts';
import { ManualClock, systemClock } from '../../base/clock.ts';
import { silentLogger } from '../../base/logger.ts';
import { followRoutes } from '../../extproc/ingress/route-source.ts';
import { Waker } from '../../extproc/ingress/wake.ts';
import { MemoryStore } from '../../store/table-store.ts';

const KEY = { namespace: 'default', name: 'abc' };

/** A store with one Sandbox that sleeps, and a waker over it. */
async function stage(spec: object = {}, budgetMs = 2000) {
  const store = new MemoryStore({ kinds: kindNamed });
  const created = await store.create({
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'Sandbox',
    metadata: { ...KEY, labels: { 'agents.kruise.io/sandbox-id': 'abc' } },
    spec: { paused: true, autoPausePolicy: { resume: { onIngressTraffic: { pauseTimeout: '10m' } } }, ...spec },
  });
  const report = (phase: string, ready: boolean, paused: boolean) =>
    store.patchStatus('Sandbox', KEY, {
      type: 'merge',
      body: {
        status: {
          phase,
          podInfo: { podIP: '10.0.0.1' },
          conditions: [
            {
              type: 'Ready',
              status: ready ? 'True' : 'False',
              reason: 'PodReady',
              message: '',
              lastTransitionTime: '2026-01-01T00:00:00Z',
            },
            {
              type: 'SandboxPaused',
              status: paused ? 'True' : 'False',
              reason: 'X',
              message: '',
              lastTransitionTime: '2026-01-01T00:00:00Z',
            },
          ],
        },
      },
    });
  await report('Paused', false, true);
  const routes = followRoutes(store, { clock: systemClock, logger: silentLogger });
  await routes.synced;
  const clock = new ManualClock(Date.parse('2026-06-01T00:00:00Z'));
  const waker = new Waker({ store, routes, clock, logger: silentLogger, budgetMs });
  return { store, report, routes, waker, uid: created.metadata.uid!, clock };
}

const generation = async (store: MemoryStore) => (await store.get('Sandbox', KEY)).metadata.generation;

test('many callers are one resume, and all get the running route', async () => {
  const { store, report, routes, waker, uid } = await stage();
  const before = await generation(store);
  const calls = Array.from({ length: 100 }, () => waker.wake(uid));
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.is(((await store.get('Sandbox', KEY)) as { spec: { paused: boolean } }).spec.paused, false);
  await report('Resuming', false, false);
  await report('Running', false, false);
  await report('Running', true, false);
  const found = await Promise.all(calls);
  assert.ok(found.every((route) => route?.state === 'running'));
  assert.is(await generation(store), before! + 1);
  await routes.close();
});

test('a sandbox on its way to sleep is let sleep first', async () => {
  const { store, report, routes, waker, uid } = await stage();
  await report('Running', true, false);
  await new Promise((resolve) => setTimeout(resolve, 10));
  const call = waker.wake(uid);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.is(((await store.get('Sandbox', KEY)) as { spec: { paused: boolean } }).spec.paused, true);
  await report('Paused', false, true);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.is(((await store.get('Sandbox', KEY)) as { spec: { paused: boolean } }).spec.paused, false);
  await report('Running', true, false);
  assert.is((await call)?.state, 'running');
  await routes.close();
});

test('a wake ends when its time is over, and when the sandbox ends', async () => {
  const late = await stage({}, 50);
  assert.is(await late.waker.wake(late.uid), null);
  await late.routes.close();
  const gone = await stage();
  const call = gone.waker.wake(gone.uid);
  await gone.store.delete('Sandbox', KEY);
  assert.is(await call, null);
  await gone.routes.close();
});

test('a sandbox that pauses by itself begins its countdown anew', async () => {
  const { store, routes, waker, uid, report } = await stage({ pauseTime: '2026-05-01T00:00:00Z' });
  const call = waker.wake(uid);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const { spec } = (await store.get('Sandbox', KEY)) as { spec: { pauseTime: string; shutdownTime: string } };
  assert.is(spec.pauseTime, '2026-06-01T00:10:00Z');
  assert.is(spec.shutdownTime.slice(0, 4), '2126');
  await report('Running', true, false);
  await call;
  await routes.close();
});

test('a countdown that somebody else changes in the middle of a resume is looked at again', async () => {
  const { store, routes, waker, uid, report } = await stage({ pauseTime: '2026-05-01T00:00:00Z' });
  const patch = store.patch.bind(store);
  let tries = 0;
  store.patch = async (kind, key, change) => {
    tries += 1;
    if (tries === 1) {
      await patch(kind, key, { type: 'merge', body: { spec: { pauseTime: null } } });
    }
    return patch(kind, key, change);
  };
  const call = waker.wake(uid);
  await new Promise((resolve) => setTimeout(resolve, 50));
  const { spec } = (await store.get('Sandbox', KEY)) as { spec: { paused: boolean; pauseTime?: string } };
  assert.equal([tries, spec.paused, spec.pauseTime], [2, false, undefined]);
  await report('Running', true, false);
  assert.is((await call)?.state, 'running');
  await routes.close();
});

test.run();
