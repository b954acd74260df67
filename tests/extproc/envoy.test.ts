/** Compiled ingress resources in a real Envoy, with the real processor and waker behind it. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { until } from '../xds/plane.ts';
import { ask, callGrpc, echoOf, type Sent, upgrade } from './stage/client.ts';
import { IngressStage, PUBLIC_PORT, tokenOf } from './stage/ingress-stage.ts';
import { GRPC_PORT, HTTP_PORT, Sandboxes } from './stage/sandboxes.ts';

const test = suite('ingress gateway in Envoy');
const sandboxes = new Sandboxes();
let stage: IngressStage;

/** Where each stand-in listens; nothing listens at `DEAD`. */
const AT = { abc: '127.0.77.1', def: '127.0.77.2', old: '127.0.77.3', nap: '127.0.77.4', doze: '127.0.77.5' } as const;
const DEAD = '127.0.77.99';
const UNAUTHORIZED = '401 unauthorized: invalid or missing access token';

type Name = keyof typeof AT;

const hostOf = (id: string, port: number | string = HTTP_PORT) => `${port}-${id}.localhost:${PUBLIC_PORT}`;
const token = (name: Name) => ({ 'x-access-token': tokenOf(name) });
const to = (name: Name, sent: Partial<Sent> = {}) =>
  ask(stage.socketPath, { host: hostOf(name), ...sent, headers: { ...token(name), ...sent.headers } });

test.before(async () => {
  for (const address of Object.values(AT)) {
    await sandboxes.start(address);
  }
  stage = await IngressStage.start();
  await stage.create('abc', AT.abc);
  await stage.create('def', AT.def);
  await stage.create('old', AT.old, { label: false });
  await stage.create('nap', AT.nap, { paused: true });
  await stage.create('doze', AT.doze, { paused: true });
});

test.before.each(async () => {
  await stage.publish({ abc: AT.abc, def: AT.def });
  stage.seen.length = 0;
});

test.after(async () => {
  await stage?.close();
  sandboxes.close();
});

/** The text of an answer with its status. */
async function text(sent: Sent): Promise<string> {
  const { status, body } = await ask(stage.socketPath, sent);
  return `${status} ${body}`;
}

test('a running sandbox is reached without the processor, and sees the request as it was sent', async () => {
  const echo = echoOf(await to('abc', { path: '/a//b/../c?d=%2e', body: 'hello', headers: { my_header: 'x' } }));
  assert.is(echo.address, AT.abc);
  assert.is(echo.method, 'POST');
  assert.is(echo.url, '/a//b/../c?d=%2e');
  assert.is(echo.body, 'hello');
  assert.is(echo.headers.host, hostOf('abc'));
  assert.is(echo.headers['my_header'], 'x');
  assert.is(echo.headers['x-access-token'], tokenOf('abc'), 'envd checks it again');
  assert.equal(
    Object.keys(echo.headers).filter((name) => /^x-(sbx|sandgate)-/.test(name)),
    [],
  );
  assert.is(echoOf(await to('def')).address, AT.def);
  assert.is(stage.seen.length, 0);
  assert.is(echoOf(await to('abc', { host: `${HTTP_PORT}-abc.localhost` })).address, AT.abc, 'Host without a port');
  assert.is(stage.seen.length, 1, 'by the processor');
});

test('WebSocket and gRPC go the same way', async () => {
  assert.equal(await upgrade(stage.socketPath, hostOf('abc'), tokenOf('abc')), [
    'HTTP/1.1 101 Switching Protocols',
    `${AT.abc} hello`,
  ]);
  assert.is(await callGrpc(stage.socketPath, hostOf('abc', GRPC_PORT), tokenOf('abc')), `200 0 ${AT.abc} reply`);
  assert.is(stage.seen.length, 0);
});

test('any other token is the business of the processor, which lets nobody in', async () => {
  const host = hostOf('abc');
  for (const value of ['', 'x', tokenOf('def'), tokenOf('abc').toUpperCase(), `${tokenOf('abc')},x`]) {
    assert.is(await text({ host, headers: { 'x-access-token': value } }), UNAUTHORIZED, value);
  }
  assert.is(await text({ host }), UNAUTHORIZED);
  // Envoy compares each of several values by itself, so one right token among them enters: its sender has it.
  assert.is(await text({ host, headers: { 'x-access-token': [tokenOf('def'), 'x'] } }), UNAUTHORIZED, 'two wrong ones');
  assert.is(await text({ host: hostOf('nobody'), headers: token('abc') }), UNAUTHORIZED);
  assert.is(stage.seen.length, 8);
  assert.is((await upgrade(stage.socketPath, host, 'x'))[0], 'HTTP/1.1 401 Unauthorized');
  assert.match(await callGrpc(stage.socketPath, host, 'x'), /^200 16 /);
});

