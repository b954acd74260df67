import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { ManualClock } from '../../base/clock.ts';
import { RouteTable, routeOf } from '../../world/routes.ts';

const NOW = Date.parse('2026-06-01T00:00:00Z');

interface Parts {
  readonly spec?: object;
  readonly status?: object;
  readonly metadata?: object;
  readonly ready?: boolean;
  readonly paused?: boolean;
}

function sandbox({ spec, status, metadata, ready = true, paused = false }: Parts = {}): KubeObject {
  const condition = (type: string, holds: boolean) => ({ type, status: holds ? 'True' : 'False', reason: 'X' });
  return {
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'Sandbox',
    metadata: {
      name: 'one',
      namespace: 'team',
      uid: 'uid-1',
      resourceVersion: '7',
      labels: { 'agents.kruise.io/sandbox-id': 'abc' },
      annotations: { 'agents.kruise.io/runtime-access-token': 'token-1' },
      ...metadata,
    },
    spec: { ...spec },
    status: {
      phase: 'Running',
      podInfo: { podIP: '10.0.0.1' },
      conditions: [condition('Ready', ready), condition('SandboxPaused', paused)],
      ...status,
    },
  };
}

/** ingress-gateway §4.1, row by row. */
const STATES: readonly [name: string, object: KubeObject, state: string][] = [
  ['no address', sandbox({ status: { podInfo: {} } }), 'creating'],
  ['being deleted', sandbox({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } }), 'dead'],
  ['its shutdown time is over', sandbox({ spec: { shutdownTime: '2026-05-31T23:59:59Z' } }), 'dead'],
  ['exactly its shutdown time', sandbox({ spec: { shutdownTime: '2026-06-01T00:00:00Z' } }), 'running'],
  ['pending', sandbox({ status: { phase: 'Pending' } }), 'creating'],
  ['failed', sandbox({ status: { phase: 'Failed' } }), 'dead'],
  ['asked to pause', sandbox({ spec: { paused: true } }), 'paused'],
  ['running and ready', sandbox(), 'running'],
  ['running, not ready', sandbox({ ready: false }), 'dead'],
  ['paused', sandbox({ status: { phase: 'Paused' }, paused: true }), 'paused'],
  ['resuming', sandbox({ status: { phase: 'Resuming' } }), 'paused'],
  [
    'in a pool',
    sandbox({
      metadata: { ownerReferences: [{ apiVersion: 'x', kind: 'SandboxSet', name: 's', uid: 'u', controller: true }] },
    }),
    'available',
  ],
];

for (const [name, object, state] of STATES) {
  test(name, () => {
    assert.is(routeOf(object, NOW).state, state);
  });
}

test('a malformed object is a route that leads nowhere', () => {
  const route = routeOf({ ...sandbox(), spec: 'x', status: 5 }, NOW);
  assert.is(route.state, 'creating');
  assert.is(route.address, '');
  assert.is(route.wakeOnTraffic, false);
});

test('what is in a pool is never woken, whatever rule it carries', () => {
  const ownerReferences = [{ apiVersion: 'x', kind: 'SandboxSet', name: 's', uid: 'u', controller: true }];
  const spec = { paused: true, autoPausePolicy: { resume: { onIngressTraffic: {} } } };
  const asleep = { spec, status: { phase: 'Paused' }, paused: true };
  assert.is(routeOf(sandbox(asleep), NOW).wakeOnTraffic, true);
  assert.is(routeOf(sandbox({ ...asleep, metadata: { ownerReferences } }), NOW).wakeOnTraffic, false);
});

test('without a label the id is namespace and name; the token is never printed', () => {
  const route = routeOf(sandbox({ metadata: { labels: {} } }), NOW);
  assert.is(route.id, 'team--one');
  assert.not.match(JSON.stringify(route), /token-1/);
  assert.is(route.token?.reveal(), 'token-1');
  assert.is(routeOf(sandbox({ metadata: { annotations: {} } }), NOW).token, null);
});

test('an id belongs to who took it last, and goes with its sandbox', () => {
  const table = new RouteTable(new ManualClock(NOW));
  const [first, second] = [sandbox(), sandbox({ metadata: { name: 'two', uid: 'uid-2' } })];
  table.set(first);
  table.set(second);
  assert.is(table.lookup('abc')?.uid, 'uid-2');
  table.set(sandbox({ metadata: { name: 'two', uid: 'uid-2', labels: { 'agents.kruise.io/sandbox-id': 'other' } } }));
  assert.is(table.lookup('abc'), undefined);
  assert.is(table.lookup('other')?.uid, 'uid-2');
  table.delete(first);
  assert.is(table.byUid('uid-1'), undefined);
});

test('the holder of a token learns for an hour that its sandbox is gone', () => {
  const clock = new ManualClock(NOW);
  const table = new RouteTable(clock);
  table.set(sandbox());
  table.delete(sandbox());
  assert.ok(table.isTombstone('abc', 'token-1'));
  assert.not.ok(table.isTombstone('abc', 'token-2'));
  assert.not.ok(table.isTombstone('abd', 'token-1'));
  clock.advance(3_600_000);
  assert.not.ok(table.isTombstone('abc', 'token-1'));
});

test('a shutdown time that passes ends the route, though nothing was changed', () => {
  const clock = new ManualClock(NOW);
  const table = new RouteTable(clock);
  const ends = { shutdownTime: '2026-06-01T00:00:30Z' };
  table.set(sandbox({ spec: ends }));
  clock.advance(30_000);
  assert.is(table.lookup('abc')?.state, 'running');
  clock.advance(1);
  assert.is(table.lookup('abc')?.state, 'dead');
  assert.is(table.byUid('uid-1')?.ended, true);
});

test('a sandbox whose id was taken does not take it back by ending', () => {
  const clock = new ManualClock(NOW);
  const table = new RouteTable(clock);
  table.set(sandbox({ spec: { shutdownTime: '2026-06-01T00:00:30Z' } }));
  table.set(sandbox({ metadata: { name: 'two', uid: 'uid-2' } }));
  clock.advance(60_000);
  assert.is(table.byUid('uid-1')?.ended, true);
  assert.is(table.lookup('abc')?.uid, 'uid-2');
});

test.run();
