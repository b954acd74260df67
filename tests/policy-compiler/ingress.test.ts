import { inspect } from 'node:util';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { canonicalJson } from '../../base/canonical.ts';
import { Redacted } from '../../base/redacted.ts';
import { compileIngress, type IngressRoute, type IngressSettings } from '../../policy-compiler/ingress.ts';
import { LISTENER, type ResourceJson, SCOPE } from '../../policy-compiler/output.ts';
import { resource } from '../../proto/resource.ts';

/** Name and key of the scope of `abc`. */
const ABC = 'abc.sbx.test:8080';
const TOKEN = '0f6b3d52-7f0a-4d55-9c5c-6a2b8f1e7a01';
const SETTINGS: IngressSettings = { domain: 'sbx.test', ingressSocket: '/run/ingress.sock', publicPort: 8080 };

function route(id: string, parts: Partial<IngressRoute> = {}): IngressRoute {
  return {
    id,
    uid: `uid-${id}`,
    address: '10.9.0.11',
    token: new Redacted(TOKEN),
    ref: { kind: 'Sandbox', namespace: 'team-a', name: id },
    ...parts,
  };
}

const of = (resources: readonly ResourceJson[], name: string) => resources.find((one) => one.name === name)!;
const fragments = ({ json }: ResourceJson) => (json as { key: { fragments: object[] } }).key.fragments;
const text = (resources: readonly ResourceJson[], name: string) => canonicalJson(of(resources, name).json);

test('Envoy is given the same bytes for the same input, and everything is valid', () => {
  const bytes = (resources: readonly ResourceJson[]) =>
    resources.map(({ type, name, json }) => `${type} ${name} ${Buffer.from(resource(type, json)).toString('base64')}`);
  const once = bytes(compileIngress([route('abc'), route('def')], SETTINGS));
  assert.equal(bytes(compileIngress([route('abc'), route('def')], { ...SETTINGS })), once);
  assert.is(new Set(once.map((line) => line.split(' ').slice(0, 2).join(' '))).size, once.length, 'names are unique');
});

test('without a sandbox there are listeners, clusters and the scope of the processor', () => {
  assert.equal(
    compileIngress([], SETTINGS).map(({ type, name }) => `${type.split('.').at(-1)} ${name}`),
    [
      ...['h1', 'h2'].flatMap((protocol) =>
        ['od', 'missloop', 'hot', 'od_meta', 'od_woken'].map((kind) => `Cluster ${kind}_${protocol}`),
      ),
      'TokenBucket forwarded-requests',
      'Listener ingress',
      'Listener miss',
      'ScopedRouteConfiguration miss',
      'ScopedRouteConfiguration woken',
    ],
  );
});

test('a sandbox is one scope: name and key are what the listener cuts from the host name', () => {
  const scope = of(compileIngress([route('abc')], SETTINGS), ABC);
  assert.is(scope.type, SCOPE);
  assert.is((scope.json as { name: string }).name, ABC);
  assert.equal(fragments(scope), [{ stringKey: ABC }]);
  assert.equal(scope.origins, [{ kind: 'Sandbox', namespace: 'team-a', name: 'abc' }]);
  assert.equal(
    scope.requires.map((required) => required.name),
    ['hot_h1', 'hot_h2', 'od_meta_h1', 'od_meta_h2'],
  );
});

test('the key ends where the listener ends it: at a dash in the domain', () => {
  const scope = of(compileIngress([route('abc')], { ...SETTINGS, domain: 'my-dom.test' }), 'abc.my-dom.test:8080');
  assert.equal(fragments(scope), [{ stringKey: 'abc.my' }]);
});

test('a change of one sandbox changes one resource, and the others stay the same objects', () => {
  const [abc, def] = [route('abc'), route('def')];
  const before = compileIngress([abc, def], SETTINGS);
  const after = compileIngress([abc, route('def', { address: '10.9.0.99' })], SETTINGS);
  const changed = after.filter((one) => !before.includes(one));
  assert.equal(
    changed.map(({ name }) => name),
    ['def.sbx.test:8080'],
  );
});

test('scopes are sensitive, since they hold the token; nothing else holds it', () => {
  for (const one of compileIngress([route('abc')], SETTINGS)) {
    assert.is(one.sensitive, one.name === ABC, one.name);
    assert.is(canonicalJson(one.json).includes(TOKEN), one.sensitive, one.name);
  }
  assert.not.match(inspect(route('abc'), { depth: 9 }), TOKEN);
});

test('a scope is small on the wire', () => {
  const { type, json } = of(compileIngress([route('abcdefghijklm')], SETTINGS), 'abcdefghijklm.sbx.test:8080');
  const { length } = resource(type, json);
  assert.ok(length < 2048, `${length} bytes`);
});

test('the token, the address and the id stand in the scope literally', () => {
  const scope = text(compileIngress([route('abc', { address: '2001:db8::7' })], SETTINGS), ABC);
  assert.match(scope, '[2001:db8::7]:%DYNAMIC_METADATA(sbx:port)%');
  assert.match(scope, `"exact":"${TOKEN}"`);
  assert.match(text(compileIngress([route('abc')], SETTINGS), ABC), '"10.9.0.11:%DYNAMIC_METADATA(sbx:port)%"');
});

test('a hot route tells the miss listener nothing that it could trust: the processor asks for the token again', () => {
  assert.not.match(text(compileIngress([route('abc')], SETTINGS), ABC), 'sharedWithUpstream');
});

test('on the port of its scheme a host name has none', () => {
  const scope = of(compileIngress([route('abc')], { ...SETTINGS, publicPort: 80 }), 'abc.sbx.test');
  assert.equal(fragments(scope), [{ stringKey: 'abc.sbx.test' }]);
});

test('what the processor fails to answer does not pass, and no header is logged', () => {
  for (const { type, json, name } of compileIngress([], SETTINGS)) {
    const found = canonicalJson(json);
    if (type === LISTENER) {
      assert.match(found, '"failureModeAllow":false', name);
      assert.match(found, '"statusOnError":{"code":"ServiceUnavailable"}', name);
      assert.not.match(found, /additionalRequestHeadersToLog|normalizePath|headersWithUnderscoresAction/, name);
    }
  }
});

test('many stale routes at once are all tried again', () => {
  const clusters = compileIngress([], SETTINGS);
  for (const name of [
    'hot_h1',
    'hot_h2',
    'missloop_h1',
    'missloop_h2',
    'od_meta_h1',
    'od_meta_h2',
    'od_woken_h1',
    'od_woken_h2',
  ]) {
    const { circuitBreakers } = of(clusters, name).json as {
      circuitBreakers: { thresholds: { maxRetries: number; maxRequests: number }[] };
    };
    assert.ok(circuitBreakers.thresholds[0]!.maxRetries >= 100_000, name);
    assert.ok(circuitBreakers.thresholds[0]!.maxRequests >= 100_000, name);
  }
});

test.run();
