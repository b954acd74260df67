/** The server against the real Envoy, which refuses fields that it does not know. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { Agent, request } from 'undici';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { silentLogger } from '../../base/logger.ts';
import { writeBootstrap } from '../../envoy/bootstrap-common.ts';
import { egressBootstrap } from '../../envoy/bootstrap-egress.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { type EnvoyProcess, superviseEnvoy } from '../../envoy/supervise.ts';
import { resourcesTotal } from '../../xds/metrics.ts';
import type { EncodedResource } from '../../xds/view.ts';
import { Plane, until } from './plane.ts';
import * as make from './resources.ts';

const test = suite('xds with Envoy');

let plane: Plane;
let envoy: EnvoyProcess;
let upstream: Server;
let port = 0;
let base: EncodedResource[] = [];
const agent = new Agent({ connections: 4 });

test.before(async () => {
  plane = await Plane.create();
  await plane.start();
  upstream = createServer((_, response) => void response.end('hello'));
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  port = (upstream.address() as AddressInfo).port;
  const leaf = await plane.pki.issueLeaf('tls.test');
  base = [
    make.staticCluster('up', port),
    ...make.edsCluster('eds', port, '1s'),
    make.scopedListener('main'),
    make.tlsListener('tls', 'leaf:tls.test', 'static'),
    make.certificateSecret('leaf:tls.test', leaf.certificatePem, leaf.keyPem.reveal()),
    make.table('static', 'eds'),
    make.pin('t-0'),
    make.table('t-0', 'up'),
    make.scope('uid-1', 't-0'),
  ];
  const role = await plane.pki.issueRoleCertificate('egress');
  const adminSocket = join(plane.directory, 'admin.sock');
  const bootstrap = egressBootstrap({
    id: 'test',
    folder: plane.directory,
    xdsSocket: plane.socketPath,
    adminSocket,
    certificate: { certificateFile: role.certificateFile, keyFile: role.keyFile, caFile: plane.pki.caFile },
    processorSocket: join(plane.directory, 'none.sock'),
  });
  envoy = superviseEnvoy({
    binary: await findEnvoy(),
    bootstrapPath: await writeBootstrap(bootstrap),
    adminSocket,
    logger: silentLogger,
    concurrency: 1,
    drainSeconds: 1,
    listeners: ['main', 'tls'],
  });
});

test.after(async () => {
  await agent.close();
  await envoy?.stop();
  await plane?.close();
  upstream?.closeAllConnections();
  upstream?.close();
});

/** Publishes and waits for Envoy's acknowledgement of all of it. */
async function settle(resources: readonly EncodedResource[], milliseconds = 3000): Promise<void> {
  const sequence = plane.publish('egress', resources);
  await until(() => plane.settled.includes(`egress ${sequence}`), milliseconds, `settlement of ${sequence}`);
}

async function portOf(listener: string): Promise<number> {
  const found = (await envoy.admin.listeners()).find(({ name }) => name === listener);
  return Number(found!.address!.split(':').at(-1));
}

async function get(key: string): Promise<string> {
  const { statusCode, headers, body } = await request(`http://127.0.0.1:${await mainPort()}/`, {
    dispatcher: agent,
    headers: { 'x-key': key },
  });
  await body.dump();
  return `${statusCode} ${headers['x-table'] ?? '-'}`;
}

let cachedPort = 0;

async function mainPort(): Promise<number> {
  cachedPort ||= await portOf('main');
  return cachedPort;
}

/** Resources sent and removed so far, by type. */
async function counts(): Promise<Record<string, number>> {
  const { values } = await resourcesTotal.get();
  return Object.fromEntries(values.map(({ labels, value }) => [`${labels['type']} ${labels['kind']}`, value]));
}

/** What was sent since `before`, without zeros. */
async function since(before: Record<string, number>): Promise<Record<string, number>> {
  const entries = Object.entries(await counts()).map(([name, value]) => [name, value - (before[name] ?? 0)] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== 0));
}

