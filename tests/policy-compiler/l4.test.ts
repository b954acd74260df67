import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyFacts, PolicyRecord } from '../../api/facts.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { shadowedChains } from '../../policy-compiler/sidecar-chains.ts';
import { policy, SETTINGS, sandbox, world } from './stage/world.ts';

type Rule = Readonly<Record<string, unknown>>;

const traffic = (name: string, rules: readonly Rule[], more: object = {}) =>
  policy('TrafficPolicy', `team-a/${name}`, { egress: { rules }, ...more });
const allow = (to: readonly object[], ports?: readonly object[]): Rule => ({
  action: 'allow',
  to,
  ...(ports && { ports }),
});
const reject = (to: readonly object[], ports?: readonly object[]): Rule => ({ ...allow(to, ports), action: 'reject' });
const cidr = (text: string) => ({ cidr: text });
const fqdn = (text: string) => ({ fqdn: text });

function compiled(policies: readonly PolicyRecord[], more: Parameters<typeof world>[0] = {}) {
  const sandboxes = [{ ...sandbox('s1'), addresses: ['10.244.0.5'] }];
  return createCompiler().compile(world({ sandboxes, policies, ...more }), SETTINGS);
}

/** `action reason [policy#index]` for `address:port` or `name:port`. */
function decide(policies: readonly PolicyRecord[], to: string, more: Parameters<typeof world>[0] = {}): string {
  const at = to.lastIndexOf(':');
  const [host, port] = [to.slice(0, at), Number(to.slice(at + 1))];
  const destination = /^[0-9.]+$|:/.test(host)
    ? ({ kind: 'address', address: host, port } as const)
    : ({ kind: 'name', name: host, port } as const);
  const { l4 } = compiled(policies, more).explain({ sandbox: 's1', destination, scheme: 'tcp' });
  return `${l4.action} ${l4.reason}${l4.rule === null ? '' : ` ${l4.rule.name}#${l4.rule.index}`}`;
}

test('rules over addresses (egress-policy §11, vectors 19–46)', () => {
  const a = [traffic('a', [allow([cidr('203.0.113.0/24')])])];
  assert.is(decide(a, '203.0.113.9:443'), 'allow rule a#0');
  assert.is(decide(a, '198.51.100.1:443'), 'reject default');
  const early = traffic('b', [reject([cidr('203.0.113.9/32')])], { priority: 5 });
  assert.is(decide([...a, early], '203.0.113.9:1'), 'reject rule b#0');
  assert.is(
    decide([traffic('c', [allow([cidr('203.0.113.0/24')]), reject([cidr('203.0.113.9')])])], '203.0.113.9:1'),
    'allow rule c#0',
  );
  assert.is(decide([], '8.8.8.8:1'), 'allow unselected');
  assert.is(decide([traffic('d', [{ action: 'allow', ports: [{ port: 443 }] }])], '8.8.8.8:443'), 'reject default');
  assert.is(decide([traffic('e', [])], '8.8.8.8:443'), 'reject default');
  assert.is(decide([traffic('f', [allow([cidr('10.0.0.300/8')])])], '10.0.0.1:1'), 'reject default');
  assert.is(decide([traffic('g', [allow([cidr('2001:db8::/32')])])], '2001:db8:1::1:443'), 'allow rule g#0');
  const ports = [
    traffic('h', [allow([cidr('8.8.8.0/24')], [{ protocol: 'TCP', port: 8000, endPort: 8100 }, { protocol: 'UDP' }])]),
  ];
  assert.equal(
    [8000, 8100, 8101].map((port) => decide(ports, `8.8.8.8:${port}`)),
    ['allow rule h#0', 'allow rule h#0', 'reject default'],
  );
  const both = [traffic('i', [reject([cidr('10.0.0.0/8')], [{ port: 443 }]), allow([cidr('0.0.0.0/0')])])];
  assert.equal(
    [443, 80].map((port) => decide(both, `10.1.1.1:${port}`)),
    ['reject rule i#0', 'allow rule i#1'],
  );
});

test('services and workloads (vectors 36–38)', () => {
  const more: Partial<PolicyFacts> = {
    services: [
      { namespace: 'team-a', name: 'db', addresses: ['10.96.0.7'] },
      { namespace: 'sandbox-system', name: 'dns', addresses: ['10.96.0.10'] },
    ],
    pods: [{ namespace: 'team-b', labels: { app: 'db', x: 'y' }, addresses: ['10.1.1.1', 'fd00::1'] }],
  };
  const rules = [allow([{ service: { name: 'db' } }, { workload: { namespace: 'team-b', selector: { app: 'db' } } }])];
  const a = [traffic('a', rules)];
  assert.is(decide(a, '10.96.0.7:1', more), 'allow rule a#0');
  assert.is(decide(a, '10.1.1.1:1', more), 'allow rule a#0');
  assert.is(decide(a, 'fd00::1:1', more), 'allow rule a#0');
  assert.is(decide(a, '10.96.0.10:1', more), 'reject default');
  const global = policy('GlobalTrafficPolicy', 'g', { egress: { rules: [allow([{ service: { name: 'dns' } }])] } });
  assert.is(decide([global], '10.96.0.10:53', more), 'allow rule g#0');
});

