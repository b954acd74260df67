import type { VectorCase } from './case.ts';
import { call, profile, rule, SANDBOX, traffic, type World } from './facts.ts';

/** Rows 1–18 (selection and order) of the specification's test vectors, and cases of our own about D2. */

const request = call('https://api.example.com/v1/items?id=7');
const listed = { domains: ['api.example.com'] };
const blocking = (statusCode: number) => rule({ block: { statusCode } }, listed);
const older = '2026-01-01T00:00:00Z';
const newer = '2026-01-01T00:00:01Z';

function row(number: string, about: string, world: World, expect: VectorCase['expect']): VectorCase {
  return { row: number, about, world, request, expect };
}

const outside = { ...SANDBOX, namespace: 'team-b' };
const brokenProfile = profile([rule({ block: {} }, { ...listed, paths: [{ type: 'Regex', value: '(' }] })]);

export const SELECTION: readonly VectorCase[] = [
  row('1', 'no profile, no policy', {}, { l4: 'allow', reason: 'unselected', tls: 'passthrough', l7: 'none' }),
  row(
    '2',
    'an empty selector selects the namespace',
    { objects: [profile([blocking(403)])] },
    { l7: 'block', status: 403 },
  ),
  row(
    '3',
    'a profile of another namespace',
    { objects: [profile([blocking(403)], { namespace: 'team-b' })] },
    { l7: 'none', tls: 'passthrough' },
  ),
  row(
    '4',
    'a global profile, in another namespace',
    { sandboxes: [outside], objects: [profile([blocking(403)], { kind: 'GlobalSecurityProfile' })] },
    { l7: 'block', status: 403 },
  ),
  row(
    '5',
    'matchExpressions In and NotIn together',
    {
      objects: [
        profile([blocking(403)], {
          selector: {
            matchExpressions: [
              { key: 'tier', operator: 'In', values: ['gold'] },
              { key: 'app', operator: 'NotIn', values: ['web'] },
            ],
          },
        }),
      ],
    },
    { l7: 'block' },
  ),
  row(
    '5 other',
    'one expression that does not hold',
    {
      objects: [
        profile([blocking(403)], {
          selector: {
            matchExpressions: [
              { key: 'tier', operator: 'Exists' },
              { key: 'app', operator: 'DoesNotExist' },
            ],
          },
        }),
      ],
    },
    { l7: 'none' },
  ),
  row(
    '7',
    'a sandbox without labels, an empty selector',
    { sandboxes: [{ ...SANDBOX, labels: {} }], objects: [profile([blocking(403)])] },
    { l7: 'block' },
  ),
  row(
    '8',
    'lower priority number first',
    {
      objects: [
        profile([blocking(403)], { name: 'b', priority: 20 }),
        profile([blocking(451)], { name: 'a', priority: 10 }),
      ],
    },
    { l7: 'block', status: 451 },
  ),
  row(
    '9',
    'then the older one',
    {
      objects: [
        profile([blocking(403)], { name: 'a', created: newer }),
        profile([blocking(451)], { name: 'b', created: older }),
      ],
    },
    { status: 451 },
  ),
  row(
    '10',
    'then the name',
    { objects: [profile([blocking(403)], { name: 'ab' }), profile([blocking(418)], { name: 'aa' })] },
    { status: 418 },
  ),
  row(
    '11',
    'then the namespace, a global one first',
    { objects: [profile([blocking(403)]), profile([blocking(451)], { kind: 'GlobalSecurityProfile' })] },
    { status: 451 },
  ),
  row(
    '12',
    'an unset priority is 1000',
    { objects: [profile([blocking(403)], { name: 'a' }), profile([blocking(410)], { name: 'b', priority: 999 })] },
    { status: 410 },
  ),
  row(
    '13',
    'a bypass of lower number defeats a global block',
    {
      objects: [
        profile([blocking(403)], { kind: 'GlobalSecurityProfile', priority: 2000 }),
        profile([rule({ bypass: true }, listed)], { priority: 1000 }),
      ],
    },
    { tls: 'intercepted', l7: 'forward', matched: ['r0*'] },
  ),
  row(
    '15',
    'a first version that is invalid denies whom it selects (D2)',
    { objects: [brokenProfile] },
    { l4: 'reject', reason: 'policy-invalid', by: 'SecurityProfile team-a/p#0', tls: null, l7: 'none' },
  ),
  row(
    '15 other',
    'and nobody else',
    {
      sandboxes: [{ ...SANDBOX, labels: { app: 'web' } }],
      objects: [
        { ...brokenProfile, spec: { ...(brokenProfile.spec as object), selector: { matchLabels: { app: 'agent' } } } },
      ],
    },
    { l4: 'allow', reason: 'unselected' },
  ),
  row(
    '15 unreadable',
    'an unreadable selector denies the namespace',
    {
      objects: [
        profile([blocking(403)], { selector: { matchExpressions: [{ key: 'app', operator: 'Like', values: ['x'] }] } }),
      ],
    },
    { l4: 'reject', reason: 'policy-invalid' },
  ),
  row(
    '15 global',
    'an unreadable Global object denies every sandbox',
    { sandboxes: [outside], objects: [traffic([], { kind: 'GlobalTrafficPolicy', selector: { matchLabel: {} } })] },
    { l4: 'reject', reason: 'policy-invalid', by: 'GlobalTrafficPolicy p#0' },
  ),
];
