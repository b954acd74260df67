import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { normalisedPath } from '../../policy-compiler/decide/http-view.ts';
import { pairsOf, scenarios } from '../differential/generate.ts';
import { call, factsOf, profile, rule } from '../vectors/facts.ts';

const facts = factsOf({ objects: [profile([rule({ block: {} }, { domains: ['a.test'] })])] });

function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return isCoded(error) ? error.code : String(error);
  }
  return 'nothing thrown';
}

test('names what it cannot decide', () => {
  assert.is(
    codeOf(() => decide(facts, call('http://a.test/', { sandbox: 'nobody' }))),
    'unknown-sandbox',
  );
  assert.is(
    codeOf(() => decide(facts, call('http://a.test/', { to: '1.2.3' }))),
    'invalid-request',
  );
  assert.is(
    codeOf(() => decide(facts, call('http://a.test/', { port: 0 }))),
    'invalid-request',
  );
  const { http: _http, ...bare } = call('http://a.test/');
  assert.is(
    codeOf(() => decide(facts, bare)),
    'invalid-request',
  );
});

test('the policy set has one name for equal rules and the empty list its own', () => {
  const empty = factsOf({});
  const request = call('http://a.test/');
  assert.is(decide(empty, request).policySet, decide(factsOf({}), call('tcp://b.test:1')).policySet);
  assert.is.not(decide(empty, request).policySet, decide(facts, request).policySet);
});

test('the order in which facts are listed means nothing', () => {
  fc.assert(
    fc.property(scenarios, (scenario) => {
      for (const { facts: given, request } of pairsOf(scenario)) {
        const turned = {
          ...given,
          policies: given.policies.toReversed(),
          sandboxes: given.sandboxes.toReversed(),
          services: given.services.toReversed(),
          pods: given.pods.toReversed(),
        };
        assert.equal(decide(turned, request), decide(given, request));
      }
    }),
    { numRuns: 300 },
  );
});

test('normalising a path twice changes nothing more', () => {
  const piece = fc.constantFrom('/', '//', '..', '.', 'a', '%2e', '%2F', '%5c', '\\', ';v', '%61', '%25', '%zz');
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 10 }), (pieces) => {
      const once = normalisedPath(`/${pieces.join('')}`);
      assert.is(normalisedPath(once), once);
      assert.not.match(once, /\/\/|\/\.\.?(\/|$)|;|\\/);
    }),
  );
});

test.run();
