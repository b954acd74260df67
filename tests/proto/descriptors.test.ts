import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { descriptorBytes, descriptorFiles, fileOfType, importClosure } from '../../proto/descriptor-files.ts';
import { envoyTypes, messageDescriptor } from '../../proto/descriptors.ts';
import { extractDescriptors, scanDescriptors } from '../../proto/extract.ts';
import { TYPE_ROOTS } from '../../proto/roots.ts';

/** Fields that the product stands on and that older descriptions of the API lack: message, field, number. */
const FIELDS: readonly (readonly [string, string, number])[] = [
  ['envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig', 'formatters', 10],
  ['envoy.extensions.transport_sockets.tls.v3.CommonTlsContext', 'custom_tls_certificate_selector', 16],
  ['envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue', 'shared_with_upstream', 4],
  ['envoy.extensions.filters.http.jwt_authn.v3.JwtProvider', 'clear_route_cache', 17],
  ['envoy.config.listener.v3.Listener', 'filter_chain_matcher', 32],
  ['envoy.service.ext_proc.v3.ProcessingRequest', 'attributes', 9],
  ['envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig', 'resolved_address_filter', 16],
];

test('all files are there and no import is missing', () => {
  const files = descriptorFiles();
  assert.is(files.length, 556);
  assert.is(importClosure(files).length, 556);
  assert.ok(importClosure(TYPE_ROOTS).length > TYPE_ROOTS.length);
});

test('types are found by their full name, nested ones and enums too', () => {
  assert.is(
    fileOfType('envoy.config.listener.v3.Listener.ConnectionBalanceConfig'),
    'envoy/config/listener/v3/listener.proto',
  );
  assert.is(envoyTypes.getEnum('envoy.config.cluster.v3.Cluster.DiscoveryType')?.kind, 'enum');
  assert.is(envoyTypes.getMessage('envoy.NoSuch'), undefined);
  assert.throws(
    () => messageDescriptor('envoy.NoSuch'),
    (error: unknown) => isCoded(error, 'unknown-type'),
  );
});

test('the fields that the product stands on have the numbers of Envoy 1.40', () => {
  for (const [message, name, number] of FIELDS) {
    const field = messageDescriptor(message).fields.find((candidate) => candidate.name === name);
    assert.is(field?.number, number, `${message}.${name}`);
    assert.is(
      field?.jsonName,
      name.replace(/_(.)/g, (_, next: string) => next.toUpperCase()),
    );
  }
});

test('the scanner takes whole descriptors and nothing around them', () => {
  const names = [
    'envoy/annotations/deprecation.proto',
    'envoy/config/route/v3/route.proto',
    'udpa/annotations/status.proto',
  ];
  const noise = Buffer.from([0, 0x0a, 0x05, 0x61, 0x0a, 0, 0, 0]);
  const section = Buffer.concat(names.flatMap((name) => [noise, Buffer.from(descriptorBytes(name)), Buffer.alloc(3)]));
  const found = scanDescriptors(section);
  assert.equal([...found.keys()], names);
  for (const name of names) {
    assert.ok(Buffer.from(descriptorBytes(name)).equals(Buffer.from(found.get(name)!)), name);
  }
});

test('the scanner refuses one name with two contents, and a file that is no ELF', () => {
  const first = Buffer.from(descriptorBytes('udpa/annotations/status.proto'));
  const second = Buffer.concat([first.subarray(0, 31), Buffer.from([0x12, 1, 0x78])]);
  assert.throws(() => scanDescriptors(Buffer.concat([first, Buffer.alloc(1), second])), /twice/);
  assert.throws(() => extractDescriptors(Buffer.from('#!/bin/sh\n'.repeat(20))), /ELF/);
});

test.run();
