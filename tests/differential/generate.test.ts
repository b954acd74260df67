import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { generatePairs, newSeed } from './generate.ts';

const seed = newSeed();
console.log(`seed ${seed}`);

test('the same seed gives the same pairs, another one others', () => {
  assert.deepEqual(generatePairs(seed, 50), generatePairs(seed, 50));
  assert.notDeepEqual(generatePairs(seed, 50), generatePairs(seed + 1, 50));
});

test('every generated object is what it claims to be: valid, or meant to be invalid', () => {
  for (const { facts } of generatePairs(seed, 500)) {
    for (const { ref, errors, inForce } of facts.policies) {
      const meant = errors.every(({ path }) =>
        /^spec\.(selector|priority|egress\.rules\[1\]\.to\[0\]\.cidr$|rules\[0\]\.match\[0\]\.schemes\[0\]$)/.test(
          path,
        ),
      );
      assert.ok(meant, `${ref.kind} ${ref.name}: ${JSON.stringify(errors)}`);
      assert.equal(inForce === null, errors.length > 0);
    }
  }
});

test.run();
