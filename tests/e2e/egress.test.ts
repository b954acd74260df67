import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { API, credentialRule, sandbox, secret, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane, until } from './plane.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** One plane with two sandboxes that have credentials of their own for the same upstream. */
const egress = suite('egress of a whole local mode');
let plane: TestPlane;
let upstream: Upstream;

const KEYS = { alpha: 'key-of-alpha-71f3', beta: 'key-of-beta-9c04' } as const;

function policies(name: keyof typeof KEYS, blocked: string): readonly object[] {
  return [
    trafficPolicy(`${name}-egress`, name, [{ action: 'allow', to: [{ fqdn: API }] }]),
    securityProfile(`${name}-requests`, name, [
      {
        name: 'blocked',
        match: [{ domains: [API], paths: [{ type: 'Prefix', value: blocked }] }],
        actions: { block: { statusCode: 451, body: `not for ${name}` } },
      },
      credentialRule(`${name}-key`, '/v1'),
    ]),
    secret(`${name}-key`, KEYS[name]),
  ];
}

egress.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'alpha.yaml': yaml(sandbox('alpha'), ...policies('alpha', '/admin')),
      'beta.yaml': yaml(sandbox('beta'), ...policies('beta', '/other')),
    },
  });
  await Promise.all([plane.phase('alpha', 'Running'), plane.phase('beta', 'Running')]);
});

egress.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

const curl = (name: string, url: string, ...args: readonly string[]) =>
  plane.exec(name, 'curl', '-s', '--max-time', '8', '-w', '\n%{http_code}', ...args, url);

const http = (path: string) => `http://${API}:${upstream.httpPort}${path}`;
const https = (path: string) => `https://${API}:${upstream.httpsPort}${path}`;

for (const [scheme, url] of [
  ['http', http],
  ['https', https],
] as const) {
  egress(`${scheme}: each sandbox gets its own verdict and its own credential`, async () => {
    for (const name of ['alpha', 'beta'] as const) {
      const allowed = await curl(name, url('/v1/items'));
      assert.match(allowed.stdout, /\n200$/, allowed.stderr);
      assert.is(upstream.seen.at(-1)?.headers['authorization'], `Bearer ${KEYS[name]}`);
      assert.is(upstream.seen.at(-1)?.scheme, scheme);
    }
    const [alphaAdmin, betaAdmin] = [await curl('alpha', url('/admin')), await curl('beta', url('/admin'))];
    assert.is(alphaAdmin.stdout, 'not for alpha\n451');
    assert.match(betaAdmin.stdout, /\n200$/);
  });
}

egress('the sandbox cannot keep its own value of an injected header', async () => {
  await curl('alpha', http('/v1/x'), '-H', 'Authorization: Bearer mine', '-H', 'authorization: Bearer second');
  assert.is(upstream.seen.at(-1)?.headers['authorization'], `Bearer ${KEYS.alpha}`);
});

egress('TRACE, by which a server sends back what it got, carries no credential', async () => {
  for (const url of [http('/v1/x'), https('/v1/x')]) {
    const before = upstream.seen.length;
    const answer = await curl('alpha', url, '-X', 'TRACE');
    assert.match(answer.stdout, /"reason":"credential-destination".*\n403$/s);
    assert.is(upstream.seen.length, before);
  }
  assert.match((await curl('alpha', http('/free'), '-X', 'TRACE')).stdout, /\n200$/);
});

egress('a forged Host reaches nothing', async () => {
  const before = upstream.seen.length;
  const answer = await curl('alpha', http('/v1/x'), '-H', 'Host: other.example.test');
  assert.match(answer.stdout, /\n403$/);
  assert.is(upstream.seen.length, before);
});

egress('headers that choose tables and plans cannot be sent from inside', async () => {
  const forged = [
    'x-agents-scope: i:x',
    'x-agents-uid: x',
    'x-sandgate-plan: x',
    'x-envoy-original-dst-host: 127.0.0.1:1',
  ];
  const answer = await curl('alpha', http('/admin'), ...forged.flatMap((header) => ['-H', header]));
  assert.is(answer.stdout, 'not for alpha\n451');
  await curl('alpha', http('/plain'), ...forged.flatMap((header) => ['-H', header]));
  const leaked = Object.keys(upstream.seen.at(-1)?.headers ?? {}).filter((name) =>
    /^x-(agents|sandgate|envoy)/.test(name),
  );
  assert.equal(leaked, []);
});