test('addresses that no rule can open (D3)', () => {
  const all = [traffic('a', [allow([cidr('0.0.0.0/0'), cidr('::/0')])])];
  assert.is(decide(all, '10.244.0.5:80'), 'reject own-address');
  assert.is(decide(all, '127.0.0.1:80'), 'reject own-address');
  assert.is(decide(all, '::1:80'), 'reject own-address');
  assert.is(decide(all, '8.8.8.8:15001'), 'reject own-address');
  assert.is(decide(all, '169.254.169.254:80'), 'reject private-address');
  const named = [traffic('a', [allow([cidr('169.254.169.254/32')], [{ port: 80 }]), allow([cidr('0.0.0.0/0')])])];
  assert.is(decide(named, '169.254.169.254:80'), 'allow rule a#0');
  assert.is(decide(named, '169.254.169.254:81'), 'allow rule a#1');
  assert.is(decide(named, '169.254.1.1:80'), 'reject private-address');
});

test('names (D4)', () => {
  const names = { names: ['x.test', 'y.test'], hosts: { 'h.test': { address: '10.5.0.1' } } };
  const shut = [traffic('a', [reject([cidr('0.0.0.0/0')]), allow([fqdn('x.test')])])];
  assert.is(decide(shut, 'x.test:443', names), 'reject rule a#0');
  const narrow = [traffic('a', [reject([cidr('203.0.113.0/24')]), allow([fqdn('X.test.')])])];
  assert.is(decide(narrow, 'x.test:443', names), 'allow rule a#1');
  assert.is(decide(narrow, '240.0.1.0:443', names), 'allow rule a#1');
  assert.is(decide(narrow, '240.0.1.1:443', names), 'reject unresolved', 'y.test is not listed here');
  assert.is(decide(narrow, '240.0.9.9:443', names), 'reject unresolved');
  assert.is(decide([traffic('a', [allow([cidr('203.0.113.0/24')])])], 'x.test:443', names), 'reject unresolved');
  assert.is(decide([traffic('a', [allow([cidr('128.0.0.0/1')])])], 'x.test:443', names), 'reject unresolved');
  assert.is(decide([traffic('a', [allow([cidr('0.0.0.0/0')])])], 'x.test:443', names), 'allow rule a#0');
  assert.is(decide([traffic('a', [allow([cidr('10.5.0.0/16')])])], 'h.test:443', names), 'allow rule a#0');
  assert.is(
    decide([traffic('a', [reject([cidr('10.5.0.0/16')]), allow([fqdn('h.test')])])], 'h.test:1', names),
    'reject rule a#0',
  );
  assert.is(decide([traffic('a', [allow([fqdn('x.test')], [{ port: 443 }])])], 'x.test:80', names), 'reject default');
});

/** Whether names that are not listed are asked at the resolver, by the listeners of the sidecar. */
function asks(policies: readonly PolicyRecord[], more: Parameters<typeof world>[0] = {}): boolean {
  const [set] = [...compiled(policies, { names: ['x.test'], ...more }).sidecarSets.values()];
  const dns = JSON.stringify(set!.find(({ name }) => name === 'dns')!.json);
  const tunnel = set!.some(({ name }) => name === 'dns-tunnel');
  assert.is(dns.includes('clientConfig'), tunnel);
  return tunnel;
}

test('a name that is not listed leaves the sandbox only where some address can be reached (D4)', () => {
  const one = (...rules: readonly Rule[]) => asks([traffic('a', rules)]);
  const everything = cidr('0.0.0.0/0');
  const anything = reject([everything, cidr('::/0')]);
  assert.ok(asks([]), 'no policy governs');
  assert.ok(one(allow([everything])));
  assert.ok(one(allow([cidr('198.51.100.7')], [{ port: 443 }]), anything));
  assert.ok(one(allow([fqdn('x.test')]), allow([cidr('fd00::/8')])));
  assert.ok(one(reject([cidr('10.0.0.0/8')]), allow([cidr('10.0.0.0/7')])));
  assert.ok(one(reject([everything], [{ port: 80 }]), allow([everything], [{ port: 80, endPort: 81 }])));
  assert.ok(one(allow([cidr('169.254.169.254')])));
  assert.ok(one(reject([everything]), allow([cidr('::/0')])));
  const shut: readonly (readonly Rule[])[] = [
    [],
    [anything],
    [allow([fqdn('x.test')])],
    [allow([fqdn('x.test')]), anything, allow([everything])],
    [reject([cidr('10.0.0.0/8')]), allow([cidr('10.1.0.0/16')])],
    [reject([everything], [{ port: 80, endPort: 90 }]), allow([everything], [{ port: 80 }, { port: 85 }])],
    [
      reject(
        [everything],
        [
          { port: 1, endPort: 100 },
          { port: 101, endPort: 65535 },
        ],
      ),
      allow([everything]),
    ],
    [allow([everything], [{ protocol: 'UDP' }])],
    [allow([cidr('127.0.0.0/8'), cidr('::1'), cidr('240.0.0.0/8'), cidr('169.254.0.0/16')])],
    [allow([{ service: { name: 'nobody' } }, cidr('10.0.0.300/8')])],
  ];
  for (const rules of shut) {
    assert.not.ok(one(...rules), JSON.stringify(rules));
  }
  const bad = { ...policy('SecurityProfile', 'team-a/bad', {}), inForce: null };
  assert.not.ok(asks([bad], { invalidSpecs: { 'SecurityProfile team-a/bad': { selector: {} } } }));
  const wild = { rules: [{ name: 'w', match: [{ domains: ['*.x.test'] }], actions: { block: {} } }] };
  const profile = policy('SecurityProfile', 'team-a/wild', wild);
  assert.not.ok(asks([profile, traffic('a', [allow([fqdn('x.test')])])]), 'no address under it can be reached');
  assert.ok(asks([profile]));
});

