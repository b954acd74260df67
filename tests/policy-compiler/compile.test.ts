import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyFacts } from '../../api/facts.ts';
import { canonicalJson, contentHash } from '../../base/canonical.ts';
import type { Compilation } from '../../policy-compiler/compilation.ts';
import { createCompiler, listedNames } from '../../policy-compiler/compile.ts';
import type { ResourceJson } from '../../policy-compiler/output.ts';
import { resource } from '../../proto/resource.ts';
import { policy, SETTINGS, sandbox, world } from './stage/world.ts';

const token = {
  credentialRef: { secret: { name: 'key' } },
  apiKey: { targetHeaders: { names: ['Authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
};

/** A world with everything in it. */
function large(block = 451): PolicyFacts {
  return world({
    sandboxes: [
      sandbox('s1', { app: 'agent' }),
      sandbox('s2', { app: 'agent' }),
      sandbox('s3'),
      sandbox('s4', {}, 'team-b'),
      sandbox('s5', {}, 'team-c'),
    ],
    policies: [
      policy('TrafficPolicy', 'team-a/tp', {
        selector: { matchLabels: { app: 'agent' } },
        egress: {
          rules: [
            {
              action: 'reject',
              to: [{ cidr: '203.0.113.0/24' }, { cidr: '169.254.169.254/32' }],
              ports: [{ port: 443 }],
            },
            {
              action: 'allow',
              to: [
                { fqdn: 'api.example.com' },
                { fqdn: 'db.internal' },
                { cidr: '2001:db8::/32' },
                { cidr: '0.0.0.0/0' },
              ],
            },
          ],
        },
      }),
      policy('GlobalTrafficPolicy', 'base', {
        priority: 5000,
        selector: { matchLabels: { app: 'agent' } },
        egress: { rules: [] },
      }),
      policy('SecurityProfile', 'team-a/sp', {
        rules: [
          {
            name: 'block',
            match: [
              { domains: ['api.example.com'], paths: [{ type: 'Regex', value: '^/x' }], methods: ['GET', 'PUT'] },
            ],
            actions: { block: { statusCode: block, body: '50%' } },
          },
          {
            name: 'token',
            match: [{ domains: ['api.example.com', '*.wild.test'] }],
            actions: { tokenTransformation: token },
          },
          {
            name: 'mcp',
            match: [{ domains: ['*'], ports: [8080] }],
            actions: { mcpToolPolicy: { defaultAction: 'deny', rules: [{ method: 'tools/call', action: 'allow' }] } },
          },
        ],
      }),
      policy('GlobalSecurityProfile', 'all', {
        rules: [
          {
            name: 'set',
            match: [{ domains: ['*'] }],
            actions: { headerManipulation: { set: [{ name: 'x-a', value: '' }] } },
          },
        ],
      }),
      { ...policy('SecurityProfile', 'team-c/bad', {}), inForce: null },
    ],
    invalidSpecs: { 'SecurityProfile team-c/bad': { selector: {} } },
    secretKeys: { 'team-a/key': ['apiKey'] },
    names: ['api.example.com'],
    hosts: { 'db.internal': { address: '127.0.0.1' }, 'v6.internal': { address: 'fd00::1', port: 1 } },
  });
}

function all(compilation: Compilation): readonly ResourceJson[] {
  return [...compilation.egress, ...[...compilation.sidecarSets.values()].flat()];
}

function fingerprint(compilation: Compilation): string {
  const { egress, sidecarSets, subjects, credentials, leaves, findings } = compilation;
  return contentHash({
    egress,
    sidecars: Object.fromEntries(sidecarSets),
    subjects: Object.fromEntries(subjects),
    credentials: Object.fromEntries(credentials),
    leaves,
    findings,
  });
}

test('every resource encodes', () => {
  for (const { type, json } of all(createCompiler().compile(large(), SETTINGS))) {
    assert.ok(resource(type, json).length > 0);
  }
});

test('a resource that is encoded says the same as before, and encodes to the same bytes as a new one', () => {
  const early = all(createCompiler({ resources: 'bytes' }).compile(large(), SETTINGS));
  const late = all(createCompiler().compile(large(), SETTINGS));
  for (const [index, { type, name, json, bytes, version }] of late.entries()) {
    const encoded = early[index]!;
    assert.is(encoded.name, name);
    assert.is(encoded.version, version);
    assert.equal(encoded.bytes, bytes);
    assert.is(contentHash(bytes), version);
    assert.equal(resource(type, json), bytes);
    assert.equal(resource(type, encoded.json), bytes, name);
    assert.is(canonicalJson(encoded), canonicalJson(late[index]), name);
  }
});

test('a compiler without resources decides the same', () => {
  const facts = large();
  const [whole, none] = [createCompiler(), createCompiler({ resources: 'none' })].map((compiler) =>
    compiler.compile(facts, SETTINGS),
  );
  assert.equal(all(none!), []);
  for (const { uid } of facts.sandboxes) {
    assert.ok(whole!.policySetOf(uid) !== null);
    assert.is(canonicalJson(none!.policySetOf(uid)), canonicalJson(whole!.policySetOf(uid)), uid);
    assert.equal(none!.subjects.get(uid), whole!.subjects.get(uid));
  }
});

test('every requirement is there, names are unique, and no scope lacks its table', () => {
  const { egress, sidecarSets } = createCompiler().compile(large(), SETTINGS);
  for (const resources of [egress, ...sidecarSets.values()]) {
    const keys = resources.map(({ typeUrl, name }) => `${typeUrl} ${name}`);
    assert.is(new Set(keys).size, keys.length);
    const required = resources.flatMap(({ requires }) => requires.map(({ typeUrl, name }) => `${typeUrl} ${name}`));
    assert.equal(
      required.filter((key) => !keys.includes(key)),
      [],
    );
  }
  const text = JSON.stringify(egress);
  const clusters = new Set([...text.matchAll(/"cluster":"([^"]+)"/g)].map((match) => match[1]!));
  const known = new Set(egress.filter(({ type }) => type.endsWith('.Cluster')).map(({ name }) => name));
  assert.equal(
    [...clusters].filter((name) => !known.has(name)),
    [],
  );
});

test('the order of the facts does not matter, nor what was compiled before', () => {
  const facts = large();
  const cold = fingerprint(createCompiler().compile(facts, SETTINGS));
  const reversed: PolicyFacts = {
    ...facts,
    sandboxes: facts.sandboxes.toReversed(),
    policies: facts.policies.toReversed(),
    virtualAddresses: Object.fromEntries(Object.entries(facts.virtualAddresses).reverse()),
  };
  assert.is(fingerprint(createCompiler().compile(reversed, SETTINGS)), cold);
  const compiler = createCompiler();
  compiler.compile(large(403), SETTINGS);
  compiler.compile(world({}), { ...SETTINGS, resolver: null });
  assert.is(fingerprint(compiler.compile(structuredClone(facts), SETTINGS)), cold);
});

test('a changed rule changes its table and the scopes that name it, and nothing else', () => {
  const compiler = createCompiler();
  const before = compiler.compile(large(), SETTINGS);
  const after = compiler.compile(large(403), SETTINGS);
  const changed = after.egress.filter((made) => !before.egress.includes(made)).map(({ name }) => name);
  const tables = ['s1', 's3'].map((uid) => after.subjects.get(uid)!.table);
  assert.equal(
    changed.sort(),
    [...new Set(tables.flatMap((table) => [table, `!pin-${table}`])), 'i:s1', 'i:s2', 'i:s3'].sort(),
  );
  assert.equal([...after.sidecarSets.values()], [...before.sidecarSets.values()]);
});

test('what does not change the meaning changes nothing', () => {
  const compiler = createCompiler();
  const before = compiler.compile(large(), SETTINGS);
  const facts = large();
  const touched = { ...facts, policies: facts.policies.map((record) => ({ ...record, generation: 7 })) };
  const after = compiler.compile(touched, SETTINGS);
  assert.ok(after.egress.every((made, index) => made === before.egress[index]));
  const labels = facts.sandboxes.map((one) => ({ ...one, labels: { ...one.labels, other: 'x' } }));
  assert.ok(
    compiler.compile({ ...facts, sandboxes: labels }, SETTINGS).egress.every((made, at) => made === before.egress[at]),
  );
});

test('sandboxes with the same policies share everything but their scopes', () => {
  const { subjects } = createCompiler().compile(large(), SETTINGS);
  const { ownAddresses: _a, ...first } = subjects.get('s1')!;
  const { ownAddresses: _b, ...second } = subjects.get('s2')!;
  assert.equal(first, second);
  assert.is.not(subjects.get('s3')!.l4Set, first.l4Set);
});

test('names that need an address (D4)', () => {
  assert.equal(listedNames(large()), ['api.example.com', 'db.internal', 'v6.internal']);
  const nobody = world({ sandboxes: [], policies: large().policies });
  assert.equal(listedNames(nobody), []);
});

test('secrets are names only; a missing one is said', () => {
  const facts = large();
  const { credentials, findings } = createCompiler().compile(facts, SETTINGS);
  assert.equal(
    [...credentials.values()],
    [{ namespace: 'team-a', name: 'key', key: 'apiKey', template: 'Bearer {{ .Token }}' }],
  );
  assert.ok(
    findings.some(({ ref, type, status }) => ref.name === 'sp' && type === 'ResolvedRefs' && status === 'True'),
  );
  const missing = createCompiler().compile({ ...facts, secretKeys: { 'team-a/key': ['other'] } }, SETTINGS);
  assert.is(missing.credentials.size, 0);
  const finding = missing.findings.find(({ ref, type }) => ref.name === 'sp' && type === 'ResolvedRefs')!;
  assert.equal([finding.status, finding.reason], ['False', 'SecretNotFound']);
  assert.match(finding.message, 'team-a/key');
});

test('what cannot be enforced is said (D1, D2, D4)', () => {
  const reason = (kind: 'TrafficPolicy' | 'SecurityProfile', spec: object) => {
    const facts = world({
      policies: [policy(kind, 'team-a/p', spec)],
      names: ['x.test'],
      hosts: { 'x.test': { address: '10.0.0.1' } },
    });
    return createCompiler()
      .compile(facts, SETTINGS)
      .findings.find(({ type }) => type === 'Enforceable')!.reason;
  };
  const rules = (domain: string) => ({
    rules: [{ name: 'r', match: [{ domains: [domain] }], actions: { block: {} } }],
  });
  assert.is(reason('SecurityProfile', rules('x.test')), 'Enforceable');
  assert.is(reason('SecurityProfile', rules('*.x.test')), 'TLSNotIntercepted');
  assert.is(reason('SecurityProfile', rules('*')), 'TLSNotIntercepted');
  assert.is(reason('SecurityProfile', rules('x.*.test')), 'NeverMatches');
  const egress = (to: object) => ({ egress: { rules: [{ action: 'allow', to: [to] }] } });
  assert.is(reason('TrafficPolicy', egress({ cidr: '10.0.0.0/8' })), 'Enforceable');
  assert.is(reason('TrafficPolicy', egress({ cidr: '10.0.0.300/8' })), 'PeersOmitted');
});

test('an unknown sandbox is an error', () => {
  const { explain, evaluate, policySetOf } = createCompiler().compile(large(), SETTINGS);
  const destination = { kind: 'name', name: 'x.test', port: 80 } as const;
  assert.throws(() => explain({ sandbox: 'nobody', destination, scheme: 'tcp' }), /nobody/);
  assert.is(policySetOf('nobody'), null);
  const request = {
    scheme: 'http',
    method: 'GET',
    authority: 'x',
    target: '/',
    port: 80,
    headers: [],
    destination: { kind: 'address' },
  } as const;
  assert.is(evaluate('nobody', request, null), null);
});

test.run();
