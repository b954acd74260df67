import type { Expected, VectorCase } from './case.ts';
import { type Call, call, profile, rule, traffic, virtual, type World } from './facts.ts';

/** Rows 84–93 and 125–147 (actions, headers, credentials) of the specification's test vectors, and D1, D10. */

const HOST = 'api.example.com';
const URL = `http://${HOST}/v1`;
const clause = { domains: [HOST] };
const act = (...actions: object[]): World => ({ objects: [profile(actions.map((one) => rule(one, clause)))] });
const set = (name: string, value: string) => ({ headerManipulation: { set: [{ name, value }] } });
const remove = (name: string) => ({ headerManipulation: { remove: [name] } });

function row(number: string, about: string, given: World, expect: Expected, options: Call = {}, url = URL): VectorCase {
  return { row: number, about, world: given, request: call(url, options), expect };
}

const token = (more: object = {}, ref: object = { secret: { name: 'key' } }) => ({
  tokenTransformation: {
    credentialRef: ref,
    apiKey: { targetHeaders: { names: ['Authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
    ...more,
  },
});
const KEYS = { 'team-a/key': ['apiKey'], 'shared/key': ['apiKey'], 'team-a/other': ['password'] };
const inject = (actions: object, more: object = {}): World => ({
  objects: [profile([rule(actions, { ...clause, ...more })])],
  secretKeys: KEYS,
});
const https = `https://${HOST}/v1`;
const unavailable: Expected = {
  l7: 'deny',
  why: 'credential-unavailable',
  status: 403,
  body: 'tokentransform: credential unavailable',
  contentType: 'text/plain',
};
const refused: Expected = { l7: 'deny', why: 'credential-destination', status: 403, credentials: [] };

export const ACTIONS: readonly VectorCase[] = [
  row('84', 'a block without body says who blocked (D10)', act({ block: {} }), {
    l7: 'block',
    status: 403,
    body: '{"error":"blocked","policy":"SecurityProfile team-a/p","rule":"r0","reason":"block","retryable":false}',
    contentType: 'application/json',
  }),
  row('85', "a block with the policy's words", act({ block: { statusCode: 451, body: 'no' } }), {
    status: 451,
    body: 'no',
    contentType: 'text/plain',
  }),
  row('86', 'bypass before block', act({ block: {}, bypass: true }), { l7: 'forward', matched: ['r0*'] }),
  row('86 false', 'a bypass that is false', act({ block: {}, bypass: false }), { l7: 'block' }),
  row('87', 'a bypass keeps earlier changes', act(set('x-a', '1'), { bypass: true }, { block: {} }), {
    l7: 'forward',
    set: { 'x-a': '1' },
    matched: ['r0', 'r1*'],
  }),
  row('88', 'a block drops them', act(set('x-a', '1'), { block: {} }), {
    l7: 'block',
    set: {},
    matched: ['r0', 'r1*'],
  }),
  row(
    '89',
    'the original request is matched',
    {
      objects: [
        profile([
          rule(set('x-env', 'prod'), clause),
          rule({ block: {} }, { ...clause, headers: [{ name: 'x-env', value: 'prod' }] }),
        ]),
      ],
    },
    { l7: 'forward', set: { 'x-env': 'prod' } },
  ),
  row(
    '90',
    'a credential comes after the headers of its rule',
    inject({ ...set('authorization', 'none'), ...token() }),
    { set: {}, credentials: ['authorization=team-a/key'] },
    {},
    https,
  ),
  row('91', 'the later write wins', act(remove('x-a'), set('x-a', '2')), { set: { 'x-a': '2' }, remove: [] }),
  row('91 other', 'also a removal', act(set('x-a', '2'), remove('x-a')), { set: {}, remove: ['x-a'] }),
  row('92', 'a rule without actions', act({}), { l7: 'forward', matched: ['r0'] }),
  row(
    '93',
    'CONNECT under an MCP policy',
    act({ mcpToolPolicy: { defaultAction: 'allow', rules: [{ method: 'x', action: 'allow' }] } }),
    { l7: 'deny', status: 500 },
    { method: 'CONNECT' },
  ),
  row(
    '125',
    'a header replaces all values',
    act(set('x-tenant', 'demo')),
    { set: { 'x-tenant': 'demo' } },
    {
      headers: [
        ['x-tenant', 'a'],
        ['x-tenant', 'b'],
      ],
    },
  ),
  row('126', 'host cannot be set', act(set('host', 'x')), { reason: 'policy-invalid' }),
  row(
    '127',
    'set and removed at once',
    act({ headerManipulation: { set: [{ name: 'x-a', value: '1' }], remove: ['x-a'] } }),
    { reason: 'policy-invalid' },
  ),
  row('128', 'a template is a literal', act(set('x-a', '{{ .Pod.Name }}')), { set: { 'x-a': '{{ .Pod.Name }}' } }),
  row(
    '130',
    'a credential',
    inject(token()),
    { tls: 'intercepted', l7: 'forward', credentials: ['authorization=team-a/key'] },
    {},
    https,
  ),
  row('131', 'a Secret that is not there', inject(token({}, { secret: { name: 'gone' } })), unavailable, {}, https),
  row('131 key', 'or has no such key', inject(token({}, { secret: { name: 'other' } })), unavailable, {}, https),
  row(
    '135',
    'the namespace of the reference',
    inject(token({}, { secret: { name: 'key', namespace: 'shared' } })),
    { credentials: ['authorization=shared/key'] },
    {},
    https,
  ),
  row(
    '135 global',
    "a Global profile: the caller's namespace",
    { objects: [profile([rule(token(), clause)], { kind: 'GlobalSecurityProfile' })], secretKeys: KEYS },
    { credentials: ['authorization=team-a/key'] },
    {},
    https,
  ),
  row(
    '135 old',
    'the older form of the reference and of the target',
    inject({
      tokenTransformation: {
        credentialRef: { kind: 'Secret', name: 'key' },
        apiKey: { valueTemplate: '{{ .Token }}' },
      },
    }),
    { credentials: ['authorization=team-a/key'] },
    {},
    https,
  ),
  row(
    '145',
    'two sources',
    inject(token({}, { secret: { name: 'key' }, credentialProvider: { name: 'x' } })),
    { reason: 'policy-invalid' },
    {},
    https,
  ),
  row('146', 'an unknown type', inject(token({ type: 'Foo' })), { reason: 'policy-invalid' }, {}, https),
  row(
    '147',
    'switched off',
    inject(token({ disabled: true }, { secret: { name: 'gone' } })),
    { l7: 'forward', credentials: [] },
    {},
    https,
  ),
  row('cleartext', 'no credential over plain http', inject(token()), refused),
  row('cleartext meant', 'unless the rule says http', inject(token(), { schemes: ['http'] }), {
    l7: 'forward',
    credentials: ['authorization=team-a/key'],
  }),
  row(
    'trace',
    'no credential with TRACE, whose answer is the request',
    inject(token()),
    refused,
    { method: 'TRACE' },
    https,
  ),
  row('trace alone', 'even if asked for', inject(token(), { methods: ['TRACE'] }), refused, { method: 'TRACE' }, https),
  row(
    'trace bare',
    'TRACE without one',
    inject(token(), { methods: ['GET'] }),
    { l7: 'forward', credentials: [] },
    { method: 'TRACE' },
    https,
  ),
  row('address', 'no credential to an address', inject(token(), { schemes: ['http'] }), refused, { to: '192.0.2.1' }),
  row(
    'forged',
    'no credential under a forged Host',
    { ...inject(token(), { schemes: ['http'] }), hosts: { 'other.example': { address: '192.0.2.1' } } },
    { l7: 'deny', why: 'host-mismatch', credentials: [] },
    { host: HOST },
    'http://other.example/',
  ),
  row(
    'forged free',
    'nor under a forged Host on an address that a name without a list has',
    inject(token(), { schemes: ['http'] }),
    refused,
    { host: HOST },
    'http://other.example/',
  ),
  row(
    'free',
    'nor to a name that only a wildcard covers',
    { objects: [profile([rule(token(), { domains: ['*.example.com'], schemes: ['http'] })])], secretKeys: KEYS },
    refused,
    {},
    URL,
  ),
  row(
    'removed',
    'a credential that a later rule removes',
    {
      objects: [profile([rule(token(), clause), rule(remove('authorization'), clause)])],
      secretKeys: KEYS,
    },
    { credentials: [], remove: ['authorization'] },
    {},
    https,
  ),
];

const listed = (actions: object, domains: string[], more: object = {}): World => ({
  objects: [profile([rule(actions, { domains, ...more })])],
});
const closed: Expected = { tls: 'passthrough', l7: 'deny', why: 'tls-not-intercepted', status: null, body: null };
const open: Expected = { tls: 'passthrough', l7: 'none' };
const away: Call = { to: '192.0.2.1' };

export const TLS: readonly VectorCase[] = [
  row(
    '163',
    'a name under a suffix',
    listed({ headerManipulation: { remove: ['x'] } }, ['*.example.com']),
    closed,
    away,
    https,
  ),
  row('163 any', 'any name, a rule that refuses', listed({ block: {} }, ['*']), closed, away, https),
  row(
    '163 header',
    'any name, a rule that does not',
    listed({ headerManipulation: { remove: ['x'] } }, ['*']),
    open,
    away,
    https,
  ),
  row(
    '163 bypass',
    'any name, a bypass before the block',
    listed({ block: {}, bypass: true }, ['*']),
    open,
    away,
    https,
  ),
  row('163 scheme', 'a rule about http alone', listed({ block: {} }, ['*'], { schemes: ['http'] }), open, away, https),
  row('163 port', 'a rule about another port', listed({ block: {} }, ['*'], { ports: [8443] }), open, away, https),
  row(
    '164',
    'another Host inside',
    listed({ bypass: true }, [HOST]),
    { tls: 'intercepted', l7: 'deny', why: 'host-mismatch', status: 403 },
    { host: 'evil.test', ...away },
    https,
  ),
  row(
    '164 capitals',
    'SNI in capitals',
    listed({ block: {} }, [HOST]),
    { tls: 'intercepted', l7: 'block' },
    { sni: 'API.Example.Com', ...away },
    https,
  ),
  row(
    'sni',
    'no SNI, a rule that refuses',
    listed({ block: {} }, ['other.example']),
    closed,
    { sni: '', ...away },
    https,
  ),
  row(
    'sni header',
    'no SNI, a rule that does not',
    listed({ bypass: true }, ['other.example']),
    open,
    { sni: '', ...away },
    https,
  ),
  row(
    'fronting',
    'a listed name asked for under another SNI',
    listed({ block: {} }, [HOST]),
    closed,
    { sni: 'free.example' },
    https,
  ),
  {
    row: 'forged',
    about: "another Host behind a name's address",
    world: { objects: [traffic([{ action: 'allow', to: [{ fqdn: 'a.example' }, { fqdn: 'b.example' }] }])] },
    request: (facts) => call('http://b.example/', { to: virtual(facts, 'a.example') }),
    expect: {
      tls: 'plain',
      l7: 'deny',
      why: 'host-mismatch',
      body: '{"error":"denied","policy":"","rule":"","reason":"host-mismatch","retryable":false}',
    },
  },
  row(
    'port',
    "a port in Host that is not the connection's",
    listed({ bypass: true }, [HOST]),
    { l7: 'deny', why: 'host-mismatch' },
    { host: `${HOST}:22` },
  ),
  row(
    'raw',
    'raw TCP to a listed name',
    listed({ bypass: true }, [HOST]),
    { tls: 'plain', l7: 'deny', why: 'not-http', status: null },
    {},
    `tcp://${HOST}:80`,
  ),
  row(
    'raw https',
    'listed for https alone',
    listed({ bypass: true }, [HOST], { schemes: ['https'] }),
    { tls: 'plain', l7: 'none' },
    {},
    `tcp://${HOST}:80`,
  ),
  row(
    'raw any',
    'raw TCP where any host may be refused',
    listed({ block: {} }, ['*.test']),
    { l7: 'deny', why: 'not-http' },
    { to: '192.0.2.1' },
    'tcp://x:80',
  ),
  row(
    'raw free',
    'raw TCP elsewhere',
    listed({ block: {} }, [HOST]),
    { tls: 'plain', l7: 'none' },
    { to: '192.0.2.1' },
    'tcp://x:80',
  ),
];