test('where an admitted name may not be dialled is a cluster of its own, and per port', () => {
  const rules = [
    reject([cidr('203.0.113.0/24')], [{ port: 443 }]),
    reject([cidr('10.0.0.0/8')]),
    allow([fqdn('x.test')]),
  ];
  const { egress } = compiled([traffic('a', rules)], { names: ['x.test'] });
  const clusters = egress.filter(({ name }) => name.startsWith('name:plain')).map(({ json }) => JSON.stringify(json));
  assert.is(clusters.length, 2);
  assert.is(clusters.filter((text) => text.includes('203.0.113.0')).length, 1);
});

/** Chains of a set and those that a change cuts although they stay. */
function chains(rules: readonly Rule[], more: Parameters<typeof world>[0] = {}) {
  const { sidecarChains } = compiled([traffic('a', rules)], { names: ['x.test'], ...more });
  return [...sidecarChains.values()][0]!;
}

test('chains keep their identity through changes that do not concern them (D14)', () => {
  const before = chains([allow([cidr('203.0.113.0/24'), fqdn('x.test')], [{ port: 443 }])]);
  const moved = chains([
    reject([cidr('10.8.8.8/32')]),
    allow([fqdn('x.test'), cidr('203.0.113.0/24'), cidr('9.9.9.9/32')], [{ port: 443 }, { port: 80 }]),
  ]);
  assert.ok(before.every(({ name, shadow }) => moved.some((chain) => chain.name === name && chain.shadow === shadow)));
});

test('a new reject above cuts the chains that it overlaps, and these are counted (D14)', () => {
  const rules = [allow([cidr('203.0.113.0/24'), cidr('198.51.100.0/24'), fqdn('x.test')])];
  const before = chains(rules);
  const cut = (rule: Rule) => shadowedChains(before, chains([rule, ...rules])).length;
  assert.is(cut(reject([cidr('203.0.113.9/32')])), 2, 'the range, and the name that may resolve into it');
  assert.is(cut(reject([cidr('203.0.113.9/32')], [{ protocol: 'UDP' }])), 0);
  assert.is(cut(reject([cidr('192.0.2.0/24')])), 1, 'the name alone');
  assert.is(cut(reject([cidr('10.0.0.0/8')])), 0, 'names never lead to private addresses anyway');
  assert.is(cut(allow([cidr('203.0.113.9/32')])), 0);
});

test('a rule of many addresses shares chains', () => {
  const pods = Array.from({ length: 500 }, (_, index) => ({
    namespace: 'b',
    labels: {},
    addresses: [`10.1.${index >> 8}.${index & 255}`],
  }));
  const many = chains([allow([{ workload: { namespace: 'b', selector: {} } }])], { pods });
  assert.is(many.length, 64);
  const fewer = chains([allow([{ workload: { namespace: 'b', selector: {} } }])], { pods: pods.slice(1) });
  assert.is(shadowedChains(many, fewer).length, 1, 'only the chain of the address that went');
});

test('an object without a form in force denies everything, and says which (D2)', () => {
  const bad = { ...policy('SecurityProfile', 'team-a/bad', {}), inForce: null };
  const more = { invalidSpecs: { 'SecurityProfile team-a/bad': { selector: {} } } };
  assert.is(
    decide([bad, traffic('a', [allow([cidr('0.0.0.0/0')])])], '8.8.8.8:80', more),
    'reject policy-invalid bad#0',
  );
  const { egress, subjects } = compiled([bad], more);
  const table = egress.find(({ name }) => name === subjects.get('s1')!.table)!;
  assert.match(JSON.stringify(table.json), 'policy_invalid');
});

test.run();
