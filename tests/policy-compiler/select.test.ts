import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyFacts, PolicyRecord, SandboxFacts } from '../../api/facts.ts';
import { createSelecting, KnownSelections } from '../../policy-compiler/select.ts';
import { policy, sandbox, world } from './stage/world.ts';

const GOLD = sandbox('s1', { app: 'agent', tier: 'gold' });

function selected(
  policies: readonly PolicyRecord[],
  of: SandboxFacts = GOLD,
  more: Partial<PolicyFacts> = {},
): string[] {
  const selection = createSelecting(world({ policies, ...more }), new KnownSelections()).select(of);
  return [...selection.l4, ...selection.l7].map(({ record }) => record.ref.name);
}

test('selectors (egress-policy §1.2, vectors 2–5)', () => {
  const profile = (name: string, selector: unknown) => policy('SecurityProfile', name, { selector });
  assert.equal(selected([profile('team-a/all', {})]), ['all']);
  assert.equal(selected([profile('team-b/all', {})]), []);
  assert.equal(selected([policy('GlobalSecurityProfile', 'all', {})]), ['all']);
  const expressions = [
    { key: 'tier', operator: 'In', values: ['gold'] },
    { key: 'app', operator: 'NotIn', values: ['web'] },
    { key: 'none', operator: 'DoesNotExist' },
    { key: 'app', operator: 'Exists' },
  ];
  assert.equal(selected([profile('team-a/expr', { matchExpressions: expressions })]), ['expr']);
  assert.equal(selected([profile('team-a/web', { matchLabels: { app: 'web' } })]), []);
  assert.equal(selected([profile('team-a/proto', { matchLabels: { constructor: 'x' } })]), []);
});

test('profiles: priority, age, name, namespace (vectors 8–12)', () => {
  const profile = (name: string, priority: number, created: string) =>
    policy(name.includes('/') ? 'SecurityProfile' : 'GlobalSecurityProfile', name, { priority }, created);
  const policies = [
    profile('team-a/z', 5, '2026-01-02'),
    profile('team-a/b', 1000, '2026-01-02'),
    profile('team-a/a', 1000, '2026-01-02'),
    profile('a', 1000, '2026-01-02'),
    profile('team-a/old', 1000, '2026-01-01'),
    profile('team-a/late', 1001, '2025-01-01'),
  ];
  assert.equal(selected(policies), ['z', 'old', 'a', 'a', 'b', 'late']);
  const [, , first] = createSelecting(world({ policies }), new KnownSelections()).select(GOLD).l7;
  assert.is(first!.record.ref.namespace, '', 'global first on a full tie');
});

test('traffic policies: priority, age, namespace, name', () => {
  const policies = [
    policy('TrafficPolicy', 'team-a/a', {}),
    policy('GlobalTrafficPolicy', 'z', {}),
    policy('TrafficPolicy', 'team-a/b', { priority: 1 }),
  ];
  assert.equal(selected(policies), ['b', 'z', 'a']);
});

function broken(kind: 'SecurityProfile' | 'GlobalSecurityProfile', name: string): PolicyRecord {
  return { ...policy(kind, name, {}), inForce: null, errors: [{ path: 'spec', reason: 'bad' }] };
}

function invalidFor(of: SandboxFacts, records: readonly PolicyRecord[], specs: Readonly<Record<string, unknown>>) {
  const facts = world({ policies: records, invalidSpecs: specs });
  return createSelecting(facts, new KnownSelections()).select(of).invalid?.ref.name ?? null;
}

test('an object without a form in force concerns those it selects, or its whole scope (D2)', () => {
  const one = [broken('SecurityProfile', 'team-a/bad')];
  const text = 'SecurityProfile team-a/bad';
  assert.is(invalidFor(GOLD, one, { [text]: { selector: { matchLabels: { app: 'agent' } } } }), 'bad');
  assert.is(invalidFor(GOLD, one, { [text]: { selector: { matchLabels: { app: 'web' } } } }), null);
  for (const selector of [
    undefined,
    [],
    { matchLabels: { app: 1 } },
    { odd: 1 },
    { matchExpressions: [{ key: 'a', operator: 'Odd' }] },
  ]) {
    assert.is(invalidFor(GOLD, one, { [text]: { selector } }), 'bad', JSON.stringify(selector));
    assert.is(invalidFor(sandbox('s2', {}, 'team-b'), one, { [text]: { selector } }), null);
  }
  const global = [broken('GlobalSecurityProfile', 'bad')];
  assert.is(invalidFor(sandbox('s2', {}, 'team-b'), global, { 'GlobalSecurityProfile bad': null }), 'bad');
});

test('a remembered selection follows a changed selector', () => {
  const kept = new KnownSelections();
  const select = (selector: unknown) =>
    createSelecting(world({ policies: [policy('SecurityProfile', 'team-a/p', { selector })] }), kept).select(GOLD).l7
      .length;
  assert.equal([select({}), select({ matchLabels: { app: 'web' } }), select({})], [1, 0, 1]);
});

test.run();
