import * as assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'uvu';
import { ManualClock } from '../../base/clock.ts';
import { immutableRevision, safeText, templateRevision } from '../../controller/revision.ts';
import { encodeShortId, shortIdMaker } from '../../controller/short-id.ts';

test('safe text has the check values of the specification', () => {
  const sha = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 9);
  assert.equal(safeText(sha('abc')), 'wvcd5bw4d');
  assert.equal(templateRevision({}), '8857b4v79');
  assert.equal(safeText('2166136261'), '65bb57b6b5');
});

test('a revision depends on content alone', () => {
  const a = { metadata: { labels: { a: '1', b: '2' } }, spec: { containers: [{ name: 'x', image: 'i' }] } };
  const b = {
    spec: { containers: [{ image: 'i', name: 'x', command: null }], volumes: null },
    metadata: { labels: { b: '2', a: '1' }, creationTimestamp: null },
  };
  assert.equal(templateRevision(a), templateRevision(b));
  assert.notEqual(templateRevision(a), templateRevision({ ...a, metadata: {} }));
  assert.equal(templateRevision('str').length, 9);
});

test('the fixed part leaves labels, annotations, images and resources out', () => {
  const template = (label: string, image: string, name: string) => ({
    metadata: { labels: { a: label } },
    spec: { containers: [{ name, image, resources: { limits: { cpu: image } } }] },
  });
  assert.equal(immutableRevision(template('1', 'i', 'x')), immutableRevision(template('2', 'j', 'x')));
  assert.notEqual(immutableRevision(template('1', 'i', 'x')), immutableRevision(template('1', 'i', 'y')));
});

test('short ids: the form, the check value, the order', () => {
  assert.equal(encodeShortId(1n), 'aaaaaaaaaaaac');
  assert.equal(encodeShortId(2n ** 63n - 1n), 'p777777777776');
  const clock = new ManualClock(Date.UTC(2030, 0, 1));
  const make = shortIdMaker(clock, 2 ** 18 - 1);
  const ids = Array.from({ length: 100 }, make);
  clock.advance(1);
  ids.push(make());
  clock.advance(100);
  ids.push(make());
  clock.advance(-5000);
  ids.push(make());
  assert.equal(new Set(ids).size, ids.length);
  const order = (id: string) =>
    [...id].map((c) => String.fromCharCode('abcdefghijklmnopqrstuvwxyz234567'.indexOf(c) + 65)).join('');
  assert.deepEqual(ids.map(order), ids.map(order).sort());
  assert.ok(ids.every((id) => /^[a-p][a-z2-7]{11}[acegikmoqsuwy246]$/.test(id)));
});

test('two workers never make the same id', () => {
  const clock = new ManualClock(Date.UTC(2030, 0, 1));
  const [a, b] = [shortIdMaker(clock, 1), shortIdMaker(clock, 2)];
  const ids = Array.from({ length: 50 }, () => [a(), b()]).flat();
  assert.equal(new Set(ids).size, 100);
});

test.run();
