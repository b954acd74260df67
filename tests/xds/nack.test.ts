import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { blamedNames, nackDetail, suspects } from '../../xds/nack.ts';

const MARKER = 'MARKER-SECRET';

const PGV =
  `goo.gle/debugonly   \nname: "r1" virtual_hosts { name: "${MARKER}" }: Proto constraint validation failed ` +
  '(RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by ' +
  'VirtualHostValidationError.Domains: value must contain at least 1 item(s))';

test('keeps a reason that quotes nothing, on one line and bounded', () => {
  assert.is(nackDetail('missing ]: [', false), 'missing ]: [');
  assert.is(
    nackDetail('Error adding/updating listener(s) l1: bad\nl2: worse\n', false),
    'Error adding/updating listener(s) l1: bad l2: worse',
  );
  assert.ok(nackDetail('x'.repeat(4096), false)!.length <= 501);
});

test('keeps only the constraint of a text that prints the resource', () => {
  const detail = nackDetail(PGV, false)!;
  assert.match(detail, /^Proto constraint validation failed \(RouteConfigurationValidationError/);
  assert.not.match(detail, /MARKER/);
});

test('drops whatever quotes content', () => {
  const texts = [
    `Unable to unpack as envoy.config.route.v3.RouteConfiguration: goo.gle/debugstr   \ntype_url: "x" value: "${MARKER}"\n`,
    `goo.gle/debugonly \n name: "${MARKER}"...(truncated)`,
    `Error adding/updating listener(s) n1: goo.gle/x \n${MARKER}...(truncated)`,
    `Failed: inline_string: "${MARKER}"`,
    `-----BEGIN PRIVATE KEY-----${MARKER}`,
    `broken\n filters {\n name: "${MARKER}"\n}`,
    `: Proto constraint validation failed (value "private_key ${MARKER}")`,
  ];
  for (const text of texts) {
    assert.not.match(nackDetail(text, false)!, new RegExp(MARKER), text);
  }
  assert.is(nackDetail(texts[0]!, false), 'cannot be parsed as envoy.config.route.v3.RouteConfiguration');
});

test('has no reason for a sensitive resource', () => {
  assert.is(nackDetail('Failed to load certificate chain from <inline>', true), null);
});

test('finds the names that clusters and listeners are blamed by, and no others', () => {
  const clusters = 'Error adding/updating cluster(s) b1: no such policy, sorry. b9: x, b2: bad, b3: worse';
  assert.equal(blamedNames(clusters, ['b', 'b1', 'b2', 'b3', 'b9', 'good']), ['b1', 'b2', 'b3']);
  const listeners = 'Error adding/updating listener(s) l1: a\nl2: b\nl3: c\n';
  assert.equal(blamedNames(listeners, ['l1', 'l3', 'l33', '1']), ['l1', 'l3']);
  assert.equal(
    blamedNames('Only unique values for domains are permitted. Duplicate entry of domain b1: x', ['b1']),
    [],
  );
});

test('tries blamed names alone, and halves when nobody is blamed', () => {
  assert.equal(suspects('Error adding/updating cluster(s) b: x', ['a', 'b', 'c']), [['a', 'c'], ['b']]);
  assert.equal(suspects('Error adding/updating cluster(s) a: x, b: y', ['a', 'b']), [['a'], ['b']]);
  assert.equal(suspects('has unknown fields', ['a', 'b', 'c']), [['a'], ['b', 'c']]);
});

test.run();
