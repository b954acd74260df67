import * as assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'uvu';
import { VIRTUAL_RANGE } from '../../api/facts.ts';
import { parseRange, rangeContains } from '../../base/addresses.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { balancedPairs } from './balance.ts';
import { assertSame } from './compare.ts';
import { Coverage } from './coverage.ts';
import { explainer, SETTINGS } from './explainer.ts';
import { newSeed, pairsOf, scenarios } from './generate.ts';

/** At least so many pairs, of which each feature is in at least this share (D28). */
const PAIRS = 3000;
const SHARE = 0.05;

const seed = newSeed();
console.log(`seed ${seed} (SANDGATE_SEED=${seed} repeats it)`);

test('explain says what decide() says; a disagreement is shrunk to its smallest form', () => {
  const explain = explainer();
  fc.assert(
    fc.property(scenarios, (scenario) => {
      for (const { facts, request } of pairsOf(scenario)) {
        assertSame(explain(facts, request), decide(facts, request));
      }
    }),
    { seed, numRuns: 1000 },
  );
});

test('and so on pairs that hold every action, field and verdict', () => {
  const explain = explainer();
  const coverage = new Coverage();
  const pairs = balancedPairs(seed, PAIRS, SHARE, ({ facts, request }) => decide(facts, request));
  for (const pair of pairs) {
    assertSame(explain(pair.facts, pair.request), pair.decided);
    coverage.add(pair, pair.decided);
  }
  assert.equal(pairs.length, PAIRS);
  assert.deepEqual(coverage.below(SHARE), []);
});

test('a sandbox that may connect to an address can ask for the addresses of names (D4)', () => {
  const virtual = parseRange(VIRTUAL_RANGE)!;
  const compiler = createCompiler();
  let seen = 0;
  fc.assert(
    fc.property(scenarios, (scenario) => {
      for (const { facts, request } of pairsOf(scenario)) {
        const { destination, sandbox } = request;
        const isReal = destination.kind === 'address' && !rangeContains(virtual, destination.address);
        if (isReal && decide(facts, request).l4.action === 'allow') {
          const { sidecarSets, subjects } = compiler.compile(facts, SETTINGS);
          const names = sidecarSets.get(subjects.get(sandbox)!.l4Set)!.map(({ name }) => name);
          assert.ok(names.includes('dns-tunnel'));
          seen += 1;
        }
      }
    }),
    { seed, numRuns: 200 },
  );
  assert.ok(seen > 10, `${seen}`);
});

test.run();
