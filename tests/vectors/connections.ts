import type { Expected, VectorCase } from './case.ts';
import { type Call, call, profile, rule, SANDBOX, traffic, virtual, type World } from './facts.ts';

/** Rows 19–47 and 51–56 (L4) of the specification's test vectors as D13 answers them, and the golden cases of D4. */

const allow = (...to: object[]) => ({ action: 'allow', to });
const reject = (...to: object[]) => ({ action: 'reject', to });
const cidr = (text: string) => ({ cidr: text });
const withPorts = (rule: object, ...ports: object[]) => ({ ...rule, ports });
const world = (...rules: object[]): World => ({ objects: [traffic(rules)] });

function tcp(row: string, about: string, given: World, to: string, expect: Expected, port = 443): VectorCase {
  return { row, about, world: given, request: call('tcp://name.invalid', { to, port }), expect };
}

/** A connection to the virtual address of a name. */
function named(
  row: string,
  about: string,
  given: World,
  name: string,
  expect: Expected,
  options: Call = {},
): VectorCase {
  return {
    row,
    about,
    world: given,
    request: (facts) => call(`http://${name}`, { to: virtual(facts, name), ...options }),
    expect,
  };
}

const ALLOW: Expected = { l4: 'allow', reason: 'rule' };
const REJECT: Expected = { l4: 'reject', reason: 'rule', tls: null, l7: 'none' };
const DEFAULT: Expected = { l4: 'reject', reason: 'default', tls: null, l7: 'none' };
const UNRESOLVED: Expected = { l4: 'reject', reason: 'unresolved', tls: null, l7: 'none' };

const NET = cidr('203.0.113.0/24');
const ONE = cidr('203.0.113.9/32');
const dns = { service: { name: 'kube-dns', namespace: 'kube-system' } };

