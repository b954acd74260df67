import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { service } from '../../proto/service.ts';

const ADS = 'envoy.service.discovery.v3.AggregatedDiscoveryService';

function roundTrip(name: string, method: string, which: 'request' | 'response', message: object): unknown {
  const definition = service(name)[method]!;
  return which === 'request'
    ? definition.requestDeserialize(definition.requestSerialize(message))
    : definition.responseDeserialize(definition.responseSerialize(message));
}

test('delta discovery requests keep their map, responses their bytes', () => {
  const request = { typeUrl: 't', initialResourceVersions: { a: '1', b: '2' }, resourceNamesSubscribe: ['x'] };
  const read = roundTrip(ADS, 'DeltaAggregatedResources', 'request', request) as typeof request;
  assert.equal(read.initialResourceVersions, { a: '1', b: '2' });
  assert.equal(read.resourceNamesSubscribe, ['x']);
  const answer = roundTrip(ADS, 'DeltaAggregatedResources', 'response', {
    resources: [{ name: 'n', version: 'v', resource: { typeUrl: 't', value: Buffer.from('abc') } }],
  }) as { resources: { resource: { value: Buffer } }[] };
  assert.ok(Buffer.isBuffer(answer.resources[0]!.resource.value));
  assert.is(answer.resources[0]!.resource.value.toString(), 'abc');
});

test('ext_proc messages have their attributes, enums by name and the virtual member of the oneof', () => {
  const name = 'envoy.service.ext_proc.v3.ExternalProcessor';
  const request = roundTrip(name, 'Process', 'request', {
    requestHeaders: { headers: { headers: [{ key: ':path', rawValue: Buffer.from('/') }] } },
    attributes: { 'envoy.filters.http.ext_proc': { fields: { a: { stringValue: 'b' } } } },
  }) as { request: string; attributes: Record<string, { fields: Record<string, { stringValue: string }> }> };
  assert.is(request.request, 'requestHeaders');
  assert.is(request.attributes['envoy.filters.http.ext_proc']!.fields['a']!.stringValue, 'b');
  const answer = roundTrip(name, 'Process', 'response', {
    immediateResponse: { status: { code: 'Forbidden' }, body: Buffer.from('no') },
  }) as { response: string; immediateResponse: { status: { code: string } } };
  assert.is(answer.response, 'immediateResponse');
  assert.is(answer.immediateResponse.status.code, 'Forbidden');
});

test('the access log service has its client stream', () => {
  const method = service('envoy.service.accesslog.v3.AccessLogService')['StreamAccessLogs']!;
  assert.is(method.path, '/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs');
  assert.is(method.requestStream, true);
  assert.is(method.responseStream, false);
});

test('a definition is built once, and an unknown service is an error', () => {
  assert.is(service(ADS), service(ADS));
  for (const name of ['envoy.NoSuch', 'envoy.config.listener.v3.Listener']) {
    assert.throws(
      () => service(name),
      (error: unknown) => isCoded(error, 'unknown-type'),
    );
  }
});

test.run();
