/** The table that Envoy gets and the direct evaluation say the same, for random rules and requests. */
import * as fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { dialCluster } from '../../policy-compiler/dial.ts';
import { evaluate, type L7Request } from '../../policy-compiler/evaluate.ts';
import { hostTables, MAX_TABLE_REGIONS, regionFor, tableFor } from '../../policy-compiler/host-table.ts';
import { hostOf } from '../../policy-compiler/names.ts';
import type { PolicySet } from '../../policy-compiler/policy-set.ts';
import { MAX_REGIONS } from '../../policy-compiler/regions.ts';
import { walk } from '../../policy-compiler/walk.ts';
import { policy, SETTINGS, world } from './stage/world.ts';

const HOSTS = ['a.x.test', 'b.x.test', 'c.b.x.test', 'y.test'];

const some = <T>(arbitrary: fc.Arbitrary<T>, max = 2) =>
  fc.option(fc.array(arbitrary, { minLength: 1, maxLength: max }), { nil: undefined, freq: 1 });
const path = fc.oneof(
  fc.record({ type: fc.constantFrom('Prefix', 'Exact'), value: fc.constantFrom('/', '/a', '/a/b', '/adm', '/c?') }),
  fc.record({ type: fc.constant('Regex'), value: fc.constantFrom('b$', '^/a', 'd|m', '\\Qa') }),
);
const header = fc.record({
  name: fc.constantFrom('x-a', 'X-B'),
  type: fc.constantFrom('Exact', 'Prefix', 'Regex'),
  value: fc.constantFrom('1', '12', 'v'),
});
const clause = fc.record(
  {
    domains: fc.array(fc.constantFrom('*', '*.x.test', '*.b.x.test', ...HOSTS), { minLength: 1, maxLength: 2 }),
    methods: some(fc.constantFrom('GET', 'POST')),
    schemes: some(fc.constantFrom('http', 'https')),
    ports: some(fc.constantFrom(80, 8080)),
    paths: some(path),
    headers: some(header),
    queryParams: some(fc.record({ name: fc.constant('q'), value: fc.constantFrom('1', '2') }), 1),
  },
  { requiredKeys: ['domains'] },
);
const actions = fc.oneof(
  fc.constant({ block: {} }),
  fc.constant({ bypass: true }),
  fc.constant({ bypass: true, block: { statusCode: 451, body: 'no' } }),
  fc.constantFrom('1', '2').map((value) => ({ headerManipulation: { set: [{ name: 'x-set', value }] } })),
  fc.constant({ headerManipulation: { remove: ['x-set'] } }),
  fc.constantFrom('have', 'lack').map((name) => ({
    tokenTransformation: {
      credentialRef: { secret: { name } },
      apiKey: { targetHeaders: { names: ['x-set', 'authorization'] }, value: { template: '{{ .Token }}' } },
    },
  })),
  fc.constant({ mcpToolPolicy: { defaultAction: 'deny', rules: [{ method: 'tools/call', action: 'allow' }] } }),
);
const rules = fc
  .array(fc.record({ match: fc.array(clause, { minLength: 1, maxLength: 2 }), actions }), {
    minLength: 1,
    maxLength: 5,
  })
  .map((list) => list.map((rule, index) => ({ ...rule, name: `r${index}` })));
const request = fc.record({
  authority: fc.constantFrom(...HOSTS, 'z.test', 'A.X.test.', 'y.test:80'),
  method: fc.constantFrom('GET', 'POST', 'PUT'),
  target: fc.constantFrom('/', '/a', '/a/b', '/adm?q=1', '/x//a', '/a?q=2&q=1', '/%61'),
  port: fc.constantFrom(80, 8080, 1),
  scheme: fc.constantFrom('http' as const, 'https' as const),
  headers: fc.array(fc.tuple(fc.constantFrom('x-a', 'x-b'), fc.constantFrom('1', '12', 'v', '0')), { maxLength: 3 }),
  byName: fc.boolean(),
});

function compile(list: readonly object[]): PolicySet {
  const facts = world({
    policies: [policy('SecurityProfile', 'team-a/p', { rules: list })],
    names: HOSTS,
    secretKeys: { 'team-a/have': ['apiKey'] },
  });
  return createCompiler().compile(facts, SETTINGS).policySetOf('s1')!;
}

let native = 0;

