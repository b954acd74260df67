import type { Expected, VectorCase } from './case.ts';
import { type Call, call, profile, rule, type World } from './facts.ts';

/** Rows 60–83 (matching of requests) of the specification's test vectors, the stricter answers of D8 and D13. */

const HOST = 'api.example.com';
const BLOCK: Expected = { l7: 'block', status: 403 };
const PASS: Expected = { l7: 'forward', matched: [] };

function world(...clauses: object[]): World {
  return { objects: [profile([rule({ block: {} }, ...clauses)])] };
}

const noted = { set: [{ name: 'x-seen', value: '1' }] };

/** The same match with an action that does not restrict. */
function noting(...clauses: object[]): World {
  return { objects: [profile([rule({ headerManipulation: noted }, ...clauses)])] };
}

function row(
  number: string,
  about: string,
  given: World,
  url: string,
  expect: Expected,
  options: Call = {},
): VectorCase {
  return { row: number, about, world: given, request: call(url, options), expect };
}

const api = (more: object) => ({ domains: [HOST], ...more });
const path = (value: string, type = 'Prefix') => api({ paths: [{ type, value }] });
const header = (...headers: object[]) => api({ headers });
const query = (...queryParams: object[]) => api({ queryParams });
const http = `http://${HOST}`;

export const MATCHING: readonly VectorCase[] = [
  row('60', 'a suffix', world({ domains: ['*.example.com'] }), `${http}/`, BLOCK),
  row('60 apex', 'without its apex', world({ domains: ['*.example.com'] }), 'http://example.com/', PASS),
  row('60 deep', 'with any number of labels', world({ domains: ['*.example.com'] }), 'http://a.b.example.com/', BLOCK),
  row('60 near', 'at a dot only', world({ domains: ['*.example.com'] }), 'http://xexample.com/', PASS),
  row('61', 'a domain in capitals', world({ domains: ['API.EXAMPLE.COM'] }), `${http}/`, BLOCK),
  row('61 host', 'a Host in capitals', world(api({})), `${http}/`, BLOCK, { host: 'API.example.COM', to: '192.0.2.1' }),
  row('62', 'a port in the authority', world(api({})), `${http}:8443/`, BLOCK),
  row('63', 'a dot at the end (D13)', world(api({})), `${http}/`, BLOCK, { host: `${HOST}.`, to: '192.0.2.1' }),
  row('64', 'a domain with a port is invalid', world({ domains: [`${HOST}:443`] }), `${http}/`, {
    l4: 'reject',
    reason: 'policy-invalid',
  }),
  row('65', 'any host, also none', world({}), `${http}/`, BLOCK, { host: '', to: '192.0.2.1' }),
  row('66', 'an IPv6 host', world({ domains: ['::1'], ports: [8080] }), `${http}:8080/`, BLOCK, {
    host: '[::1]:8080',
    to: '192.0.2.1',
  }),
  row('67', 'a prefix is no segment', world(path('/v1')), `${http}/v1beta`, BLOCK),
  row('68 case', 'case counts', world(path('/admin')), `${http}/Admin`, PASS),
  row('68 slashes', 'slashes do not (D8)', world(path('/admin')), `${http}//admin`, BLOCK),
  row('68 escape', 'nor escapes', world(path('/admin')), `${http}/%61dmin`, BLOCK),
  row('68 dots', 'nor dot segments', world(path('/admin')), `${http}/x/../admin`, BLOCK),
  row('68 escaped', 'nor escaped ones', world(path('/admin')), `${http}/x%2f%2e%2e%2Fadmin`, BLOCK),
  row('68 back', 'nor backslashes', world(path('/admin')), `${http}/x\\..\\admin`, BLOCK),
  row('68 parameters', 'nor parameters', world(path('/admin/keys')), `${http}/admin;v=1/keys`, BLOCK),
  row('68 hidden', 'nor dots behind parameters', world(path('/admin')), `${http}/x/..;v/admin`, BLOCK),
  row('68 twice', 'nor escaped escapes', world(path('/admin')), `${http}/%2561dmin`, BLOCK),
  row('68 raw', 'the raw form matches as well', world(path('/a//b')), `${http}/a//b`, BLOCK),
  row('68 plain', 'a rule that restricts nothing reads the raw path', noting(path('/admin')), `${http}//admin`, PASS),
  row('69', 'exact, without the query', world(path('/v1/items', 'Exact')), `${http}/v1/items?id=7`, BLOCK),
  row('69 other', 'a slash more', world(path('/v1/items', 'Exact')), `${http}/v1/items/`, PASS),
  row('70', 'a regex searches', world(path('items', 'Regex')), `${http}/v1/items`, BLOCK),
  row('71', 'an anchored one', world(path('^/v2', 'Regex')), `${http}/v1/items`, PASS),
  row('72', 'a method in small letters', world(api({ methods: ['GET'] })), `${http}/`, BLOCK, { method: 'get' }),
  row('73', 'the port of https', world(api({ ports: [443] })), `https://${HOST}/`, BLOCK),
  row('74', "the connection's port counts", world(api({ ports: [443] })), `${http}/`, PASS, {
    port: 8443,
    host: `${HOST}:443`,
    to: '192.0.2.1',
  }),
  row('76', 'a scheme in capitals', world(api({ schemes: ['HTTPS'] })), `https://${HOST}/`, BLOCK),
  row('76 other', 'another scheme', world(api({ schemes: ['HTTPS'] })), `${http}/`, PASS),
  row(
    '77',
    'headers are joined by and',
    world(header({ name: 'x-a', value: '1' }, { name: 'x-b', type: 'Prefix', value: 'y' })),
    `${http}/`,
    PASS,
    {
      headers: [['x-a', '1']],
    },
  ),
  row('78', 'a block looks at every value (D13)', world(header({ name: 'X-A', value: '1' })), `${http}/`, BLOCK, {
    headers: [
      ['x-a', '1'],
      ['x-a', '2'],
    ],
  }),
  row('78 plain', 'any other rule at the last', noting(header({ name: 'x-a', value: '1' })), `${http}/`, PASS, {
    headers: [
      ['x-a', '1'],
      ['x-a', '2'],
    ],
  }),
  row(
    '79',
    'a block looks at every query value',
    world(query({ name: 'id', value: '7' })),
    `${http}/?id=8&id=7`,
    BLOCK,
  ),
  row('79 plain', 'any other rule at the first', noting(query({ name: 'id', value: '7' })), `${http}/?id=8&id=7`, PASS),
  row('80', 'a plus is a space', world(query({ name: 'q', value: 'a b' })), `${http}/?q=a+b`, BLOCK),
  row('80 other', 'so is %20', world(query({ name: 'q', value: 'a b' })), `${http}/?q=a%20b`, BLOCK),
  ...(['x=1;id=7', 'id=8;id=7', 'id=7;x=1', 'x;id=7', 'i%64=7;'] as const).map((sent) =>
    row(`81 ${sent}`, 'a block takes ; as &', world(query({ name: 'id', value: '7' })), `${http}/?${sent}`, BLOCK),
  ),
  row('81 literal', 'and as a character', world(query({ name: 'id', value: '7;x' })), `${http}/?id=7;x`, BLOCK),
  row(
    '81 broken',
    'a block takes a broken escape as it stands',
    world(query({ name: 'id', type: 'Prefix', value: '7' })),
    `${http}/?id=7%zz%`,
    BLOCK,
  ),
  row('81 name', 'in a name too', world(query({ name: 'id', value: '7' })), `${http}/?%zz;id=7`, BLOCK),
  row('81 plain', 'any other rule drops the pair', noting(query({ name: 'id', value: '7' })), `${http}/?x;id=7`, PASS),
  row('81', 'a broken pair spoils no other', world(query({ name: 'b', value: '1' })), `${http}/?a=%zz&b=1`, BLOCK),
  row('82', 'clauses do not mix', world({ domains: ['x.test'] }, api({ methods: ['POST'] })), `${http}/`, PASS),
  row('83', 'any clause will do', world({ domains: ['x.test'] }, api({ methods: ['POST'] })), `${http}/`, BLOCK, {
    method: 'POST',
  }),
  row(
    'bypass plain',
    'a bypass is not widened, the block beside it is',
    { objects: [profile([rule({ bypass: true, block: {} }, path('/admin'))])] },
    `${http}//admin`,
    BLOCK,
  ),
  row(
    'bypass',
    'where it matches it comes first',
    { objects: [profile([rule({ bypass: true, block: {} }, path('/admin'))])] },
    `${http}/admin`,
    { l7: 'forward', matched: ['r0*'] },
  ),
];
