import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { CodedError } from '../../base/errors.ts';
import { decisionRequest, type ExplainQuery, explainRequest, findSandbox } from '../../control-plane/explain.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { policy, SETTINGS, sandbox, world } from '../policy-compiler/stage/world.ts';

/** What a question of `explain` stands for. */
const questions = suite('explain');

const SANDBOX = sandbox('s1');
const ask = (query: Omit<ExplainQuery, 'sandbox'>) => decisionRequest(SANDBOX, { sandbox: 'team-a/s1', ...query });

const DESTINATIONS: readonly [url: string, kind: string, where: string, port: number][] = [
  ['https://API.example.com/v1', 'name', 'api.example.com', 443],
  ['http://api.example.com', 'name', 'api.example.com', 80],
  ['http://api.example.com.:8080/', 'name', 'api.example.com', 8080],
  ['https://203.0.113.7:8443/', 'address', '203.0.113.7', 8443],
  ['http://[2001:DB8::1]/', 'address', '2001:db8::1', 80],
  ['tcp://db.internal:5432', 'name', 'db.internal', 5432],
  ['tcp://10.0.0.1:22', 'address', '10.0.0.1', 22],
];

for (const [url, kind, where, port] of DESTINATIONS) {
  questions(`${url} goes to the ${kind} ${where}, port ${port}`, () => {
    const { destination } = ask({ url });
    assert.equal(destination, kind === 'name' ? { kind, name: where, port } : { kind, address: where, port });
  });
}

const CAPTURED: readonly [to: string, address: string, port: number][] = [
  ['203.0.113.7', '203.0.113.7', 443],
  ['203.0.113.7:8443', '203.0.113.7', 8443],
  ['2001:db8::1', '2001:db8::1', 443],
  ['[2001:db8::1]:99', '2001:db8::1', 99],
];

for (const [to, address, port] of CAPTURED) {
  questions(`--to ${to} is where the connection goes`, () => {
    assert.equal(ask({ url: 'https://api.test/', to }).destination, { kind: 'address', address, port });
  });
}

questions('the path is the raw one, with dots, doubled slashes and the query', () => {
  const path = (url: string) => ask({ url }).http?.path;
  assert.is(path('http://a.test'), '/');
  assert.is(path('http://a.test?x=1'), '/?x=1');
  assert.is(path('http://a.test/a/../b//c/%2e?q=1#fragment'), '/a/../b//c/%2e?q=1');
});

questions('method, headers and body; a Host header is the authority and no header', () => {
  const { http } = ask({
    url: 'http://a.test:81/x',
    method: 'POST',
    headers: [
      ['X-One', '1'],
      ['HOST', 'other.test'],
      ['x-one', '2'],
    ],
    body: Buffer.from('{"a":1}').toString('base64'),
  });
  assert.equal(
    [http?.method, http?.authority, http?.headers],
    [
      'POST',
      'other.test',
      [
        ['x-one', '1'],
        ['x-one', '2'],
      ],
    ],
  );
  assert.is(Buffer.from(http!.body!).toString(), '{"a":1}');
  const plain = ask({ url: 'http://a.test:81/x' }).http;
  assert.equal([plain?.method, plain?.authority, plain?.body], ['GET', 'a.test:81', undefined]);
});

questions('https has a server name unless it goes to an address; tcp has no request', () => {
  assert.is(ask({ url: 'https://a.test/' }).sni, 'a.test');
  assert.is(ask({ url: 'https://10.0.0.1/' }).sni, '');
  assert.is(ask({ url: 'http://a.test/' }).sni, undefined);
  assert.is(ask({ url: 'tcp://a.test:1' }).http, undefined);
});

const WRONG: readonly [query: Omit<ExplainQuery, 'sandbox'>, field: string][] = [
  [{ url: 'no url' }, 'url'],
  [{ url: 'ftp://a.test/' }, 'url'],
  [{ url: 'tcp://a.test' }, 'url'],
  [{ url: 'https://a.test/', to: 'a.test' }, 'to'],
  [{ url: 'https://a.test/', to: '10.0.0.1:0' }, 'to'],
  [{ url: 'https://a.test/', to: '10.0.0.1:70000' }, 'to'],
];

for (const [query, field] of WRONG) {
  questions(`${JSON.stringify(query)} is an error of ${field}`, () => {
    try {
      ask(query);
      assert.unreachable();
    } catch (error) {
      const { code, fields } = error as CodedError;
      assert.equal([code, fields.map(({ path }) => path)], ['invalid', [field]]);
    }
  });
}

questions('a sandbox is named by namespace and name, or by a name alone in default', () => {
  const facts = world({ sandboxes: [sandbox('s1'), sandbox('s2', {}, 'default')] });
  assert.is(findSandbox(facts, 'team-a/s1').uid, 's1');
  assert.is(findSandbox(facts, 's2').uid, 's2');
  assert.throws(() => findSandbox(facts, 's1'), /no Sandbox default\/s1/);
});

questions('the answer is that of the compiled policies', () => {
  const rules = [{ action: 'allow', to: [{ cidr: '203.0.113.0/24' }] }];
  const facts = world({ policies: [policy('TrafficPolicy', 'team-a/tp', { egress: { rules } })] });
  const compilation = createCompiler().compile(facts, SETTINGS);
  const answer = (url: string) => explainRequest(facts, compilation, { sandbox: 'team-a/s1', url });
  assert.is(answer('tcp://203.0.113.7:443').l4.action, 'allow');
  assert.is(answer('tcp://203.0.114.7:443').l4.action, 'reject');
  assert.is(answer('tcp://203.0.114.7:443').sandbox, 'team-a/s1');
});

questions.run();