function agrees(set: PolicySet, sent: Omit<L7Request, 'destination'> & { readonly byName: boolean }): boolean {
  const host = hostOf(sent.authority);
  const written = /:([0-9]+)$/.exec(sent.authority)?.[1];
  // A Host with another port never comes to the table of a name: the connection manager denies it before.
  const name = sent.byName && (written ?? String(sent.port)) === String(sent.port) ? set.names.get(host) : undefined;
  const destination = name === undefined ? ({ kind: 'address' } as const) : ({ kind: 'virtual', name } as const);
  const decided = evaluate(set, { ...sent, destination }, null);
  const region = regionFor(tableFor(hostTables(set), host), name !== undefined, { ...sent, host });
  if (region === null || region.processor) {
    return region !== null || sent.scheme === 'https';
  }
  native += 1;
  const walked = walk(region.matched, null);
  if (decided.needsBody || walked.kind === 'body') {
    return false;
  }
  // Where the request goes is decided alike by both, from the walk; so the walks are compared.
  const matched = decided.decision.matched.map(({ rule, actions: took, terminal }) => ({ rule, took, terminal }));
  const own = walked.walked.map(({ rule, actions: took, terminal }) => ({ rule, took, terminal }));
  const changed =
    decided.dial === null || walked.kind !== 'forward'
      ? {}
      : { set: Object.fromEntries(walked.set), remove: walked.remove };
  return (
    JSON.stringify(matched) === JSON.stringify(own) &&
    (decided.dial === null || JSON.stringify(changed) === JSON.stringify(decided.decision.headers))
  );
}

test('every region decides as direct evaluation does', () => {
  fc.assert(
    fc.property(rules, fc.array(request, { minLength: 12, maxLength: 12 }), (list, requests) => {
      const set = compile(list);
      return requests.every((sent) => agrees(set, sent));
    }),
    { numRuns: 400 },
  );
  assert.ok(native > 1500, `only ${native} requests were decided natively`);
});

test('too many regions become one for the external processor', () => {
  const list = Array.from({ length: 12 }, (_, index) => ({
    name: `r${index}`,
    match: [
      { domains: ['y.test'], ...(index === 0 ? { ports: [8080] } : { headers: [{ name: `x-${index}`, value: '1' }] }) },
    ],
    actions: { headerManipulation: { set: [{ name: `x-${index}`, value: '1' }] } },
  }));
  const small = hostTables(compile(list.slice(0, 2)));
  const large = hostTables(compile(list));
  const regions = (tables: typeof small) => tableFor(tables, 'y.test').groups[0]!.regions;
  assert.ok(regions(small).length > 3 && regions(small).length <= MAX_REGIONS);
  assert.equal(
    regions(large).map(({ processor }) => processor),
    [true],
  );
  assert.equal(
    tableFor(large, 'z.test').groups[0]!.regions.map(({ processor }) => processor),
    [false],
  );
});

test('a table that is too large gives its largest hosts to the external processor', () => {
  const list = Array.from({ length: 400 }, (_, index) => ({
    name: `r${index}`,
    match: [
      {
        domains: [`h${index}.test`],
        paths: Array.from({ length: 40 }, (_p, at) => ({ type: 'Prefix', value: `/${at}x` })),
      },
    ],
    actions: { block: {} },
  }));
  const tables = hostTables(compile(list));
  const total = tables.flatMap(({ groups }) => groups.map(({ regions }) => regions.length)).reduce((a, b) => a + b, 0);
  assert.ok(total <= MAX_TABLE_REGIONS, String(total));
  assert.ok(total > MAX_TABLE_REGIONS / 2);
});

test('a plan names a cluster that the table has', () => {
  const token = (name: string, path: string) => ({
    name,
    match: [{ domains: ['y.test'], schemes: ['http'], paths: [{ type: 'Prefix', value: path }] }],
    actions: {
      tokenTransformation: {
        credentialRef: { secret: { name: 'have' } },
        apiKey: { targetHeaders: { names: [`x-${name}`] }, value: { template: '{{ .Token }}' } },
      },
    },
  });
  const odd = {
    name: 'odd',
    match: [{ domains: ['y.test'], paths: [{ type: 'Exact', value: '/no' }] }],
    actions: { block: {} },
  };
  const facts = world({
    policies: [policy('SecurityProfile', 'team-a/p', { rules: [odd, token('a', '/a'), token('b', '/a/b')] })],
    names: ['y.test'],
    secretKeys: { 'team-a/have': ['apiKey'] },
  });
  const compilation = createCompiler().compile(facts, SETTINGS);
  const set = compilation.policySetOf('s1')!;
  const destination = { kind: 'virtual', name: set.names.get('y.test')! } as const;
  const base = { scheme: 'http', method: 'GET', authority: 'y.test', port: 80, headers: [], destination } as const;
  const table = JSON.stringify(
    compilation.egress.find(({ name }) => name === compilation.subjects.get('s1')!.table)!.json,
  );
  const names = compilation.egress.map(({ name }) => name);
  for (const target of ['/a//x', '/a/b//x']) {
    const decided = evaluate(set, { ...base, target }, null);
    assert.ok(!decided.needsBody && decided.plan !== null && table.includes(decided.plan));
    assert.ok(!decided.needsBody && names.includes(dialCluster(decided.dial!)));
  }
});

test.run();