test('listeners, clusters, endpoints, tables, scopes and secrets arrive and work', async () => {
  const before = await counts();
  const sequence = plane.publish('egress', base);
  await envoy.ready(20_000);
  await until(() => plane.settled.includes(`egress ${sequence}`), 3000, 'settlement');
  assert.equal(plane.rejections, []);
  assert.is(await get('uid-1'), '200 t-0');
  assert.is(await get('uid-2'), '404 -');
  assert.is(await get('!pin-t-0'), '200 t-0');
  const tlsPort = await portOf('tls');
  const names = await new Promise<string>((resolve, reject) => {
    const socket = connect(
      { port: tlsPort, host: '127.0.0.1', servername: 'tls.test', ca: plane.pki.mitmCaPem },
      () => {
        resolve(socket.getPeerCertificate().subjectaltname ?? '');
        socket.destroy();
      },
    );
    socket.once('error', reject);
  });
  assert.is(names, 'DNS:tls.test');
  assert.equal(await since(before), {
    'cluster sent': 2,
    'endpoints sent': 1,
    'listener sent': 2,
    'routes sent': 2,
    'scope sent': 2,
    'secret sent': 1,
  });
});

test('moving a scope to a new table under continuous requests fails none of them', async () => {
  const before = await counts();
  let running = true;
  const answers = new Map<string, number>();
  const workers = Array.from({ length: 3 }, async () => {
    while (running) {
      const answer = await get('uid-1');
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
    }
  });
  const rounds = 20;
  const rest = base.filter(({ name }) => !['!pin-t-0', 't-0', 'uid-1'].includes(name));
  for (let round = 1; round <= rounds; round += 1) {
    const name = `t-${round}`;
    // Every other cluster is new as well, so that the table has to wait for it and the old one has to leave.
    const up = make.staticCluster(`up-${round % 2}`, port);
    await settle([...rest, up, make.pin(name), make.table(name, up.name), make.scope('uid-1', name)]);
    assert.is(await get('uid-1'), `200 ${name}`);
  }
  running = false;
  await Promise.all(workers);
  const total = [...answers.values()].reduce((sum, count) => sum + count, 0);
  const failed = [...answers].filter(([answer]) => !answer.startsWith('200 t-'));
  console.log(`  ${total} requests over ${rounds} moves, failed: ${JSON.stringify(failed)}`);
  assert.ok(total > rounds * 2);
  assert.equal(failed, []);
  const sent = await since(before);
  assert.is(sent['routes sent'], rounds);
  assert.is(sent['scope sent'], rounds * 2);
  assert.is(sent['listener sent'], undefined);
  assert.is(sent['secret sent'], undefined);
  await settle(base);
  assert.is(await get('uid-1'), '200 t-0');
});

test('a quick move there and back fails nothing either', async () => {
  let running = true;
  const failed: string[] = [];
  const worker = (async () => {
    while (running) {
      const answer = await get('uid-1');
      if (!answer.startsWith('200')) {
        failed.push(answer);
      }
    }
  })();
  const rest = base.filter(({ name }) => name !== 'uid-1' && name !== '!pin-t-0' && name !== 't-0');
  const other = [...rest, make.pin('t-x'), make.table('t-x', 'up'), make.scope('uid-1', 't-x')];
  for (let round = 0; round < 60; round += 1) {
    plane.publish('egress', round % 2 === 0 ? other : base);
    await new Promise((resolve) => setTimeout(resolve, round % 7));
  }
  await settle(base);
  running = false;
  await worker;
  assert.equal(failed, []);
  assert.is(await get('uid-1'), '200 t-0');
});

