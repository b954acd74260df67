import * as fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isLeafName } from '../../identity/certificates.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { fullyDecoded } from '../../policy-compiler/decide/http-view.ts';
import { canHaveLeaf } from '../../policy-compiler/names.ts';
import { decodedPath, isOddPath, normalPath, pathOf } from '../../policy-compiler/paths.ts';
import { complement } from '../../policy-compiler/route-match.ts';
import { policy, SETTINGS, world } from './stage/world.ts';

type Clause = Readonly<Record<string, unknown>>;
interface Request {
  readonly authority?: string;
  readonly path?: string;
  readonly method?: string;
  readonly port?: number;
  readonly scheme?: 'http' | 'https';
  readonly headers?: readonly (readonly [string, string])[];
}

const API = 'api.example.com';

/** What a profile with these rules does to `GET https://api.example.com/v1/items?id=7`, changed by `request`. */
function outcome(rules: readonly object[], request: Request = {}) {
  const { authority = API, path = '/v1/items?id=7', method = 'GET', scheme = 'http', headers = [] } = request;
  const facts = world({
    policies: [policy('SecurityProfile', 'team-a/p', { rules })],
    names: [API],
    secretKeys: { 'team-a/s': ['apiKey'] },
  });
  const port = request.port ?? (scheme === 'https' ? 443 : 80);
  const named = authority.toLowerCase().startsWith(API) && !authority.includes(':');
  return createCompiler()
    .compile(facts, SETTINGS)
    .explain({
      sandbox: 's1',
      destination: named ? { kind: 'name', name: API, port } : { kind: 'address', address: '203.0.113.5', port },
      scheme,
      ...(scheme === 'https' ? { sni: API } : {}),
      http: { authority, path, method, headers },
    });
}

function blocks(match: readonly Clause[], request: Request = {}): boolean {
  return outcome([{ name: 'r', match, actions: { block: {} } }], request).l7?.action === 'block';
}

test('domains (vectors 60–66)', () => {
  const at = (domain: string, authority: string) => blocks([{ domains: [domain] }], { authority });
  assert.equal(
    ['api.example.com', 'example.com', 'a.b.example.com'].map((host) => at('*.example.com', host)),
    [true, false, true],
  );
  assert.ok(at('API.EXAMPLE.COM', API));
  assert.ok(at(API, `${API}:8443`));
  assert.ok(at(API, `${API}.`));
  assert.ok(at('*', ''));
  assert.ok(at('::1', '[::1]:8080'));
  assert.not(at('api.*.com', 'api.x.com'));
});

test('paths (vectors 67–71) and their other spellings (D8)', () => {
  const at = (type: string, value: string, path: string) =>
    blocks([{ domains: ['*'], paths: [{ type, value }] }], { path });
  assert.ok(at('Prefix', '/v1', '/v1beta'));
  const spellings = [
    '//admin',
    '/%61dmin',
    '/x/../admin',
    '/x/%2e%2e/admin',
    '/admin;a=b',
    '/x\\..\\admin',
    '/%2fadmin',
    '/%2561dmin',
    '/%25%36%31dmin',
    '/%252525252561dmin',
    '/x/%252e%252e/admin',
    '/x%255c..%252fadmin',
  ];
  assert.equal(
    spellings.filter((path) => !at('Prefix', '/admin', path)),
    [],
  );
  assert.not(at('Prefix', '/admin', '/%252561Admin'));
  assert.ok(at('Prefix', '/a%20b', '/a%2520b'), 'what stays escaped');
  assert.ok(at('Exact', '/100%25', '/100%25'), 'as it is');
  assert.not(at('Prefix', '/admin', '/Admin'));
  assert.equal(
    ['/v1/items?id=7', '/v1/items/'].map((path) => at('Exact', '/v1/items', path)),
    [true, false],
  );
  assert.ok(at('Regex', 'items', '/v1/items'));
  assert.not(at('Regex', '^/v2', '/v1/items'));
  assert.not(at('Prefix', '/v1/items?', '/v1/items?id=7'));
});

test('methods, ports, schemes, headers, query, clauses (vectors 72–83)', () => {
  const any = { domains: ['*'] };
  assert.ok(blocks([{ ...any, methods: ['GET'] }], { method: 'get' }));
  assert.equal(
    [80, 8080].map((port) => blocks([{ ...any, ports: [80] }], { port })),
    [true, false],
  );
  assert.ok(blocks([{ ...any, schemes: ['HTTP'] }]));
  assert.not(blocks([{ ...any, schemes: ['ws'] }]));
  const headers = [
    { name: 'X-A', value: '1' },
    { name: 'x-b', type: 'Prefix', value: 'y' },
  ];
  assert.not(blocks([{ ...any, headers }], { headers: [['x-a', '1']] }));
  assert.ok(
    blocks([{ ...any, headers }], {
      headers: [
        ['x-a', '2'],
        ['x-a', '1'],
        ['x-b', 'yes'],
      ],
    }),
  );
  const query = (test: object, path: string) => blocks([{ ...any, queryParams: [test] }], { path });
  assert.ok(query({ name: 'id', value: '7' }, '/?id=8&id=7'));
  assert.ok(query({ name: 'q', value: 'a b' }, '/?q=a+b'));
  assert.ok(query({ name: 'q', value: 'a b' }, '/?q=a%20b'));
  assert.ok(query({ name: 'b', value: '1' }, '/?a=%zz&b=1'));
  const two = [{ domains: ['x.test'] }, { domains: [API], methods: ['POST'] }];
  assert.equal(
    ['GET', 'POST'].map((method) => blocks(two, { method })),
    [false, true],
  );
});