for (const [what, url] of [
  ['an address that no policy lists', () => `http://127.0.0.1:${upstream.httpPort}/`],
  ['another loopback address', () => `http://127.1.2.3:${upstream.httpPort}/`],
  ['a name that no policy allows', () => `http://other.example.test:${upstream.httpPort}/`],
  ['the metadata address', () => 'http://240.255.0.1/'],
  ['the proxy itself', () => 'http://127.0.0.1:15001/'],
] as const) {
  egress(`${what} is refused, and nothing arrives`, async () => {
    const before = upstream.connections();
    const answer = await curl('alpha', url());
    assert.is.not(answer.status, 0, answer.stdout);
    assert.is(upstream.connections(), before);
  });
}

egress('an odd spelling of a blocked path is blocked, and an allowed odd path arrives as sent', async () => {
  for (const path of [
    '//admin',
    '/x/../admin',
    '/%61dmin',
    '/x%2f..%2fadmin',
    '/admin;a=b',
    '/%2561dmin',
    '/%25252561dmin',
  ]) {
    const answer = await curl('alpha', http(path), '--path-as-is');
    assert.is(answer.stdout, 'not for alpha\n451', path);
  }
  await curl('alpha', http('/a//b/%2e%2e/c;d'), '--path-as-is');
  assert.is(upstream.seen.at(-1)?.path, '/a//b/%2e%2e/c;d');
});

egress('a rotated Secret is in the next request', async () => {
  const key = { namespace: 'default', name: 'beta-key' };
  await plane.store.patch('Secret', key, { type: 'merge', body: { stringData: { apiKey: 'rotated-0001' } } });
  await until('the new key', 5000, async () => {
    await curl('beta', https('/v1/rotated'));
    return upstream.seen.at(-1)?.headers['authorization'] === 'Bearer rotated-0001';
  });
});

egress('exec passes on output, status, signals and a missing program', async () => {
  const exec = (...command: readonly string[]) => plane.sandgate('exec', 'default/alpha', '--', ...command);
  assert.is((await exec('echo', '-n', '--', 'a b')).stdout, '-- a b');
  assert.is((await exec('sh', '-c', 'echo no >&2; exit 7')).status, 7);
  assert.is((await exec('sh', '-c', 'kill -KILL $$')).status, 137);
  assert.is((await exec('/no/such/program')).status, 127);
  assert.is((await plane.sandgate('exec', 'default/nobody', '--', 'true')).status, 1);
});

egress('explain agrees, and the log names policy, rule and executor', async () => {
  const explained = await plane.sandgate('explain', '--sandbox', 'default/alpha', https('/admin'), '-o', 'json');
  const { l7, l4, tls, executor } = JSON.parse(explained.stdout) as Record<string, Record<string, unknown>>;
  assert.is(l7?.['action'], 'block');
  assert.is(l7?.['status'], 451);
  assert.is(l4?.['action'], 'allow');
  assert.is(tls as unknown, 'intercepted');
  assert.is(executor as unknown, 'envoy');
  await until('the log', 5000, async () => {
    const { stdout } = await plane.sandgate('logs', 'default/alpha', '-o', 'json');
    return stdout.split('\n').some((line) => {
      const record = (line === '' ? {} : JSON.parse(line)) as Record<string, unknown>;
      return record['action'] === 'block' && record['rule'] === 'blocked' && record['executor'] === 'envoy';
    });
  });
});

egress('no credential is in any output', async () => {
  const outputs = await Promise.all([
    plane.sandgate('compile', '-o', 'json'),
    plane.sandgate('status', '-o', 'json'),
    plane.sandgate('logs', 'default/alpha', '-o', 'json'),
    plane.sandgate('get', 'secret', '-o', 'yaml'),
    plane.sandgate('get', 'sandbox', '-o', 'json'),
  ]);
  const alpha = await plane.store.get('Sandbox', { namespace: 'default', name: 'alpha' });
  const token = alpha.metadata.annotations?.['agents.kruise.io/runtime-access-token'] ?? 'absent';
  const text = outputs.map(({ stdout, stderr }) => stdout + stderr).join('\n') + plane.log();
  for (const needle of [KEYS.alpha, KEYS.beta, 'rotated-0001', token, 'PRIVATE KEY', 'eyJhbGciOi']) {
    assert.not.ok(text.includes(needle), needle.slice(0, 8));
  }
});

egress.run();
