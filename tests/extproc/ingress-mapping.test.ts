import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { mapRequest } from '../../extproc/ingress/mapping.ts';
import type { RequestHead } from '../../extproc/request.ts';

function head(parts: Partial<RequestHead>): RequestHead {
  return {
    method: 'GET',
    scheme: 'http',
    authority: '',
    path: '/',
    headers: [],
    attributes: {},
    endOfStream: true,
    ...parts,
  };
}

const sandbox = (id: string, port: number, path: string | null = null) => ({ kind: 'sandbox', id, port, path });
const NONE = { kind: 'none' };
const withHeaders = (...headers: [string, string][]) => head({ authority: 'localhost', headers });

/** ingress-gateway §1, row by row. */
const CASES: readonly [name: string, head: RequestHead, expected: object][] = [
  ['host form', head({ authority: '3000-abc.example.com' }), sandbox('abc', 3000)],
  ['host form with a port', head({ authority: '3000-abc.localhost:8080' }), sandbox('abc', 3000)],
  ['the id runs to the first dot', head({ authority: '3000-a--b.x.y' }), sandbox('a--b', 3000)],
  ['the case of an id counts', head({ authority: '3000-ABC.x' }), sandbox('ABC', 3000)],
  ['leading zeros', head({ authority: '03000-a.x' }), sandbox('a', 3000)],
  ['port 0', head({ authority: '0-a.x' }), sandbox('a', 0)],
  ['no dot behind the id', head({ authority: '3000-abc' }), NONE],
  ['no port', head({ authority: 'abc.example.com' }), NONE],
  ['an underscore', head({ authority: '3000-a_b.x' }), NONE],
  ['an address', head({ authority: '127.0.0.1:3000' }), NONE],
  ['header form', withHeaders(['e2b-sandbox-id', 'abc'], ['e2b-sandbox-port', '80']), sandbox('abc', 80)],
  ['header form without a port', withHeaders(['e2b-sandbox-id', 'abc']), sandbox('abc', 49_983)],
  ['an empty port is none', withHeaders(['e2b-sandbox-id', 'abc'], ['e2b-sandbox-port', '']), sandbox('abc', 49_983)],
  ['a port that is none', withHeaders(['e2b-sandbox-id', 'abc'], ['e2b-sandbox-port', 'x']), NONE],
  ['the last value counts', withHeaders(['e2b-sandbox-id', 'a'], ['e2b-sandbox-id', 'b']), sandbox('b', 49_983)],
  [
    'headers go before the host',
    head({
      authority: '3000-a.x',
      headers: [
        ['e2b-sandbox-id', 'b'],
        ['e2b-sandbox-port', '1'],
      ],
    }),
    sandbox('b', 1),
  ],
  ['path form', head({ path: '/kruise/abc/3000/x?y=1' }), sandbox('abc', 3000, '/x?y=1')],
  ['path form without a rest', head({ path: '/kruise/abc/3000' }), sandbox('abc', 3000, '/')],
  ['path form with an empty rest', head({ path: '/kruise/abc/3000/?x=1' }), sandbox('abc', 3000, '/?x=1')],
  ['path form with slashes', head({ path: '/kruise/abc/3000//y' }), sandbox('abc', 3000, '//y')],
  ['a query behind the port', head({ path: '/kruise/a/3000?x=1' }), NONE],
  ['the path form alone counts', head({ authority: '3000-a.x', path: '/kruise/a' }), NONE],
  ['a path that only begins like it', head({ authority: '3000-a.x', path: '/kruisers/x' }), NONE],
  ['the eighth character is not looked at', head({ path: '/kruisefoo/3000/x' }), sandbox('oo', 3000, '/x')],
  ['an empty id', head({ path: '/kruise//3000/' }), sandbox('', 3000, '/')],
  ['a signed port', head({ path: '/kruise/a/-1/' }), sandbox('a', -1, '/')],
];

for (const [name, given, expected] of CASES) {
  test(name, () => {
    assert.equal(mapRequest(given), expected);
  });
}

test.run();