test('header form, path form and hosts without a scope are forwarded by the processor', async () => {
  const host = `localhost:${PUBLIC_PORT}`;
  const form = { 'e2b-sandbox-id': 'abc', 'e2b-sandbox-port': String(HTTP_PORT), ...token('abc') };
  const byHeader = echoOf(await ask(stage.socketPath, { host, headers: form }));
  assert.is(byHeader.address, AT.abc);
  assert.is(byHeader.headers['e2b-sandbox-id'], 'abc');
  assert.is(
    echoOf(await ask(stage.socketPath, { host: hostOf('def'), headers: form })).address,
    AT.abc,
    'the header goes before a host with a scope',
  );
  const path = `/kruise/abc/${HTTP_PORT}//x?y=1`;
  const byPath = echoOf(await ask(stage.socketPath, { host: hostOf('def'), path, headers: token('abc') }));
  assert.equal([byPath.address, byPath.url, byPath.headers.host], [AT.abc, '//x?y=1', hostOf('def')]);
  // Both forms go before the host, also where its scope would take the token.
  assert.is(await text({ host: hostOf('def'), headers: { ...form, ...token('def') } }), UNAUTHORIZED);
  assert.is(await text({ host: hostOf('def'), path, headers: token('def') }), UNAUTHORIZED);
  for (const [name, odd] of [
    ['abc', hostOf('abc', `0${HTTP_PORT}`)],
    ['abc', `${HTTP_PORT}-abc.elsewhere.test`],
    ['abc', `${HTTP_PORT}-abc.LOCALHOST`],
    ['abc', `${HTTP_PORT}-abc.localhost.`],
    ['old', `${HTTP_PORT}-default--old.localhost`],
  ] as const) {
    const echo = echoOf(await to(name, { host: odd }));
    assert.equal([echo.address, echo.headers.host], [AT[name], odd]);
  }
  assert.is(stage.seen.length, 10);
  assert.is(await text({ host: hostOf('abc', 99_999), headers: token('abc') }), '400 invalid sandbox port');
  assert.match(await text({ host, headers: token('abc') }), /^404 /);
});

test('an answer of the processor reaches WebSocket and gRPC too', async () => {
  const odd = (port: number) => `0${port}-abc.localhost`;
  assert.equal((await upgrade(stage.socketPath, odd(HTTP_PORT), tokenOf('abc')))[1], `${AT.abc} hello`);
  assert.is(await callGrpc(stage.socketPath, odd(GRPC_PORT), tokenOf('abc')), `200 0 ${AT.abc} reply`);
  assert.is(stage.seen.length, 2);
});

test('headers of the gateway cannot be forged, and are not passed on', async () => {
  const forged = {
    'X-Sandgate-Hot': 'abc',
    'x-sbx-scope': 'x-miss',
    'x-envoy-original-dst-host': `${AT.def}:${HTTP_PORT}`,
    'x-envoy-retry-on': '5xx',
  };
  assert.is(await text({ host: hostOf('abc'), headers: forged }), UNAUTHORIZED);
  assert.is(await text({ host: 'x-miss', headers: forged }), '404 no sandbox is addressed by this request');
  assert.is(await text({ host: `${HTTP_PORT}-miss`, headers: forged }), '404 no sandbox is addressed by this request');
  for (const { headers } of stage.seen) {
    assert.equal(
      headers.filter(([name, value]) => name === 'x-sandgate-hot' || value.startsWith(AT.def)),
      [],
    );
  }
  for (const host of [hostOf('abc'), `0${HTTP_PORT}-abc.localhost`]) {
    const echo = echoOf(await to('abc', { host, headers: forged }));
    assert.is(echo.address, AT.abc);
    assert.equal(
      Object.keys(forged).filter((name) => echo.headers[name.toLowerCase()] !== undefined),
      [],
    );
  }
});

test('a scope that moves or goes counts for the next request', async () => {
  await stage.publish({ abc: AT.def, def: AT.def });
  assert.is(echoOf(await to('abc')).address, AT.def);
  await stage.publish({ def: AT.def });
  assert.is(stage.seen.length, 0);
  assert.is(echoOf(await to('abc')).address, AT.abc);
  assert.is(stage.seen.length, 1);
});

