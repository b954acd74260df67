import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Redacted } from '../../base/redacted.ts';
import type { Answer } from '../../extproc/answer.ts';
import { ingressHandler } from '../../extproc/ingress/handler.ts';
import type { RequestHead } from '../../extproc/request.ts';
import type { RouteRecord } from '../../world/routes.ts';

const TOKEN = 'b2f0f6c2-6a58-4f5e-9a51-0d7c1d0c8b11';

function route(parts: Partial<RouteRecord> = {}): RouteRecord {
  return {
    id: 'abc',
    ref: { kind: 'Sandbox', namespace: 'default', name: 'abc' },
    uid: 'uid-abc',
    resourceVersion: '1',
    state: 'running',
    address: '127.0.0.1',
    token: new Redacted(TOKEN),
    requireTrafficAuth: false,
    wakeOnTraffic: true,
    pauseTimeoutMs: null,
    resting: false,
    asleep: false,
    ended: false,
    ...parts,
  };
}

interface Setting {
  readonly route?: RouteRecord;
  readonly headers?: readonly (readonly [string, string])[];
  readonly authority?: string;
  readonly path?: string;
  readonly woken?: RouteRecord | null;
  readonly isReady?: boolean;
  readonly tombstone?: string;
  readonly maxHeld?: number;
}

let wakes = 0;

function ask(setting: Setting): Promise<Answer> {
  const handler = ingressHandler({
    routes: {
      lookup: (id) => (setting.route?.id === id ? setting.route : undefined),
      isTombstone: (_, token) => token === setting.tombstone,
    },
    waker: {
      async wake() {
        wakes += 1;
        return setting.woken ?? null;
      },
      isWaking: () => false,
    },
    isReady: () => setting.isReady !== false,
    ...(setting.maxHeld === undefined ? {} : { maxHeld: setting.maxHeld }),
  });
  const head: RequestHead = {
    method: 'GET',
    scheme: 'http',
    authority: setting.authority ?? '1-abc.localhost',
    path: setting.path ?? '/',
    headers: setting.headers ?? [['x-access-token', TOKEN]],
    attributes: {},
    endOfStream: true,
  };
  const context = { signal: new AbortController().signal, extend() {}, readBody: async () => new Uint8Array() };
  return handler(head, context);
}

const refused = async (setting: Setting) => {
  const answer = await ask(setting);
  return answer.kind === 'respond' ? `${answer.status} ${answer.body}` : `forwarded`;
};

const UNAUTHORIZED = '401 unauthorized: invalid or missing access token';
const asleep = route({ state: 'paused', resting: true, asleep: true });

test('the right token goes on, with the destination as metadata and never as a header', async () => {
  assert.equal(await ask({ route: route() }), {
    kind: 'continue',
    set: { 'x-sbx-scope': 'x-miss' },
    clearRouteCache: true,
    metadata: { 'envoy.lb.original_dst': { host: '127.0.0.1:1' }, sandgate: { sandbox: 'uid-abc' } },
  });
});

for (const [name, headers] of [
  ['no token', []],
  ['an empty token', [['x-access-token', '']]],
  ['a wrong token', [['x-access-token', TOKEN.replace('b', 'c')]]],
  ['another case', [['x-access-token', TOKEN.toUpperCase()]]],
  ['white space', [['x-access-token', ` ${TOKEN}`]]],
  [
    'two tokens',
    [
      ['x-access-token', TOKEN],
      ['x-access-token', TOKEN],
    ],
  ],
  ['the token elsewhere', [['authorization', `Bearer ${TOKEN}`]]],
] as const) {
  test(`${name}: 401, whether the sandbox is known, asleep or unknown`, async () => {
    for (const known of [route(), asleep, undefined]) {
      const before = wakes;
      assert.is(await refused({ ...(known === undefined ? {} : { route: known }), headers }), UNAUTHORIZED);
      assert.is(wakes, before);
    }
  });
}

test('a sandbox without a token lets nobody in', async () => {
  assert.is(await refused({ route: route({ token: null }) }), UNAUTHORIZED);
  assert.is(await refused({ route: route({ token: null }), headers: [['x-access-token', '']] }), UNAUTHORIZED);
});

test('a token counts by its bytes: no other spelling of it is let in', async () => {
  const token = new Redacted(`${TOKEN}\u{1f41f}\u0142`);
  const ask = (text: string) => refused({ route: route({ token }), headers: [['x-access-token', text]] });
  const bytes = (text: string, encoding: 'utf8' | 'latin1') => Buffer.from(text, encoding).toString('latin1');
  assert.is(await ask(bytes(token.reveal(), 'utf8')), 'forwarded');
  assert.is(await ask(bytes(token.reveal(), 'latin1')), UNAUTHORIZED);
  assert.is(await ask(token.reveal().replace('\u0142', 'B')), UNAUTHORIZED);
});

test('no header vouches for a token', async () => {
  assert.is(await refused({ route: route(), headers: [['x-sandgate-hot', 'abc']] }), UNAUTHORIZED);
});

test('states are told to who may enter', async () => {
  const dead = route({ state: 'dead', ended: true });
  assert.is(await refused({ route: dead }), '502 healthy sandbox not found: abc');
  assert.is(await refused({ route: { ...asleep, wakeOnTraffic: false } }), '502 healthy sandbox not found: abc');
  assert.is(await refused({ route: route(), isReady: false }), '503 sandbox gateway is not ready');
  assert.is(
    await refused({ route: route({ requireTrafficAuth: true }) }),
    '503 service unavailable: traffic access token verifier is not ready',
  );
  assert.is(await refused({ tombstone: TOKEN }), '502 sandbox not found: abc');
  assert.is(await refused({ tombstone: 'another' }), UNAUTHORIZED);
});

test('a wake rule does not wake what is being upgraded: it may be there later, or says that it is not', async () => {
  const upgrading = route({ state: 'paused', resting: false, asleep: false });
  const before = wakes;
  assert.is(await refused({ route: upgrading }), '503 sandbox wake failed');
  assert.is(await refused({ route: { ...upgrading, wakeOnTraffic: false } }), '502 healthy sandbox not found: abc');
  assert.is(wakes, before);
});

test('ports outside the range and requests for nobody are refused', async () => {
  for (const authority of ['0-abc.x', '65536-abc.x', '99999-abc.x']) {
    assert.is(await refused({ route: route(), authority }), '400 invalid sandbox port');
  }
  assert.is(await refused({ route: route(), authority: 'localhost' }), '404 no sandbox is addressed by this request');
});

test('a sleeping sandbox is woken; a wake that fails says when to come again', async () => {
  const woken = await ask({ route: asleep, woken: route() });
  // A scope of its own: its requests do not use connections from before the sleep.
  assert.is(woken.kind === 'continue' && woken.set?.['x-sbx-scope'], 'x-woken');
  const failed = await ask({ route: asleep, woken: null });
  assert.is(failed.kind === 'respond' && failed.status, 503);
  assert.is(failed.kind === 'respond' && failed.body, 'sandbox wake failed');
  assert.is(failed.kind === 'respond' && failed.headers?.['retry-after'], '5');
  assert.is(await refused({ route: asleep, woken: route({ id: 'renamed' }) }), '502 healthy sandbox not found: abc');
  assert.is(await refused({ route: asleep, woken: route(), maxHeld: 0 }), '503 sandbox wake failed');
});

test('the path form forwards the rest of the path', async () => {
  const answer = await ask({ route: route(), path: '/kruise/abc/1/x?y=1' });
  assert.is(answer.kind === 'continue' && answer.set?.[':path'], '/x?y=1');
});

test.run();
