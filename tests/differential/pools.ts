import type { PolicyFacts, SandboxFacts } from '../../api/facts.ts';
import { SANDBOX } from '../vectors/facts.ts';

/** The small worlds of the differential test: few names, addresses and paths, so that things collide and just miss. */

export const SANDBOXES: readonly SandboxFacts[] = [
  SANDBOX,
  { uid: 'uid-2', namespace: 'team-a', name: 'sbx-2', labels: { app: 'web' }, addresses: ['10.244.1.6'] },
  { uid: 'uid-3', namespace: 'team-b', name: 'sbx-3', labels: { app: 'agent' }, addresses: ['10.244.1.7', 'fd00::7'] },
];

/** Selectors, most of which select the first sandbox. */
export const SELECTORS: readonly object[] = [
  {},
  { matchLabels: { app: 'agent' } },
  { matchLabels: { app: 'web' } },
  { matchExpressions: [{ key: 'tier', operator: 'In', values: ['gold', 'silver'] }] },
  { matchExpressions: [{ key: 'app', operator: 'NotIn', values: ['web'] }] },
  { matchExpressions: [{ key: 'tier', operator: 'Exists' }] },
  { matchLabels: { app: 'agent' }, matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] },
];

/** Selectors that cannot be read. */
export const BROKEN_SELECTORS: readonly unknown[] = [
  undefined,
  'app=agent',
  { matchLabel: { app: 'web' } },
  { matchExpressions: [{ key: 'app', operator: 'Like', values: ['agent'] }] },
];

export const NAMES = ['a.test', 'api.a.test', 'x.api.a.test', 'b.test'] as const;

/** Names that no exact domain and no `fqdn` peer ever lists. */
export const FREE_NAMES = ['free.test', 'xa.test', 'free.a.test'] as const;

/** Names as people write them. */
export const SPELLINGS = [
  'a.test',
  'A.Test',
  'api.a.test',
  'API.a.test.',
  'x.api.a.test',
  'b.test',
  'b.test.',
] as const;

export const WILDCARDS = ['*', '*.a.test', '*.API.a.test', '*.test'] as const;

export const CIDRS = [
  '203.0.113.0/24',
  '203.0.113.9/32',
  '203.0.113.9',
  '203.0.113.77/24',
  '10.0.0.0/8',
  '10.1.1.1',
  '2001:db8::/32',
  '2001:db8::1',
  '::/0',
] as const;

export const UNREADABLE_CIDRS = ['10.0.0.300/8', 'nonsense'] as const;

export const ADDRESSES = [
  '203.0.113.9',
  '203.0.113.10',
  '::ffff:203.0.113.9',
  '10.1.1.1',
  '10.1.1.2',
  '10.96.0.20',
  '10.96.0.21',
  '2001:db8::1',
  '2001:db9::1',
  '8.8.8.8',
] as const;

export const OWN_ADDRESSES = [
  '127.0.0.1',
  '127.9.9.9',
  '0.0.0.0',
  '::1',
  '::',
  '10.244.1.5',
  '::ffff:127.0.0.1',
] as const;

export const LINK_LOCAL = ['169.254.169.254', '169.254.0.1', 'fe80::1'] as const;
export const LINK_LOCAL_CIDRS = ['169.254.169.254', '169.254.169.254/32', '169.254.0.0/16', 'fe80::1/128'] as const;

export const PORTS = [80, 443, 8080, 8443] as const;

export const SERVICES: PolicyFacts['services'] = [
  { namespace: 'team-a', name: 'db', addresses: ['10.96.0.20', '10.1.1.1'] },
  { namespace: 'team-a', name: 'empty', addresses: [] },
  { namespace: 'team-b', name: 'db', addresses: ['10.96.0.21'] },
  { namespace: 'sandbox-system', name: 'db', addresses: ['203.0.113.9'] },
];

export const SERVICE_PEERS: readonly object[] = [
  { service: { name: 'db' } },
  { service: { name: 'db', namespace: 'team-b' } },
  { service: { name: '*' } },
  { service: { name: 'empty' } },
  { service: { name: 'missing' } },
];

export const PODS: PolicyFacts['pods'] = [
  { namespace: 'team-b', labels: { app: 'db', rack: '1' }, addresses: ['10.1.1.1', '2001:db8::1'] },
  { namespace: 'team-b', labels: { app: 'web' }, addresses: ['10.1.1.2'] },
  { namespace: 'team-a', labels: { app: 'db' }, addresses: ['203.0.113.10'] },
];

export const WORKLOAD_PEERS: readonly object[] = [
  { workload: { namespace: 'team-b', selector: { app: 'db' } } },
  { workload: { namespace: 'team-b', selector: {} } },
  { workload: { namespace: 'team-a', selector: { app: 'db', rack: '1' } } },
];

export const PATHS = [
  '/',
  '/admin',
  '/admin/',
  '/administrator',
  '/Admin',
  '//admin',
  '/x/../admin',
  '/x/%2e%2e/admin',
  '/x%2F..%2Fadmin',
  '/x/..;v/admin',
  '/admin;v=1/keys',
  '/admin/keys',
  '/%61dmin',
  '/%2561dmin',
  '/x/%25252e%2e/admin',
  '/x%25/admin',
  '/./admin',
  '/x/..\\admin',
  '/v1/items',
  '/v1beta',
  '/v1//items',
  '/v1/items/',
  '/%76%31/items',
] as const;

export const PATH_TESTS: readonly object[] = [
  { type: 'Prefix', value: '/admin' },
  { type: 'Prefix', value: '/v1' },
  { type: 'Prefix', value: '/admin/keys' },
  { type: 'Prefix', value: '/x' },
  { type: 'Exact', value: '/admin' },
  { type: 'Exact', value: '/v1/items' },
  { type: 'Exact', value: '/v1//items' },
  { type: 'Exact', value: '/' },
  { type: 'Exact', value: '/x' },
  { type: 'Regex', value: '^/v1/[a-z]+$' },
  { type: 'Regex', value: 'items' },
  { type: 'Regex', value: '^/admin(/|$)' },
];

export const METHODS = ['GET', 'POST', 'PUT', 'get', 'DELETE'] as const;

export const HEADER_NAMES = ['x-a', 'x-b'] as const;
export const HEADER_VALUES = ['1', '12', '2', 'live-1', ''] as const;
export const QUERIES = [
  'id=7',
  'id=8&id=7',
  'id=7&id=8',
  'id=%37',
  'q=a+b',
  'q=a%20b&id=77',
  'a=%zz&id=7',
  'id',
  'i%64=7',
  'id=8;id=7',
  'ID=7',
] as const;

export const MANIPULATED = ['x-a', 'x-out', 'authorization', 'x-key'] as const;

export const SECRET_KEYS: PolicyFacts['secretKeys'] = {
  'team-a/key': ['apiKey'],
  'team-b/key': ['apiKey', 'other'],
  'team-a/wrong': ['token'],
  'team-a/empty': [],
};

export const TOOLS = ['read_file', 'rm', 'Read_File'] as const;
