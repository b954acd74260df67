import { access, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { sendUnaryData } from '@grpc/grpc-js';
import * as grpc from '@grpc/grpc-js';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { CodedError, isCoded } from '../../base/errors.ts';
import { registry } from '../../base/metrics.ts';
import { Redacted } from '../../base/redacted.ts';
import { CertificateAuthority } from '../../identity/certificates.ts';
import { openPki } from '../../identity/pki-directory.ts';
import { service } from '../../proto/service.ts';
import { type AuthenticatedCall, callerOf } from '../../xds/tls.ts';
import { CLUSTER, SECRET } from '../../xds/types.ts';
import type { EncodedResource } from '../../xds/view.ts';
import { Plane, Scripted, until } from './plane.ts';
import { made, names } from './support.ts';

const test = suite<{ plane: Plane; clients: Scripted[] }>('xds server');

test.before.each(async (context) => {
  context.plane = await Plane.create();
  context.clients = [];
  await context.plane.start();
});

test.after.each(async ({ plane, clients }) => {
  for (const client of clients) {
    client.close();
  }
  await plane.close();
});

const cluster = (name: string, content = name): EncodedResource => made(CLUSTER, name, content);

async function sidecar(plane: Plane, clients: Scripted[], uid: string): Promise<Scripted> {
  const certificate = await plane.pki.issueSidecarCertificate({ namespace: 'a', uid });
  const client = new Scripted(plane.socketPath, plane.pki.caPem, certificate);
  clients.push(client);
  return client;
}

test('serves the view of the certificate, over real mutual TLS, until everything is acknowledged', async ({
  plane,
  clients,
}) => {
  const sequence = plane.publish('u-1', [cluster('a'), cluster('b')]);
  const client = await sidecar(plane, clients, 'u-1');
  client.send(CLUSTER);
  const first = await client.next();
  assert.is(names(first), '+a +b');
  assert.is(Buffer.from(first.resources[0]!.resource.value).toString(), 'a');
  assert.is(first.resources[0]!.resource.typeUrl, CLUSTER);
  assert.equal(plane.settled, []);
  client.ack(first);
  await until(() => plane.settled.length > 0, 1000, 'settlement');
  assert.equal(plane.settled, [`u-1 ${sequence}`]);
  assert.equal(plane.comings, ['+u-1']);
  assert.equal(
    plane.server.clients().map(({ spiffeId, streams, settled }) => [spiffeId, streams, settled]),
    [['spiffe://sandgate.local/ns/a/sandbox/u-1', 1, sequence]],
  );
  client.close();
  await until(() => plane.comings.length > 1, 1000, 'disconnection');
  assert.equal(plane.comings, ['+u-1', '-u-1']);
  assert.equal(plane.server.clients(), []);
});

test('one certificate never gets what belongs to another, whatever it says of itself', async ({ plane, clients }) => {
  plane.publish('u-1', [made(SECRET, 'sandbox-token', 'token of 1', [], true), cluster('one')]);
  plane.publish('u-2', [
    made(SECRET, 'sandbox-token', 'token of 2', [], true),
    made(SECRET, 'leaf:x', 'leaf', [], true),
  ]);
  const client = await sidecar(plane, clients, 'u-1');
  client.send(SECRET, { resourceNamesSubscribe: ['sandbox-token', 'leaf:x', '*'], node: { id: 'u-2' } });
  let text = '';
  let removed: readonly string[] = [];
  for (let response = await client.next(); ; response = await client.next()) {
    text += response.resources.map(({ resource }) => Buffer.from(resource.value).toString()).join();
    removed = [...removed, ...response.removedResources];
    client.ack(response);
    if (removed.length > 0) {
      break;
    }
  }
  assert.is(text, 'token of 1');
  assert.equal(removed, ['leaf:x']);
  assert.equal(await client.quiet(), []);
});

test('refuses no certificate, garbage, a foreign CA, a certificate without a usable id, an unknown caller', async ({
  plane,
  clients,
}) => {
  plane.publish('u-1', [cluster('a')]);
  const now = Date.now();
  const foreign = await openPki(join(plane.directory, 'foreign'));
  const own = await CertificateAuthority.create('Other', { now, lifetimeMs: 3_600_000 });
  const identity = { namespace: 'a', uid: 'u-1' };
  const cases: Record<string, { certificatePem: string; keyPem: CertificateAuthority['keyPem'] } | null> = {
    none: null,
    foreign: await foreign.issueSidecarCertificate(identity),
    'self-signed': { certificatePem: own.certificatePem, keyPem: own.keyPem },
    'interception leaf': await plane.pki.issueLeaf('a.test'),
  };
  for (const [what, certificate] of Object.entries(cases)) {
    const client = new Scripted(plane.socketPath, plane.pki.caPem, certificate);
    clients.push(client);
    client.send(CLUSTER);
    assert.match(await client.end(), /^UNAVAILABLE/, what);
  }
  const unknown = await sidecar(plane, clients, 'u-9');
  unknown.send(CLUSTER);
  assert.match(await unknown.end(), /^PERMISSION_DENIED/);
  assert.equal(plane.comings, []);
});

test('a certificate of the CA whose id is not of the trust domain is refused', async ({ plane, clients }) => {
  plane.publish('u-1', [cluster('a')]);
  const keyPem = new Redacted(await readFile(join(plane.pki.directory, 'ca.key'), 'utf8'));
  const ca = await CertificateAuthority.load(plane.pki.caPem, keyPem);
  const certificate = await ca.issueWorkload('spiffe://evil.test/ns/a/sandbox/u-1', {
    now: Date.now(),
    lifetimeMs: 60_000,
  });
  const client = new Scripted(plane.socketPath, plane.pki.caPem, certificate);
  clients.push(client);
  client.send(CLUSTER);
  assert.match(await client.end(), /^UNAUTHENTICATED/);
});

test('a stream whose caller loses its view is ended; one from before the first publication waits', async ({
  plane,
  clients,
}) => {
  const client = await sidecar(plane, clients, 'u-1');
  client.send(CLUSTER);
  assert.equal(await client.quiet(), []);
  plane.publish('u-1', [cluster('a')]);
  client.ack(await client.next());
  plane.publish('u-1', null);
  assert.match(await client.end(), /^PERMISSION_DENIED/);
  await until(() => plane.comings.length > 1, 1000, 'disconnection');
});

test('state of the world is refused by name', async ({ plane, clients }) => {
  plane.publish('u-1', []);
  const certificate = await plane.pki.issueSidecarCertificate({ namespace: 'a', uid: 'u-1' });
  const client = new Scripted(plane.socketPath, plane.pki.caPem, certificate, 'StreamAggregatedResources');
  clients.push(client);
  assert.is(await client.end(), 'UNIMPLEMENTED: only delta ADS is served: use api_type DELTA_GRPC');
});

test('a refusal is reported with its object and counted, without the text of a secret', async ({ plane, clients }) => {
  plane.publish('u-1', [cluster('bad'), made(SECRET, 's', 'x', [], true)]);
  const client = await sidecar(plane, clients, 'u-1');
  client.send(CLUSTER);
  client.nack(await client.next(), 'Error adding/updating cluster(s) bad: no');
  client.send(SECRET, { resourceNamesSubscribe: ['s'] });
  client.nack(await client.next(), 'MARKER');
  await until(() => plane.rejections.length > 1, 1000, 'rejections');
  assert.equal(
    plane.rejections.map(({ name, detail, origins, spiffeId }) => [name, detail, origins[0]!.name, spiffeId]),
    [
      ['bad', 'Error adding/updating cluster(s) bad: no', 'bad', 'spiffe://sandgate.local/ns/a/sandbox/u-1'],
      ['s', null, 's', 'spiffe://sandgate.local/ns/a/sandbox/u-1'],
    ],
  );
  const metrics = await registry.metrics();
  assert.match(metrics, /sandgate_xds_rejections_total\{type="secret"\} [1-9]/);
  assert.match(metrics, /sandgate_xds_resources_total\{type="cluster",kind="sent"\} [1-9]/);
});

test('a settlement counts for all streams of a caller', async ({ plane, clients }) => {
  const sequence = plane.publish('u-1', [cluster('a')]);
  const one = await sidecar(plane, clients, 'u-1');
  const two = await sidecar(plane, clients, 'u-1');
  one.send(CLUSTER);
  two.send(CLUSTER);
  const held = await two.next();
  one.ack(await one.next());
  await one.quiet(50);
  assert.equal(plane.settled, []);
  two.ack(held);
  await until(() => plane.settled.length > 0, 1000, 'settlement');
  assert.equal(plane.settled, [`u-1 ${sequence}`]);
});

test('a client that never reads costs one response a type, however often views change', async ({ plane, clients }) => {
  plane.publish('u-1', [cluster('a', 'first')]);
  const client = await sidecar(plane, clients, 'u-1');
  client.send(CLUSTER);
  const first = await client.next();
  for (let index = 0; index < 200; index += 1) {
    plane.publish('u-1', [cluster('a', 'x'.repeat(10_000) + index)]);
  }
  assert.equal(await client.quiet(), []);
  client.ack(first);
  const last = await client.next();
  assert.match(Buffer.from(last.resources[0]!.resource.value).toString(), /x199$/);
  client.ack(last);
  assert.equal(await client.quiet(), []);
});

test('a restarted server takes over a dead socket and resends nothing that is known', async ({ plane, clients }) => {
  const view = [cluster('a'), cluster('b')];
  plane.publish('u-1', view);
  const before = await sidecar(plane, clients, 'u-1');
  before.send(CLUSTER);
  before.ack(await before.next());
  await plane.stop();
  assert.match(await before.end(), /^UNAVAILABLE/);
  await plane.start();
  plane.republish();
  const after = await sidecar(plane, clients, 'u-1');
  after.send(CLUSTER, {
    initialResourceVersions: Object.fromEntries(view.map(({ name, version }) => [name, version])),
  });
  assert.equal(await after.quiet(), []);
  assert.ok(plane.settled.includes('u-1 2'), String(plane.settled));
});

test('the socket is private, is not taken from a live server, and no other file is touched', async ({ plane }) => {
  assert.is((await stat(plane.socketPath)).mode & 0o777, 0o600);
  const second = await plane.start().catch((error: unknown) => error);
  assert.ok(isCoded(second, 'address-in-use'), String(second));
  const file = join(plane.directory, 'file');
  await writeFile(file, 'x');
  const third = await plane.start({ socketPath: file }).catch((error: unknown) => error);
  assert.ok(isCoded(third, 'invalid-path'));
  const long = await plane.start({ socketPath: `/${'x'.repeat(107)}` }).catch((error: unknown) => error);
  assert.ok(long instanceof CodedError && long.code === 'invalid-path');
  await access(file);
});

test('a new server certificate is shown to new connections, and old ones go on', async ({ plane, clients }) => {
  plane.publish('u-1', [cluster('a')]);
  const old = await sidecar(plane, clients, 'u-1');
  old.send(CLUSTER);
  old.ack(await old.next());
  const other = await openPki(join(plane.directory, 'other'));
  const role = await other.issueRoleCertificate('control-plane');
  plane.server.replaceTls({ ...role, caPem: plane.pki.caPem });
  const certificate = await plane.pki.issueSidecarCertificate({ namespace: 'a', uid: 'u-1' });
  const distrusting = new Scripted(plane.socketPath, plane.pki.caPem, certificate);
  const trusting = new Scripted(plane.socketPath, other.caPem, certificate);
  clients.push(distrusting, trusting);
  trusting.send(CLUSTER);
  assert.is(names(await trusting.next()), '+a');
  assert.match(await distrusting.end(), /^UNAVAILABLE/);
  plane.publish('u-1', [cluster('a', 'new')]);
  assert.is(names(await old.next()), '+a');
});

test('another service on the socket learns its caller the same way', async ({ plane, clients }) => {
  await plane.stop();
  const definition = service('envoy.service.accesslog.v3.AccessLogService');
  const seen: string[] = [];
  const handlers = {
    StreamAccessLogs: (
      call: AuthenticatedCall & { resume(): void; on(event: 'end', listener: () => void): void },
      done: sendUnaryData<object>,
    ) => {
      seen.push(callerOf(call)?.spiffeId ?? 'nobody');
      call.on('end', () => done(null, {}));
      call.resume();
    },
  };
  await plane.start({ services: [{ definition, handlers }] });
  plane.publish('u-1', [cluster('a')]);
  const certificate = await plane.pki.issueSidecarCertificate({ namespace: 'a', uid: 'u-1' });
  const credentials = grpc.credentials.createSsl(
    Buffer.from(plane.pki.caPem),
    Buffer.from(certificate.keyPem.reveal()),
    Buffer.from(certificate.certificatePem),
    { checkServerIdentity: () => undefined },
  );
  const client = new grpc.Client(`unix:${plane.socketPath}`, credentials);
  const { path, requestSerialize, responseDeserialize } = definition['StreamAccessLogs']!;
  const ended = new Promise((resolve) => {
    const call = client.makeClientStreamRequest(path, requestSerialize, responseDeserialize, (error) => resolve(error));
    call.write({ identifier: { logName: 'x' } });
    call.end();
  });
  assert.is(await ended, null);
  client.close();
  assert.equal(seen, ['spiffe://sandgate.local/ns/a/sandbox/u-1']);
  const ads = await sidecar(plane, clients, 'u-1');
  ads.send(CLUSTER);
  assert.is(names(await ads.next()), '+a');
});

test('100,000 known names in one request are read', async ({ plane, clients }) => {
  plane.publish('u-1', [cluster('a')]);
  const client = await sidecar(plane, clients, 'u-1');
  const versions = Object.fromEntries(
    Array.from({ length: 100_000 }, (_, index) => [`old-${index}-${'n'.repeat(30)}`, '0123456789abcdef']),
  );
  client.send(CLUSTER, { initialResourceVersions: { ...versions, a: cluster('a').version } });
  const removal = await client.next();
  assert.is(removal.removedResources.length, 100_000);
});

test.run();
