import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { readAnswer, readQuestion, writeAnswer, writeQuestion } from '../../dns/message.ts';

const NAME = fc
  .array(fc.stringMatching(/^[a-z0-9_]([-a-z0-9_]{0,20}[a-z0-9_])?$/), { minLength: 1, maxLength: 6 })
  .map((labels) => labels.join('.'));
const TYPE = fc.constantFrom('A', 'AAAA');

test('a question that is written is read again', () => {
  fc.assert(
    fc.property(fc.nat(0xffff), NAME, TYPE, (id, name, type) => {
      const message = writeQuestion(id, name, type);
      assert.equal(readQuestion(message), { id, name, type, section: message.subarray(12) });
    }),
  );
});

test('whatever the bytes are, a name that is read is a host name', () => {
  const good = writeQuestion(1, 'a.b.example.test', 'A');
  const damaged = fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { maxLength: 6 }).map((changes) => {
    const bytes = Buffer.from(good);
    for (const [at, value] of changes) {
      bytes[at] = value;
    }
    return bytes;
  });
  fc.assert(
    fc.property(fc.oneof(damaged, fc.uint8Array({ maxLength: 600 }).map(Buffer.from)), (bytes) => {
      const { name = null } = readQuestion(bytes) ?? {};
      assert.ok(name === null || /^[a-z0-9._-]+$/.test(name), String(name));
    }),
    { numRuns: 2000 },
  );
});

test('spelling, trailing bytes and odd names', () => {
  const message = writeQuestion(9, 'api.example.test', 'AAAA');
  const spelt = Buffer.from(message);
  spelt.write('ApI', 13, 'latin1');
  assert.is(readQuestion(spelt)!.name, 'api.example.test');
  assert.is(Buffer.from(readQuestion(spelt)!.section).toString('latin1', 1, 4), 'ApI');
  const withOption = Buffer.concat([message, Buffer.from([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0])]);
  withOption[11] = 1;
  assert.is(readQuestion(withOption)!.section.length, message.length - 12);
  const odd = Buffer.from(message);
  odd.write('a b', 13, 'latin1');
  assert.is(readQuestion(odd)!.name, null);
  assert.is(readQuestion(message.subarray(0, -1)), null);
  assert.is(readQuestion(Buffer.concat([message, Buffer.alloc(512)])), null);
});

/** A resolver's answer: header, question, then records of type, data and time to live, all for the asked name. */
function answered(
  records: readonly (readonly [type: number, data: readonly number[], ttl: number])[],
  code = 0,
): Buffer {
  const question = writeQuestion(5, 'x.test', 'A');
  question.writeUInt16BE(0x8180 | code, 2);
  question.writeUInt16BE(records.length, 6);
  const bytes = records.flatMap(([type, data, ttl]) => [192, 12, 0, type, 0, 1, 0, 0, 0, ttl, 0, data.length, ...data]);
  return Buffer.concat([question, Buffer.from(bytes)]);
}

test('of an answer the addresses of the asked type remain', () => {
  const message = answered([
    [5, [1, 121, 192, 14], 20],
    [1, [192, 0, 2, 1], 60],
    [16, [3, 97, 98, 99], 30],
    [28, new Array(16).fill(1), 60],
    [1, [192, 0, 2, 2], 60],
  ]);
  const answer = readAnswer(message, { id: 5, type: 'A' })!;
  assert.equal(
    answer.addresses.map(({ bytes, ttl }) => [[...bytes].join('.'), ttl]),
    [
      ['192.0.2.1', 20],
      ['192.0.2.2', 20],
    ],
  );
  const question = readQuestion(writeQuestion(77, 'x.test', 'A'))!;
  const again = writeAnswer(question, answer);
  assert.equal(readAnswer(again, { id: 77, type: 'A' }), answer);
  assert.is(again.length, 12 + question.section.length + 2 * 16);
  assert.is(readAnswer(answered([], 3), { id: 5, type: 'A' })!.code, 3);
});

test('an answer to something else, or a broken one, is none', () => {
  const message = answered([[1, [192, 0, 2, 1], 60]]);
  assert.is(readAnswer(message, { id: 6, type: 'A' }), null);
  assert.is(readAnswer(writeQuestion(5, 'x.test', 'A'), { id: 5, type: 'A' }), null);
  assert.is(readAnswer(message.subarray(0, -10), { id: 5, type: 'A' }), null);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }).map(Buffer.from), (bytes) => {
      readAnswer(bytes, { id: 5, type: 'A' });
    }),
  );
});

test.run();