test('500 requests are held, longer than Envoy waits by itself, and are one resume', async () => {
  const { generation } = await stage.spec('nap');
  const asked = Array.from({ length: 500 }, (_, index) => to('nap', { path: `/${index}`, body: `body ${index}` }));
  await until(() => stage.held === 500, 15_000, 'hold of all requests');
  assert.equal(await stage.spec('nap'), { paused: false, generation: generation + 1 });
  await new Promise((resolve) => setTimeout(resolve, 5500));
  assert.is(sandboxes.arrivals.get(AT.nap), undefined);
  await stage.report('nap', 'Running', AT.nap);
  const echoes = (await Promise.all(asked)).map(echoOf);
  assert.equal(
    echoes.map(({ address, url, body }) => `${address} ${url} ${body}`),
    echoes.map((_, index) => `${AT.nap} /${index} body ${index}`),
  );
  assert.is((await stage.spec('nap')).generation, generation + 1);
  assert.is(sandboxes.sockets.get(AT.nap)?.size, 500, 'none was sent on a connection that may be from before');
});

test('what the processor forwards shares connections, as long as nothing slept', async () => {
  sandboxes.sockets.clear();
  for (let request = 0; request < 20; request += 1) {
    echoOf(await to('abc', { host: `0${HTTP_PORT}-abc.localhost` }));
  }
  assert.is(stage.seen.length, 20);
  assert.is(sandboxes.sockets.get(AT.abc)?.size, 1);
});

test('of 2,000 held requests 1,800 callers leave at once: the other 200 are answered', async () => {
  const leaving = new AbortController();
  const gone = Array.from({ length: 1800 }, () => to('doze', { signal: leaving.signal }));
  const staying = Array.from({ length: 200 }, () => to('doze'));
  await until(() => stage.held === 2000, 20_000, 'hold of all requests');
  leaving.abort();
  await until(() => stage.held === 200, 10_000, 'departure of 1,800');
  await stage.report('doze', 'Running', AT.doze);
  const answers = (await Promise.all(staying)).map((reply) => echoOf(reply).address);
  assert.equal(new Set(answers), new Set([AT.doze]));
  assert.ok((await Promise.all(gone)).every(({ status }) => status === 0));
  assert.is(sandboxes.arrivals.get(AT.doze), 200, 'nothing was forwarded for those who left');
});

test('behind a stale scope the processor decides: bodies, gRPC and a wake, 300 at once', async () => {
  await stage.publish({ abc: DEAD, def: AT.def });
  assert.is(echoOf(await to('abc', { path: '/x' })).url, '/x');
  const body = 'y'.repeat(500_000);
  assert.is(echoOf(await to('abc', { body })).body.length, body.length);
  assert.is(await callGrpc(stage.socketPath, hostOf('abc', GRPC_PORT), tokenOf('abc')), `200 0 ${AT.abc} reply`);
  assert.is(await text({ host: hostOf('abc'), headers: { 'x-sandgate-hot': 'abc' } }), UNAUTHORIZED);
  await stage.sleep('abc', DEAD);
  const asked = Array.from({ length: 300 }, (_, index) => to('abc', index % 2 === 0 ? {} : { body: `b${index}` }));
  await until(() => stage.held === 300, 15_000, 'hold of all requests');
  await stage.report('abc', 'Running', AT.abc);
  const echoes = (await Promise.all(asked)).map(echoOf);
  assert.ok(
    echoes.every(({ address, body: seen }, index) => address === AT.abc && seen === (index % 2 ? `b${index}` : '')),
  );
});

test('a stale scope lets nobody into the sandbox that has its id now', async () => {
  await stage.publish({ abc: DEAD, def: AT.def });
  const before = tokenOf('abc');
  await stage.changeToken('abc', `${'n'.repeat(31)}ew`);
  const arrived = sandboxes.arrivals.get(AT.abc);
  assert.is(await text({ host: hostOf('abc'), headers: { 'x-access-token': before } }), UNAUTHORIZED);
  assert.is(sandboxes.arrivals.get(AT.abc), arrived);
  await stage.changeToken('abc', before);
  assert.is(echoOf(await to('abc')).address, AT.abc);
});

test('a port on which nothing listens is 503, with why and when to come again; the text is that of Envoy', async () => {
  for (const host of [hostOf('abc', 1), '01-abc.localhost']) {
    const { status, body, headers } = await to('abc', { host });
    assert.match(body, /^upstream connect error/);
    assert.equal([status, headers['x-sandgate-reason'], headers['retry-after']], [503, 'sandbox_unreachable', '5']);
  }
});

test('without the processor running sandboxes are reached and nothing else passes', async () => {
  await stage.stopProcessor();
  assert.is(echoOf(await to('def')).address, AT.def);
  for (const sent of [
    { host: hostOf('def') },
    { host: hostOf('nobody'), headers: token('def') },
    { host: `0${HTTP_PORT}-def.localhost`, headers: token('def') },
  ]) {
    const { status, headers } = await ask(stage.socketPath, sent);
    assert.equal([status, headers['x-sandgate-reason'], headers['retry-after']], [503, 'gateway_failed', '5']);
  }
  assert.equal(stage.plane.rejections, [], 'Envoy has taken every resource');
});

test.run();
