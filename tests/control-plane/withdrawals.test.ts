import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { ObjectRef } from '../../api/object.ts';
import { systemClock } from '../../base/clock.ts';
import { type CodedError, isCoded } from '../../base/errors.ts';
import type { Published } from '../../control-plane/plane.ts';
import { Withdrawals } from '../../control-plane/withdrawals.ts';
import { roleId } from '../../identity/spiffe.ts';
import { sandboxObject } from './stage.ts';

/** An address is free when no gateway leads to it any more (D12). */
const withdrawals = suite('withdrawals');

const ONE: ObjectRef = { kind: 'Sandbox', namespace: 'default', name: 'one' };
const object = { ...sandboxObject('one'), metadata: { name: 'one', namespace: 'default', uid: 'uid-1' } };

function scene(deadlineMs = 2000) {
  const state: { published: Published | null; clients: { spiffeId: string; streams: number; settled: number }[] } = {
    published: null,
    clients: [{ spiffeId: roleId('ingress'), streams: 1, settled: 0 }],
  };
  const made = new Withdrawals({
    clock: systemClock,
    published: () => state.published,
    clients: () => state.clients,
    deadlineMs,
  });
  const publish = (sequence: number, origins: readonly ObjectRef[], sandboxes = [object]) => {
    state.published = { sequence, world: { sandboxes }, ingress: [{ origins }] } as unknown as Published;
    made.moved();
  };
  const settle = (sequence: number) => {
    state.clients = [{ spiffeId: roleId('ingress'), streams: 1, settled: sequence }];
    made.moved();
  };
  return { state, made, publish, settle };
}

async function isDone(work: Promise<void>): Promise<boolean> {
  const later = new Promise<boolean>((resolve) => setTimeout(resolve, 30, false));
  return Promise.race([work.then(() => true), later]);
}

withdrawals('waits for the publication without the route, and for its acknowledgement', async () => {
  const { made, publish, settle } = scene();
  publish(1, [ONE]);
  settle(1);
  const work = made.wait('uid-1');
  assert.is(await isDone(work), false);
  publish(2, []);
  assert.is(await isDone(work), false);
  settle(2);
  assert.is(await isDone(work), true);
});

withdrawals('later publications do not put it off', async () => {
  const { made, publish, settle } = scene();
  publish(1, []);
  const work = made.wait('uid-1');
  publish(2, []);
  publish(3, []);
  settle(1);
  assert.is(await isDone(work), true);
});

withdrawals('a route that comes back begins it anew', async () => {
  const { made, publish, settle } = scene();
  publish(1, []);
  const work = made.wait('uid-1');
  publish(2, [ONE]);
  settle(1);
  assert.is(await isDone(work), false);
  publish(3, []);
  settle(2);
  assert.is(await isDone(work), false);
  settle(3);
  assert.is(await isDone(work), true);
});

withdrawals('without a connected gateway, or when the sandbox is not known, nothing leads there', async () => {
  const { made, publish, state } = scene();
  publish(1, [ONE], []);
  state.clients = [{ spiffeId: roleId('egress'), streams: 1, settled: 0 }];
  assert.is(await isDone(made.wait('uid-1')), true);
});

withdrawals('before anything is published it is not known', async () => {
  const { made } = scene(50);
  const failed = await made.wait('uid-1').catch((error: CodedError) => error);
  assert.ok(isCoded(failed, 'unavailable'));
  assert.match((failed as CodedError).message, /uid-1 was not withdrawn within 50 ms/);
});

withdrawals.run();
