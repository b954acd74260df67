import fc from 'fast-check';
import { test } from 'uvu';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { assertSame } from './compare.ts';
import { explainer } from './explainer.ts';
import { newSeed, pairsOf, scenarios } from './generate.ts';

const seed = newSeed();
console.log(`seed ${seed}`);

test('explain says what decide() says, on at least 3,000 pairs (D28)', () => {
  const explain = explainer();
  let pairs = 0;
  fc.assert(
    fc.property(scenarios, (scenario) => {
      for (const { facts, request } of pairsOf(scenario)) {
        pairs += 1;
        assertSame(explain(facts, request), decide(facts, request));
      }
    }),
    { seed, numRuns: 2500, endOnFailure: false },
  );
  if (pairs < 3000) {
    throw new Error(`only ${pairs} pairs`);
  }
});

test.run();
