import { X509Certificate } from 'node:crypto';
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { inspect } from 'node:util';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ManualClock } from '../../base/clock.ts';
import { isCoded } from '../../base/errors.ts';
import type { Certificate } from '../../identity/certificates.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { spiffeIdOfAltNames } from '../../identity/spiffe.ts';

const START = Date.parse('2026-12-01T00:00:00Z');
const HOUR = 3_600_000;

const test = suite<{ dir: string; clock: ManualClock }>('pki-directory');

test.before.each(async (context) => {
  context.dir = join(await mkdtemp(join(tmpdir(), 'sandgate-pki-')), 'pki');
  context.clock = new ManualClock(START);
});

test.after.each(async ({ dir }) => {
  await rm(join(dir, '..'), { recursive: true, force: true });
});

async function code(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'none';
  } catch (error) {
    return isCoded(error) ? error.code : String(error);
  }
}

test('creates everything private and loads it again', async ({ dir, clock }) => {
  const first = await openPki(dir, clock);
  const role = await first.issueRoleCertificate('egress');
  const second = await openPki(dir, clock);
  assert.is(second.caPem, first.caPem);
  assert.is(second.mitmCaPem, first.mitmCaPem);
  assert.is((await second.issueRoleCertificate('egress')).certificatePem, role.certificatePem);
  assert.equal((await second.tokens()).publicJwks(), (await first.tokens()).publicJwks());
  assert.is((await stat(dir)).mode & 0o777, 0o700);
  const names = (await readdir(dir)).sort();
  assert.equal(names, [
    'ca.crt',
    'ca.key',
    'egress.crt',
    'egress.key',
    'leaves',
    'mitm-ca.crt',
    'mitm-ca.key',
    'token.jwk',
  ]);
  for (const name of names) {
    assert.is((await stat(join(dir, name))).mode & 0o077, 0, name);
  }
});

test('several starters at once end with one CA, one role key and one token key', async ({ dir, clock }) => {
  const all = await Promise.all(Array.from({ length: 8 }, () => openPki(dir, clock)));
  assert.is(new Set(all.map((pki) => pki.caPem)).size, 1);
  assert.is(new Set(all.map((pki) => pki.mitmCaPem)).size, 1);
  const roles = await Promise.all(all.map((pki) => pki.issueRoleCertificate('ingress')));
  assert.is(new Set(roles.map(({ keyPem }) => keyPem.reveal())).size, 1);
  const jwks = await Promise.all(all.map(async (pki) => JSON.stringify((await pki.tokens()).publicJwks())));
  assert.is(new Set(jwks).size, 1);
  const leaves = await Promise.all(all.map((pki) => pki.issueLeaf('api.example.test')));
  assert.is(new Set(leaves.map(({ certificatePem }) => certificatePem)).size, 1);
  assert.not.ok((await readdir(dir)).some((name) => name.endsWith('.tmp')));
});

test('refuses a key that others may read, and a certificate of another key', async ({ dir, clock }) => {
  await openPki(dir, clock);
  await chmod(join(dir, 'ca.key'), 0o644);
  assert.is(await code(openPki(dir, clock)), 'key-exposed');
  await chmod(join(dir, 'ca.key'), 0o600);
  await rm(join(dir, 'ca.key'));
  assert.is(await code(openPki(dir, clock)), 'invalid-certificate');
});

test('a broken token key file is refused without quoting it', async ({ dir, clock }) => {
  const pki = await openPki(dir, clock);
  await writeFile(join(dir, 'token.jwk'), '{"keys":[{"d":"MARKER"}]}');
  const error = await pki.tokens().catch((caught: unknown) => caught);
  assert.ok(isCoded(error, 'invalid-token-key'));
  assert.not.match(inspect(error), /MARKER/);
});

test('role certificates last 24 h, are renewed after two thirds and keep their key', async ({ dir, clock }) => {
  const pki = await openPki(dir, clock);
  const first = await pki.issueRoleCertificate('control-plane');
  assert.is(first.notAfter, START + 24 * HOUR);
  assert.is(first.renewAt, START + 16 * HOUR);
  clock.advance(16 * HOUR - 1);
  assert.is((await pki.issueRoleCertificate('control-plane')).certificatePem, first.certificatePem);
  clock.advance(1);
  const second = await pki.issueRoleCertificate('control-plane');
  assert.is(second.notAfter, START + 40 * HOUR);
  assert.is(second.keyPem.reveal(), first.keyPem.reveal());
});

