import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generateKeyPair, importJWK, type JWK, SignJWT } from 'jose';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Certificate } from '../../identity/certificates.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { sandboxId } from '../../identity/spiffe.ts';
import { layoutOf } from '../../local/layout.ts';
import { readVirtualAddresses, VIRTUAL_ADDRESSES } from '../../world/virtual-addresses.ts';
import { API, sandbox, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane, until } from './plane.ts';
import { requestThrough, Tunnel } from './tunnel.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** Who may use the egress gateway: 0 connections and 0 bytes arrive upstream for anybody else (Done when 5). */
const identity = suite('identity at the egress gateway');
let plane: TestPlane;
let upstream: Upstream;
let pki: Pki;
let address: string;
const uids: Record<string, string> = {};
const certificates: Record<string, Certificate> = {};

identity.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'all.yaml': yaml(
        sandbox('alpha'),
        sandbox('beta'),
        trafficPolicy('alpha-egress', 'alpha', [{ action: 'allow', to: [{ fqdn: API }] }]),
        trafficPolicy('beta-egress', 'beta', [{ action: 'allow', to: [{ fqdn: API }] }]),
      ),
    },
  });
  await Promise.all([plane.phase('alpha', 'Running'), plane.phase('beta', 'Running')]);
  pki = await openPki(layoutOf(plane.dir).pki);
  for (const name of ['alpha', 'beta']) {
    const { metadata } = await plane.store.get('Sandbox', { namespace: 'default', name });
    uids[name] = metadata.uid!;
    certificates[name] = await pki.issueSidecarCertificate({ namespace: 'default', uid: metadata.uid! });
  }
  await until('a virtual address', 5000, async () => {
    const map = await plane.store.get('ConfigMap', { namespace: 'sandbox-system', name: VIRTUAL_ADDRESSES });
    address = readVirtualAddresses(map)[API] ?? '';
    return address !== '';
  });
});

identity.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

async function tokenOf(name: string): Promise<string> {
  const uid = uids[name]!;
  const pod = (await plane.store.get('Pod', { namespace: 'default', name })).metadata.uid!;
  const subject = { uid, pod, spiffeId: sandboxId({ namespace: 'default', uid }) };
  return (await (await pki.tokens()).issue(subject)).token.reveal();
}

/** A token of the plane's own key with other claims. */
async function forge(claims: {
  readonly aud?: string;
  readonly sub?: string;
  readonly exp?: number;
  readonly iss?: string;
}): Promise<string> {
  const stored = JSON.parse(await readFile(join(pki.directory, 'token.jwk'), 'utf8')) as { keys: JWK[] };
  const jwk = stored.keys[0]!;
  const now = Math.floor(Date.now() / 1000);
  const uid = uids['alpha']!;
  const kid = (await pki.tokens()).publicJwks().keys[0]!.kid!;
  return new SignJWT({ pod: 'x', spiffe: sandboxId({ namespace: 'default', uid }) })
    .setProtectedHeader({ alg: 'EdDSA', kid })
    .setIssuer(claims.iss ?? 'sandgate')
    .setAudience(claims.aud ?? 'egress')
    .setSubject(claims.sub ?? uid)
    .setIssuedAt(now - 600)
    .setNotBefore(now - 600)
    .setExpirationTime(claims.exp ?? now + 600)
    .sign(await importJWK(jwk, 'EdDSA'));
}

async function attempt(
  certificate: Certificate | null,
  headers: Readonly<Record<string, string>>,
  to?: string,
): Promise<number> {
  const { socket } = layoutOf(plane.dir);
  const tunnel = new Tunnel({ socketPath: socket('egress'), caPem: pki.caPem, certificate });
  try {
    const { status, stream } = await tunnel.open(to ?? `${address}:${upstream.httpPort}`, headers);
    if (status !== 200) {
      return status;
    }
    const answer = await requestThrough(stream, `${API}:${upstream.httpPort}`, '/through');
    return answer.status;
  } finally {
    tunnel.close();
  }
}

identity('its own certificate and token pass', async () => {
  assert.is(await attempt(certificates['alpha']!, { 'x-sandbox-token': await tokenOf('alpha') }), 200);
});

const REFUSED: readonly [string, () => Promise<number>][] = [
  ['no certificate', async () => attempt(null, { 'x-sandbox-token': await tokenOf('alpha') })],
  ['no token', () => attempt(certificates['alpha']!, {})],
  ['an empty token', () => attempt(certificates['alpha']!, { 'x-sandbox-token': '' })],
  ['garbage', () => attempt(certificates['alpha']!, { 'x-sandbox-token': 'a.b.c' })],
  [
    'an expired token',
    async () =>
      attempt(certificates['alpha']!, { 'x-sandbox-token': await forge({ exp: Math.floor(Date.now() / 1000) - 120 }) }),
  ],
  [
    'a wrong audience',
    async () => attempt(certificates['alpha']!, { 'x-sandbox-token': await forge({ aud: 'ingress' }) }),
  ],
  [
    'a wrong issuer',
    async () => attempt(certificates['alpha']!, { 'x-sandbox-token': await forge({ iss: 'somebody' }) }),
  ],
  [
    'the token of another sandbox',
    async () => attempt(certificates['alpha']!, { 'x-sandbox-token': await tokenOf('beta') }),
  ],
  [
    'the certificate of another sandbox',
    async () => attempt(certificates['beta']!, { 'x-sandbox-token': await tokenOf('alpha') }),
  ],
  [
    'a subject that is a table key',
    async () => attempt(certificates['alpha']!, { 'x-sandbox-token': await forge({ sub: '!pin-eset' }) }),
  ],
  [
    'a subject that nobody knows',
    async () =>
      attempt(certificates['alpha']!, {
        'x-sandbox-token': await forge({ sub: '00000000-0000-4000-8000-000000000000' }),
      }),
  ],
  ['a scope header without a token', () => attempt(certificates['alpha']!, { 'x-agents-uid': uids['alpha']! })],
  [
    'a key of its own',
    async () => {
      const { privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519' });
      const token = await new SignJWT({ spiffe: sandboxId({ namespace: 'default', uid: uids['alpha']! }) })
        .setProtectedHeader({ alg: 'EdDSA', kid: 'x' })
        .setIssuer('sandgate')
        .setAudience('egress')
        .setSubject(uids['alpha']!)
        .setIssuedAt()
        .setNotBefore('0s')
        .setExpirationTime('10m')
        .sign(privateKey);
      return attempt(certificates['alpha']!, { 'x-sandbox-token': token });
    },
  ],
  [
    'a host name as authority',
    async () =>
      attempt(certificates['alpha']!, { 'x-sandbox-token': await tokenOf('alpha') }, `${API}:${upstream.httpPort}`),
  ],
  [
    'loopback as authority',
    async () =>
      attempt(certificates['alpha']!, { 'x-sandbox-token': await tokenOf('alpha') }, `127.0.0.1:${upstream.httpPort}`),
  ],
];

for (const [what, run] of REFUSED) {
  identity(`${what}: nothing arrives`, async () => {
    const [connections, bytes] = [upstream.connections(), upstream.bytes()];
    const status = await run();
    assert.is.not(status, 200);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.is(upstream.connections(), connections);
    assert.is(upstream.bytes(), bytes);
  });
}

identity.run();
