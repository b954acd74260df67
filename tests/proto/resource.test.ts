import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { Redacted } from '../../base/redacted.ts';
import type { EnvoyJson } from '../../proto/resource.ts';
import { any, decode, resource, typeUrl } from '../../proto/resource.ts';

const LISTENER = 'envoy.config.listener.v3.Listener';
const HCM = 'envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager';

/** The error of encoding JSON that the compiler would refuse. */
function refusal(type: keyof EnvoyJson, json: unknown): string {
  try {
    resource(type, json as never);
  } catch (error) {
    assert.ok(isCoded(error, 'invalid-resource'), String(error));
    return (error as Error).message;
  }
  throw new Error('was not refused');
}

test('a listener comes back as it was written, Any included', () => {
  const json: EnvoyJson[typeof LISTENER] = {
    name: 'in',
    address: { socketAddress: { address: '::', portValue: 15001, ipv4Compat: true } },
    listenerFiltersTimeout: '0.200s',
    perConnectionBufferLimitBytes: 0,
    filterChains: [{ filters: [{ name: 'hcm', typedConfig: any(HCM, { statPrefix: 'a', streamIdleTimeout: '0s' }) }] }],
  };
  assert.equal(decode(LISTENER, resource(LISTENER, json)), json);
});

test('the wire form has the field numbers of Envoy 1.40', () => {
  const bytes = resource('envoy.config.route.v3.ScopedRouteConfiguration', {
    name: 'u1',
    routeConfigurationName: 'r',
    key: { fragments: [{ stringKey: 'k' }] },
  });
  assert.is(Buffer.from(bytes).toString('hex'), '0a0275311201721a050a030a016b');
});

test('what would be dropped in silence is refused and named', () => {
  assert.match(refusal(LISTENER, { nme: 'a' }), /key "nme" is unknown/);
  assert.match(refusal(LISTENER, { name: 'a', filterChains: [{ filters: [{ nam: 'x' }] }] }), /"nam" is unknown/);
  assert.match(refusal('envoy.config.cluster.v3.Cluster', { type: 'STATICK' }), /DiscoveryType/);
  const both = { name: 'x', address: { pipe: { path: '/a' }, socketAddress: { address: '::1', portValue: 1 } } };
  assert.match(refusal(LISTENER, both), /oneof set multiple times/);
  assert.match(refusal(LISTENER, { name: undefined }), /Listener\.name/);
  assert.match(refusal(LISTENER, { filterChains: [{ name: null }] }), /filterChains\[0\]\.name/);
  assert.match(refusal(LISTENER, { name: new Redacted('secret') }), /Listener\.name/);
});

test('a wrong field or an unknown type inside an Any is refused', () => {
  const withConfig = (typedConfig: unknown): unknown => ({ filterChains: [{ filters: [{ name: 'x', typedConfig }] }] });
  assert.match(refusal(LISTENER, withConfig({ '@type': typeUrl(HCM), stat: 'a' })), /"stat" is unknown/);
  assert.match(refusal(LISTENER, withConfig({ '@type': typeUrl('envoy.NoSuch'), a: 1 })), /envoy\.NoSuch/);
});

test('an error about a secret does not quote it', () => {
  const marker = 'hunter2';
  const text = refusal('envoy.extensions.transport_sockets.tls.v3.Secret', {
    name: 'a',
    genericSecret: { secret: { inlineBytes: `${marker}!` } },
  });
  assert.not.match(text, new RegExp(marker));
});

test('equal content gives equal bytes whatever the order of keys and map entries', () => {
  const type = 'envoy.config.core.v3.Metadata';
  const one = resource(type, { filterMetadata: { b: { x: 1, a: 'q' }, a: {} } });
  const two = resource(type, { filterMetadata: { a: {}, b: { a: 'q', x: 1 } } });
  assert.equal(one, two);
  assert.equal(decode(type, one), { filterMetadata: { a: {}, b: { a: 'q', x: 1 } } });
});

test('messages with a JSON form of their own go into an Any as its value', () => {
  assert.equal(any('google.protobuf.StringValue', 'chain'), {
    '@type': 'type.googleapis.com/google.protobuf.StringValue',
    value: 'chain',
  });
  const action = resource('xds.core.v3.TypedExtensionConfig', {
    name: 'a',
    typedConfig: any('google.protobuf.StringValue', 'chain'),
  });
  assert.ok(
    Buffer.from(action)
      .toString('hex')
      .endsWith(`12070a05${Buffer.from('chain').toString('hex')}`),
  );
  assert.equal(decode('xds.core.v3.TypedExtensionConfig', action), {
    name: 'a',
    typedConfig: { '@type': 'type.googleapis.com/google.protobuf.StringValue', value: 'chain' },
  });
});

test.run();
