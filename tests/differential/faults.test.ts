import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import type { Decision } from '../../api/decision.ts';
import type { PolicyFacts } from '../../api/facts.ts';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { agree } from './compare.ts';
import { explainer } from './explainer.ts';
import { FAULTS } from './faults.ts';
import { generatePairs, newSeed } from './generate.ts';

/** So many that the rarest fault is noticed several times; each test ends with the first. */
const PAIRS = 12_000;

const seed = newSeed();
console.log(`seed ${seed} (SANDGATE_SEED=${seed} repeats it)`);
const pairs = generatePairs(seed, PAIRS);
const decisions: Decision[] = [];

/** What `decide()` says about one pair, asked once. */
function decided(index: number): Decision {
  decisions[index] ??= decide(pairs[index]!.facts, pairs[index]!.request);
  return decisions[index];
}

test('there are at least twelve faults, each with a name of its own', () => {
  assert.ok(FAULTS.length >= 12);
  assert.equal(new Set(FAULTS.map(({ name }) => name)).size, FAULTS.length);
});

for (const fault of FAULTS) {
  test(`detects: ${fault.name}`, () => {
    const explain = explainer();
    const changed = new Map<PolicyFacts, PolicyFacts>();
    const noticed = pairs.findIndex(({ facts, request }, index) => {
      const wrong = changed.get(facts) ?? fault.facts?.(facts) ?? facts;
      changed.set(facts, wrong);
      return !agree(explain(wrong, fault.request?.(request) ?? request), decided(index));
    });
    assert.ok(noticed >= 0, `no pair of ${PAIRS} shows it`);
  });
}

test.run();