test('refused resources of every stage are traced, reported and held apart; all others flow', async () => {
  plane.rejections.length = 0;
  const others = [1, 2, 3, 4, 5].flatMap((index) => [
    make.staticCluster(`c-${index}`, port),
    make.pin(`r-${index}`),
    make.table(`r-${index}`, `c-${index}`),
    make.scope(`k-${index}`, `r-${index}`),
  ]);
  const bad = [
    make.badCluster('bad-cluster'),
    make.badListener('bad-listener'),
    make.pin('bad-table'),
    make.table('bad-table', 'up', '(['),
    make.scope('bad-key', 'bad-table'),
    make.table('behind', 'bad-cluster'),
    make.pin('behind'),
    make.scope('behind', 'behind'),
  ];
  const before = await counts();
  await settle([...base, ...others, ...bad], 5000);
  for (const index of [1, 2, 3, 4, 5]) {
    assert.is(await get(`k-${index}`), `200 r-${index}`);
  }
  assert.is(await get('bad-key'), '404 -');
  assert.is(await get('behind'), '404 -');
  const refused = new Map(plane.rejections.map(({ name, detail }) => [name, detail]));
  assert.equal([...refused.keys()].sort(), ['bad-cluster', 'bad-listener', 'bad-table']);
  assert.match(refused.get('bad-cluster')!, /Error adding\/updating cluster\(s\) bad-cluster: .+/);
  assert.match(refused.get('bad-listener')!, /bad-listener/);
  assert.match(refused.get('bad-table')!, /missing \]|missing argument|regex|\[/);
  assert.is(plane.rejections.length, 3);
  const sent = await since(before);
  const again = await counts();
  for (let round = 0; round < 5; round += 1) {
    await settle([...base, ...others, ...bad]);
  }
  assert.equal(await since(again), {}, 'nothing is offered twice');
  console.log(`  sent: ${JSON.stringify(sent)}`);
  plane.cleared.length = 0;
  await settle([
    ...base,
    ...others,
    make.pin('bad-table'),
    make.table('bad-table', 'up'),
    make.scope('bad-key', 'bad-table'),
  ]);
  assert.is(await get('bad-key'), '200 bad-table');
  assert.ok(plane.cleared.some(({ name }) => name === 'bad-table'));
  assert.is(await get('uid-1'), '200 t-0');
  await settle(base);
});

test('a changed cluster with dynamic endpoints is live at once', async () => {
  const started = Date.now();
  const rest = base.filter(({ name }) => name !== 'eds');
  await settle([...rest, ...make.edsCluster('eds', port, '2s')], 5000);
  const took = Date.now() - started;
  console.log(`  acknowledged after ${took} ms`);
  assert.ok(took < 2000);
  // An unrelated cluster after it is not held up.
  await settle([...rest, ...make.edsCluster('eds', port, '3s'), make.staticCluster('later', port)], 10_000);
  await settle(base);
});

test('a reconnect resends nothing, and what changed meanwhile arrives', async () => {
  // Removals of the test before linger a little.
  await new Promise((resolve) => setTimeout(resolve, 300));
  const before = await counts();
  await plane.stop();
  assert.is(await get('uid-1'), '200 t-0');
  await plane.start();
  const sequence = plane.republish();
  await until(() => plane.settled.includes(`egress ${sequence}`), 10_000, 'settlement after the restart');
  assert.is(await get('uid-1'), '200 t-0');
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(await since(before), {});
  await plane.stop();
  await plane.start();
  // Two versions on: a new cluster, a changed dynamic one whose endpoints are the same, and a removed scope.
  const rest = base.filter(({ name }) => !['eds', 'uid-1'].includes(name));
  const [eds, endpoints] = make.edsCluster('eds', port, '4s');
  const next = plane.publish('egress', [...rest, eds!, endpoints!, make.staticCluster('new', port)]);
  await until(() => plane.settled.includes(`egress ${next}`), 10_000, 'settlement after the second restart');
  await until(async () => (await get('uid-1')) === '404 -', 10_000, 'withdrawal');
  assert.equal(await since(before), { 'cluster sent': 2, 'endpoints sent': 1, 'scope removed': 1 });
  assert.equal(plane.rejections.slice(3), []);
});

test('a caller without a view is cut off and goes on with what it has', async () => {
  plane.publish('egress', null);
  await until(() => plane.comings.at(-1) === '-egress', 10_000, 'the end of the stream');
  // The last configuration goes on to serve.
  assert.is(await get('!pin-t-0'), '200 t-0');
});

test.run();