export const CONNECTIONS: readonly VectorCase[] = [
  tcp('19', 'inside the allowed range', world(allow(NET)), '203.0.113.9', { ...ALLOW, by: 'TrafficPolicy team-a/p#0' }),
  tcp('20', 'outside of it', world(allow(NET)), '198.51.100.1', DEFAULT),
  tcp(
    '21',
    'an earlier reject',
    {
      objects: [traffic([reject(ONE)], { name: 'z', priority: 5 }), traffic([allow(NET)], { name: 'a', priority: 10 })],
    },
    '203.0.113.9',
    { ...REJECT, by: 'TrafficPolicy team-a/z#0' },
  ),
  tcp(
    '22',
    'no default per policy',
    {
      objects: [
        traffic([allow(cidr('192.0.2.1'))], { name: 'a', priority: 5 }),
        traffic([allow(NET)], { name: 'b', priority: 10 }),
      ],
    },
    '203.0.113.9',
    ALLOW,
  ),
  tcp('23', 'first match in a policy', world(allow(NET), reject(ONE)), '203.0.113.9', ALLOW),
  tcp(
    '25',
    'a rule without peers: governed (D13)',
    world({ action: 'allow', ports: [{ port: 443 }] }),
    '203.0.113.9',
    DEFAULT,
  ),
  tcp('26', 'and a rule beside it', world({ action: 'allow', ports: [{ port: 443 }] }, allow(NET)), '8.8.8.8', DEFAULT),
  tcp('26 index', 'skipped rules count in the index', world({ action: 'allow' }, allow(NET)), '203.0.113.9', {
    ...ALLOW,
    by: 'TrafficPolicy team-a/p#1',
  }),
  tcp('27', 'a name alone admits no address', world(allow({ fqdn: 'gone.example' })), '203.0.113.9', DEFAULT),
  named(
    '29',
    'a name is spelled as people spell it',
    world(allow({ fqdn: 'API.Example.com.' })),
    'api.example.com',
    ALLOW,
  ),
  tcp(
    '30',
    'the address behind a name, directly (D13)',
    world(allow({ fqdn: 'api.example.com' })),
    '203.0.113.5',
    DEFAULT,
  ),
  tcp('32', 'a range that is none', world(allow(cidr('10.0.0.300/8'))), '10.0.0.1', DEFAULT),
  tcp('33', 'a bare address', world(allow(cidr('192.0.2.7'))), '192.0.2.7', ALLOW),
  tcp('33 other', 'and its neighbour', world(allow(cidr('192.0.2.7'))), '192.0.2.8', DEFAULT),
  tcp('34', 'IPv6', world(allow(cidr('2001:db8::/32'))), '2001:db8:1::1', ALLOW),
  tcp('34 mapped', 'an IPv4 address in IPv6 clothes', world(allow(NET)), '::ffff:203.0.113.9', ALLOW),
  tcp(
    '35',
    'a service of another namespace',
    { ...world(allow(dns)), services: [{ namespace: 'kube-system', name: 'kube-dns', addresses: ['10.96.0.10'] }] },
    '10.96.0.10',
    ALLOW,
    53,
  ),
  tcp(
    '37',
    'a service without namespace in a Global policy',
    {
      objects: [traffic([allow({ service: { name: 'api' } })], { kind: 'GlobalTrafficPolicy' })],
      services: [
        { namespace: 'sandbox-system', name: 'api', addresses: ['10.96.0.20'] },
        { namespace: 'team-a', name: 'api', addresses: ['10.96.0.21'] },
      ],
    },
    '10.96.0.20',
    ALLOW,
  ),
  tcp(
    '37 other',
    'and in a namespaced one',
    {
      ...world(allow({ service: { name: 'api' } })),
      services: [
        { namespace: 'sandbox-system', name: 'api', addresses: ['10.96.0.20'] },
        { namespace: 'team-a', name: 'api', addresses: ['10.96.0.21'] },
      ],
    },
    '10.96.0.20',
    DEFAULT,
  ),
  tcp(
    '38',
    'a workload',
    {
      ...world(allow({ workload: { namespace: 'team-b', selector: { app: 'db' } } })),
      pods: [
        { namespace: 'team-b', labels: { app: 'db', x: 'y' }, addresses: ['10.1.1.1'] },
        { namespace: 'team-b', labels: { app: 'web' }, addresses: ['10.1.1.2'] },
      ],
    },
    '10.1.1.1',
    ALLOW,
  ),
  tcp(
    '38 other',
    'a pod with another label',
    {
      ...world(allow({ workload: { namespace: 'team-b', selector: { app: 'db' } } })),
      pods: [{ namespace: 'team-b', labels: { app: 'web' }, addresses: ['10.1.1.2'] }],
    },
    '10.1.1.2',
    DEFAULT,
  ),
  tcp('39', 'another port', world(withPorts(allow(NET), { protocol: 'TCP', port: 443 })), '203.0.113.9', DEFAULT, 80),
  tcp('40', 'a port without protocol', world(withPorts(allow(NET), { port: 53 })), '203.0.113.9', ALLOW, 53),
  tcp('41', 'another protocol', world(withPorts(allow(NET), { protocol: 'UDP' })), '203.0.113.9', DEFAULT),
  tcp(
    '42',
    'the end of a range of ports',
    world(withPorts(allow(NET), { protocol: 'TCP', port: 8000, endPort: 8100 })),
    '203.0.113.9',
    ALLOW,
    8100,
  ),
  tcp(
    '42 other',
    'one beyond',
    world(withPorts(allow(NET), { protocol: 'TCP', port: 8000, endPort: 8100 })),
    '203.0.113.9',
    DEFAULT,
    8101,
  ),
  tcp('43', 'ICMP with a port is invalid', world(withPorts(allow(NET), { protocol: 'ICMP', port: 8 })), '203.0.113.9', {
    l4: 'reject',
    reason: 'policy-invalid',
  }),
  tcp(
    '45',
    'a reject with a port',
    world(withPorts(reject(cidr('10.0.0.0/8')), { protocol: 'TCP', port: 443 }), allow(cidr('0.0.0.0/0'))),
    '10.1.1.1',
    REJECT,
  ),
  tcp(
    '45 other',
    'and another port',
    world(withPorts(reject(cidr('10.0.0.0/8')), { protocol: 'TCP', port: 443 }), allow(cidr('0.0.0.0/0'))),
    '10.1.1.1',
    ALLOW,
    80,
  ),
  tcp(
    '46',
    'the metadata address',
    {
      objects: [
        traffic([reject(cidr('169.254.169.254/32'))], { kind: 'GlobalTrafficPolicy', priority: 50 }),
        traffic([allow(cidr('0.0.0.0/0'))], { priority: 100 }),
      ],
    },
    '169.254.169.254',
    REJECT,
    80,
  ),
  tcp('46 unnamed', 'is private where no rule names it', world(allow(cidr('0.0.0.0/0'))), '169.254.169.254', {
    l4: 'reject',
    reason: 'private-address',
  }),
  tcp('46 named', 'and reachable where one does', world(allow(cidr('169.254.169.254'))), '169.254.169.254', ALLOW),
  tcp(
    '47',
    'scope gives no precedence',
    {
      objects: [
        traffic([reject(cidr('10.0.0.0/8'))], { kind: 'GlobalTrafficPolicy', priority: 5000 }),
        traffic([allow(cidr('10.0.0.0/8'))], { priority: 1000 }),
      ],
    },
    '10.1.1.1',
    ALLOW,
  ),
  tcp(
    'order',
    'equal in all but namespace and name: namespace first',
    {
      objects: [
        traffic([reject(NET)], { name: 'a', namespace: 'team-a' }),
        traffic([allow(NET)], { name: 'z', kind: 'GlobalTrafficPolicy' }),
      ],
    },
    '203.0.113.9',
    { ...ALLOW, by: 'GlobalTrafficPolicy z#0' },
  ),
  named(
    '51',
    'allow a name, reject the rest',
    world(allow({ fqdn: 'api.example.com' }), reject(cidr('0.0.0.0/0'))),
    'api.example.com',
    ALLOW,
  ),
  tcp('51 other', 'the rest', world(allow({ fqdn: 'api.example.com' }), reject(cidr('0.0.0.0/0'))), '8.8.8.8', REJECT),
  tcp('52', 'allow before reject', world(allow(cidr('10.1.2.3')), reject(cidr('10.0.0.0/8'))), '10.1.2.3', ALLOW),
  tcp('55', 'only a reject: the rest by default', world(reject(cidr('10.0.0.0/8'))), '8.8.8.8', DEFAULT),
  tcp(
    '56',
    'and with a policy that allows the rest',
    {
      objects: [
        traffic([reject(cidr('10.0.0.0/8'))], { priority: 100 }),
        traffic([allow(cidr('0.0.0.0/0'))], { kind: 'GlobalTrafficPolicy', priority: 200 }),
      ],
    },
    '8.8.8.8',
    ALLOW,
  ),
  tcp('D3', 'loopback', world(allow(cidr('0.0.0.0/0'))), '127.0.0.1', { l4: 'reject', reason: 'own-address' }, 8080),
  tcp(
    'D3 own',
    'the address of its own pod',
    {},
    SANDBOX.addresses[0]!,
    { l4: 'reject', reason: 'own-address' },
    15001,
  ),
  tcp('D3 private', 'explicit ranges are obeyed', world(allow(cidr('10.0.0.0/8'))), '10.9.9.9', ALLOW),
  named(
    'D4 first',
    'a global reject of everything comes first',
    {
      objects: [
        traffic([reject(cidr('0.0.0.0/0'))], { kind: 'GlobalTrafficPolicy', priority: 1 }),
        traffic([allow({ fqdn: 'x.example' })]),
      ],
    },
    'x.example',
    REJECT,
  ),
  named(
    'D4 range',
    'a rejected range only limits what is dialled',
    world(reject(cidr('10.0.0.0/8')), allow({ fqdn: 'x.example' })),
    'x.example',
    ALLOW,
  ),
  named(
    'D4 profile',
    'a name that only a profile lists',
    { objects: [traffic([allow(cidr('0.0.0.0/0'))]), profile([rule({}, { domains: ['x.example'] })])] },
    'x.example',
    { ...ALLOW, tls: 'plain', l7: 'forward' },
  ),
  named(
    'D4 narrow',
    'a narrower range does not admit a name',
    { objects: [traffic([allow(cidr('198.51.100.0/24'))]), profile([rule({}, { domains: ['x.example'] })])] },
    'x.example',
    UNRESOLVED,
  ),
  named(
    'D4 hosts',
    'unless the operator says where it is',
    { ...world(allow(cidr('127.0.0.0/8'))), hosts: { 'x.example': { address: '127.0.0.9' } } },
    'x.example',
    ALLOW,
  ),
  named(
    'D4 v6',
    'everything of IPv6 is not everything',
    { ...world(allow(cidr('::/0'))), hosts: { 'x.example': { address: '127.0.0.9' } } },
    'x.example',
    DEFAULT,
  ),
  named(
    'D4 port',
    'a name on another port',
    world(withPorts(allow({ fqdn: 'x.example' }), { port: 443 })),
    'x.example',
    DEFAULT,
  ),
  named('D4 unselected', 'no policy at all', { hosts: { 'x.example': { address: '127.0.0.9' } } }, 'x.example', {
    l4: 'allow',
    reason: 'unselected',
  }),
  tcp(
    'D4 unknown',
    "an address of the virtual range that is nobody's",
    world(allow(cidr('0.0.0.0/0'))),
    '240.200.0.1',
    UNRESOLVED,
  ),
  named(
    'D4 foreign',
    "a name that only another sandbox's policies list",
    { ...world(allow(cidr('0.0.0.0/0'))), otherNames: ['theirs.example'] },
    'theirs.example',
    UNRESOLVED,
  ),
  {
    row: 'D23',
    about: 'a name that nobody lists, by name',
    world: world(allow(cidr('0.0.0.0/0'))),
    request: call('http://free.example/'),
    expect: { ...ALLOW, l7: 'forward' },
  },
];
