import fc from 'fast-check';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { CodedError } from '../../base/errors.ts';
import { allocateVirtualAddresses, readVirtualAddresses } from '../../world/virtual-addresses.ts';

/** One address per name, kept for ever (D4). */
const virtual = suite('virtual addresses');

const map = (data: unknown) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'x' }, data });

virtual("the first names follow the proxy's own addresses, in their order", () => {
  assert.equal(allocateVirtualAddresses({}, ['b.test', 'a.test', 'b.test']), {
    'a.test': '240.0.1.0',
    'b.test': '240.0.1.1',
  });
});

virtual('known names keep theirs; without a new one the same object comes back', () => {
  const known = { 'a.test': '240.0.1.7' };
  assert.is(allocateVirtualAddresses(known, ['a.test']), known);
  assert.is(allocateVirtualAddresses(known, []), known);
  assert.equal(allocateVirtualAddresses(known, ['b.test']), { 'a.test': '240.0.1.7', 'b.test': '240.0.1.8' });
});

virtual('names like members of every object are names like others', () => {
  const given = allocateVirtualAddresses({}, ['constructor', 'tostring']);
  assert.equal(Object.keys(given), ['constructor', 'tostring']);
});

virtual('any sequence of wishes: no address is ever given to a second name, none changes, all are of the range', () => {
  const names = fc.array(fc.stringMatching(/^[a-f]{1,2}\.test$/), { maxLength: 8 });
  fc.assert(
    fc.property(fc.array(names, { maxLength: 12 }), (wishes) => {
      let known: Readonly<Record<string, string>> = {};
      const owner = new Map<string, string>();
      for (const wish of wishes) {
        known = readVirtualAddresses(map(allocateVirtualAddresses(known, wish)));
        for (const name of wish) {
          assert.ok(known[name] !== undefined);
        }
        for (const [name, address] of Object.entries(known)) {
          assert.is(owner.get(address) ?? name, name);
          assert.match(address, /^240\.\d+\.\d+\.\d+$/);
          owner.set(address, name);
        }
      }
      assert.is(new Set(owner.values()).size, owner.size);
    }),
    { seed: 4, numRuns: 200 },
  );
});

virtual('the end of the range is an error and no address of somebody else', () => {
  const known = { 'last.test': '240.255.255.255' };
  try {
    allocateVirtualAddresses(known, ['more.test']);
    assert.unreachable();
  } catch (error) {
    assert.is((error as CodedError).code, 'range-exhausted');
    assert.match((error as CodedError).message, /more\.test/);
  }
});

virtual('what is stored is read with care', () => {
  const data = {
    'z.test': '240.0.1.1',
    'a.test': '240.0.1.1', // The same address twice: the first name keeps it.
    'own.test': '240.0.0.53',
    'far.test': '10.0.0.1',
    'odd.test': '240.999.0.1',
    'padded.test': '240.0.01.5',
    'six.test': '::1',
    'number.test': 7,
    'fine.test': '240.1.2.3',
  };
  const read = readVirtualAddresses(map(data));
  assert.equal(read, { 'a.test': '240.0.1.1', 'fine.test': '240.1.2.3' });
  assert.equal(Object.keys(read), ['a.test', 'fine.test']);
  for (const nothing of [undefined, map(undefined), map(null), map('text')]) {
    assert.equal(readVirtualAddresses(nothing), {});
  }
  // A name that lost a doubled address gets one of its own.
  assert.is(allocateVirtualAddresses(read, ['z.test'])['z.test'], '240.1.2.4');
});

virtual.run();
