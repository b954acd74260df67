import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { Coverage } from './coverage.ts';
import { generatePairs, newSeed } from './generate.ts';

const seed = newSeed();
console.log(`seed ${seed}`);

test('every action, field and verdict is in at least 5 % of the pairs (D28)', () => {
  const coverage = new Coverage();
  for (const pair of generatePairs(seed, 3000)) {
    coverage.add(pair, decide(pair.facts, pair.request));
  }
  assert.deepEqual(coverage.below(0.05), []);
});

test('the same seed gives the same pairs', () => {
  assert.deepEqual(generatePairs(seed, 50), generatePairs(seed, 50));
  assert.notDeepEqual(generatePairs(seed, 50), generatePairs(seed + 1, 50));
});

test.run();