test('a rule that cannot stop a request reads headers and query plainly', () => {
  const rule = (match: Clause) => [
    { name: 'r', match: [match], actions: { headerManipulation: { set: [{ name: 'x', value: '1' }] } } },
  ];
  const headers = { domains: ['*'], headers: [{ name: 'x-a', value: '1' }] };
  const set = (rules: readonly object[], request: Request) => outcome(rules, request).l7!.headers.set['x'];
  assert.is(
    set(rule(headers), {
      headers: [
        ['x-a', '2'],
        ['x-a', '1'],
      ],
    }),
    '1',
  );
  assert.is(
    set(rule(headers), {
      headers: [
        ['x-a', '1'],
        ['x-a', '2'],
      ],
    }),
    undefined,
  );
  assert.is(
    set(rule({ domains: ['*'], queryParams: [{ name: 'id', value: '7' }] }), { path: '/?id=8&id=7' }),
    undefined,
  );
});

test('actions (vectors 84–92)', () => {
  const all = [{ domains: ['*'] }];
  const on = (name: string, actions: object, match: readonly object[] = all) => ({ name, match, actions });
  const set = (value: string) => ({ headerManipulation: { set: [{ name: 'x-a', value }] } });
  const block = outcome([on('r', { block: { statusCode: 451, body: 'no' } })]).l7!;
  assert.equal([block.action, block.status, block.body, block.contentType], ['block', 451, 'no', 'text/plain']);
  const both = outcome([on('r', { bypass: true, block: {} })]).l7!;
  assert.equal([both.action, both.matched[0]!.terminal], ['forward', true]);
  const kept = outcome([on('1', set('1')), on('2', { bypass: true }), on('3', { block: {} })]).l7!;
  assert.equal([kept.action, kept.headers.set], ['forward', { 'x-a': '1' }]);
  assert.equal(outcome([on('1', set('1')), on('2', { block: {} })]).l7!.headers.set, {});
  const later = [{ domains: ['*'], headers: [{ name: 'x-a', value: '1' }] }];
  assert.is(outcome([on('1', set('1')), on('2', { block: {} }, later)]).l7!.action, 'forward');
  const removed = outcome([on('1', { headerManipulation: { remove: ['x-a'] } }), on('2', set('2'))]).l7!;
  assert.equal(removed.headers, { set: { 'x-a': '2' }, remove: [] });
  const token = {
    credentialRef: { secret: { name: 's' } },
    apiKey: { targetHeaders: { names: ['X-A'] }, value: { template: 'k {{.Token}}' } },
  };
  const http = [{ domains: [API], schemes: ['http'] }];
  const wins = outcome([on('1', { ...set('1'), tokenTransformation: token }, http)]).l7!;
  assert.equal([wins.headers.set, wins.credentials.map(({ header }) => header)], [{}, ['x-a']]);
  const overwritten = outcome([on('1', { tokenTransformation: token }, http), on('2', set('2'))]).l7!;
  assert.equal([overwritten.headers.set, overwritten.credentials], [{ 'x-a': '2' }, []]);
  assert.is(outcome([on('1', { tokenTransformation: token })]).l7!.reason, 'credential-destination');
  assert.is(
    outcome([on('1', { tokenTransformation: token }, [{ domains: [API] }])], { scheme: 'https' }).l7!.action,
    'forward',
  );
});

test('a path that is not odd is its own normal form', () => {
  const piece = fc.constantFrom(
    'a',
    'admin',
    '.',
    '..',
    '...',
    '%2e',
    '%2F',
    '%41',
    '%25',
    '%2541',
    '%20',
    '%zz',
    ';x',
    '\\',
    '',
    '.a',
    'a.',
    '~',
    '+',
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 6 }), (pieces) => {
      const path = `/${pieces.join('/')}`;
      return isOddPath(path) || (normalPath(path) === path && decodedPath(path) === path);
    }),
    { numRuns: 2000 },
  );
  assert.is(pathOf('/a?b?c'), '/a');
});

test('decoding to the end leaves no escape, however they are nested, in time that grows with the length', () => {
  const piece = fc.constantFrom('%', '2', '5', '25', '%25', '%2', '%35', '61', '%61', '/', '%2F', '%zz', '%20', 'a');
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
      const path = `/${pieces.join('')}`;
      assert.is(decodedPath(path), fullyDecoded(path));
      assert.not.match(decodedPath(path), /%(25|61|2f)/i);
    }),
    { numRuns: 3000 },
  );
  assert.is(decodedPath(`/%${'25'.repeat(30_000)}61`), '/a');
  assert.is(decodedPath(`/%2${'%3'.repeat(30_000)}5`), '/%');
});

test('the complement of a text matches everything else', () => {
  const alphabet = fc.constantFrom('a', 'b', '.', '*', '^', '-', ']', '\\', '(', ' ');
  const text = fc.string({ unit: alphabet, minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(text, fc.string({ unit: alphabet, maxLength: 6 }), fc.boolean(), (value, other, prefix) => {
      const regex = new RegExp(`^${complement(value, prefix).replace('(?s)', '')}$`, 's');
      return [other, value, `${value}x`].every(
        (sample) => regex.test(sample) === !(prefix ? sample.startsWith(value) : sample === value),
      );
    }),
    { numRuns: 2000 },
  );
});

test('names that can have a certificate are those that the CA issues', () => {
  for (const name of [
    'a.test',
    'a_b.test',
    'localhost',
    '1.2.3.4',
    '-a.test',
    'a-.test',
    'x.1',
    'a..b',
    'é.test',
    '*.a',
  ]) {
    assert.is(canHaveLeaf(name), isLeafName(name), name);
  }
});

test.run();