test('certificates carry exactly their identity', async ({ dir, clock }) => {
  const pki = await openPki(dir, clock);
  const sidecar = await pki.issueSidecarCertificate({
    namespace: 'team-a',
    uid: '6f9c3f0e-0000-4000-8000-000000000001',
  });
  const parsed = new X509Certificate(sidecar.certificatePem);
  const id = 'spiffe://sandgate.local/ns/team-a/sandbox/6f9c3f0e-0000-4000-8000-000000000001';
  assert.is(spiffeIdOfAltNames(parsed.subjectAltName), id);
  assert.ok(parsed.verify(new X509Certificate(pki.caPem).publicKey));
  assert.not.ok(parsed.ca);
  assert.equal(parsed.keyUsage, ['1.3.6.1.5.5.7.3.1', '1.3.6.1.5.5.7.3.2']);
  const ca = new X509Certificate(pki.caPem);
  assert.ok(ca.ca);
  assert.is(Date.parse(ca.validTo), START + 3650 * 24 * HOUR);
  assert.is(await code(pki.issueSidecarCertificate({ namespace: 'a/../b', uid: 'u' })), 'invalid-identity');
  assert.is(await code(pki.issueSidecarCertificate({ namespace: 'a', uid: '!pin-x' })), 'invalid-identity');
  assert.not.match(inspect(sidecar) + JSON.stringify(sidecar), /PRIVATE KEY/);
});

test('leaves are issued for one lower-case DNS name only and survive a restart', async ({ dir, clock }) => {
  const pki = await openPki(dir, clock);
  for (const name of [
    'API.example.test',
    'a.test.',
    '*.a.test',
    '10.0.0.1',
    '::1',
    '',
    'a_b.test',
    `${'a.'.repeat(127)}toolong`,
  ]) {
    assert.is(await code(pki.issueLeaf(name)), 'invalid-name', name);
  }
  const leaf = await pki.issueLeaf('api.example.test');
  assert.is(new X509Certificate(leaf.certificatePem).subjectAltName, 'DNS:api.example.test');
  assert.is((await (await openPki(dir, clock)).issueLeaf('api.example.test')).certificatePem, leaf.certificatePem);
  clock.advance(20 * 24 * HOUR);
  const renewed = await pki.issueLeaf('api.example.test');
  assert.is.not(renewed.certificatePem, leaf.certificatePem);
  assert.is((await (await openPki(dir, clock)).issueLeaf('api.example.test')).certificatePem, renewed.certificatePem);
});

/** One TLS handshake on loopback; what the server saw as the peer's id, or the error that refused it. */
async function handshake(server: Certificate, pki: Pki, client?: Certificate): Promise<string> {
  const listener = createServer({
    cert: server.certificatePem,
    key: server.keyPem.reveal(),
    ca: pki.caPem,
    requestCert: true,
    rejectUnauthorized: true,
    minVersion: 'TLSv1.3',
  });
  const seen = new Promise<string>((resolve) => {
    listener.once('secureConnection', (socket: TLSSocket) =>
      resolve(spiffeIdOfAltNames(socket.getPeerCertificate().subjectaltname) ?? 'no id'),
    );
    listener.once('tlsClientError', (error: NodeJS.ErrnoException) =>
      resolve(`refused ${error.code ?? error.message}`),
    );
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const { port } = listener.address() as { port: number };
  const socket = connect({
    port,
    host: '127.0.0.1',
    ca: pki.caPem,
    checkServerIdentity: () => undefined,
    ...(client === undefined ? {} : { cert: client.certificatePem, key: client.keyPem.reveal() }),
  });
  socket.on('error', () => {});
  const result = await seen;
  socket.destroy();
  listener.close();
  return result;
}

test('OpenSSL accepts them for mutual TLS and refuses those of another CA', async ({ dir }) => {
  const pki = await openPki(dir);
  const other = await openPki(`${dir}-other`);
  const server = await pki.issueRoleCertificate('control-plane');
  const identity = { namespace: 'a', uid: 'u-1' };
  assert.is(
    await handshake(server, pki, await pki.issueSidecarCertificate(identity)),
    'spiffe://sandgate.local/ns/a/sandbox/u-1',
  );
  assert.match(await handshake(server, pki, await other.issueSidecarCertificate(identity)), /^refused /);
  assert.match(await handshake(server, pki), /^refused /);
  assert.match(await handshake(server, pki, await pki.issueLeaf('a.test')), /^refused /);
});

test.run();
