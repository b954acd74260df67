import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { layoutOf } from '../../local/layout.ts';
import { typeUrl } from '../../proto/resource.ts';
import { Scripted } from '../xds/plane.ts';
import { API, credentialRule, sandbox, secret, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane } from './plane.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** What a sidecar's certificate can get from the control plane: its own, and nothing of anybody else (Done when 5). */
const view = suite('the view of a sidecar');
let plane: TestPlane;
let upstream: Upstream;
let pki: Pki;
const uids: Record<string, string> = {};

view.before(async () => {
  upstream = await startUpstream(API);
  const names = ['alpha', 'beta'];
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'all.yaml': yaml(
        ...names.flatMap((name) => [
          sandbox(name),
          trafficPolicy(`${name}-egress`, name, [
            { action: 'allow', to: [{ fqdn: name === 'alpha' ? API : 'other.example.test' }] },
          ]),
          securityProfile(`${name}-requests`, name, [credentialRule(`${name}-key`, '/')]),
          secret(`${name}-key`, `credential-of-${name}`),
        ]),
      ),
    },
  });
  await Promise.all(names.map((name) => plane.phase(name, 'Running')));
  pki = await openPki(layoutOf(plane.dir).pki);
  for (const name of names) {
    uids[name] = (await plane.store.get('Sandbox', { namespace: 'default', name })).metadata.uid!;
  }
});

view.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

const TYPES = {
  listener: 'envoy.config.listener.v3.Listener',
  cluster: 'envoy.config.cluster.v3.Cluster',
  scope: 'envoy.config.route.v3.ScopedRouteConfiguration',
  routes: 'envoy.config.route.v3.RouteConfiguration',
  secret: 'envoy.extensions.transport_sockets.tls.v3.Secret',
} as const;

/** Everything that this identity is sent when it asks for all of a type, or for these names, as one text. */
async function ask(
  uid: string,
  type: keyof typeof TYPES,
  names: readonly string[],
): Promise<{ names: string[]; text: string }> {
  const certificate = await pki.issueSidecarCertificate({ namespace: 'default', uid });
  const client = new Scripted(layoutOf(plane.dir).socket('xds'), pki.caPem, certificate);
  try {
    client.send(typeUrl(TYPES[type]), { resourceNamesSubscribe: [...names] });
    const resources = (await client.quiet(700)).flatMap((response) => response.resources);
    return {
      names: resources.map(({ name }) => name).sort(),
      text: resources.map(({ resource }) => Buffer.from(resource?.value ?? []).toString('latin1')).join('\n'),
    };
  } finally {
    client.close();
  }
}

view('its own listeners and token come, and nothing about the other sandbox', async () => {
  const listeners = await ask(uids['alpha']!, 'listener', []);
  // `outbound` follows once the clusters that it needs have been acknowledged, which this client never does.
  // Its policies allow names alone, so that it has no way to a resolver (D4).
  assert.equal(listeners.names, ['dns']);
  assert.not.ok(listeners.text.includes(uids['beta']!));
  const own = await ask(uids['alpha']!, 'secret', ['sandbox-token']);
  const other = await ask(uids['beta']!, 'secret', ['sandbox-token']);
  assert.equal(own.names, ['sandbox-token']);
  assert.is.not(own.text, other.text);
  const payload = /eyJ[\w-]+\.(eyJ[\w-]+)\./.exec(own.text)?.[1] ?? '';
  assert.is((JSON.parse(Buffer.from(payload, 'base64url').toString()) as { sub: string }).sub, uids['alpha']);
});

view('no scope, table, leaf or credential of the gateway', async () => {
  const uid = uids['alpha']!;
  const { sidecars } = (await plane.admin('GET', '/compile')) as { sidecars: object };
  assert.ok(Object.keys(sidecars).length > 0);
  const compiled = (await plane.admin('GET', '/compile')) as { egress: { type: string; name: string }[] };
  const scopes = compiled.egress.filter(({ type }) => type === TYPES.scope).map(({ name }) => name);
  const tables = compiled.egress.filter(({ type }) => type === TYPES.routes).map(({ name }) => name);
  assert.ok(scopes.length > 0 && tables.length > 0);
  const credentials = JSON.stringify(compiled.egress).match(/cred:[0-9a-f]+/g) ?? [];
  assert.ok(credentials.length > 0);
  assert.equal((await ask(uid, 'scope', [])).names, []);
  assert.equal((await ask(uid, 'scope', scopes)).names, []);
  assert.equal((await ask(uid, 'routes', tables)).names, []);
  const secrets = await ask(uid, 'secret', [...new Set(credentials), `leaf:${API}`, 'leaf:other.example.test']);
  assert.equal(secrets.names, []);
});

view('an identity that the control plane does not know gets nothing', async () => {
  const stranger = '11111111-2222-4333-8444-555555555555';
  assert.equal((await ask(stranger, 'listener', [])).names, []);
  assert.equal((await ask(stranger, 'secret', ['sandbox-token'])).names, []);
});

view.run();
