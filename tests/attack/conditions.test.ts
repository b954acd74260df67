import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { TestPlane, until } from '../e2e/plane.ts';
import { startUpstream, type Upstream } from '../e2e/upstream.ts';

/** Conditions of a rule that stops requests: what slips by them, and what never could have held. */
const conditions = suite('conditions of a block');
let plane: TestPlane;
let upstream: Upstream;

const block = (match: object) => ({ name: 'stop', match: [match], actions: { block: { statusCode: 451 } } });

conditions.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'all.yaml': yaml(
        sandbox('asker'),
        trafficPolicy('asker-egress', 'asker', [{ action: 'allow', to: [{ fqdn: API }] }]),
        securityProfile('asker-requests', 'asker', [
          { ...block({ domains: [API], paths: [{ value: '/admin' }] }), name: 'paths' },
          block({ domains: [API], queryParams: [{ name: 'role', type: 'Prefix', value: 'admin' }] }),
        ]),
      ),
    },
  });
  await plane.phase('asker', 'Running');
});

conditions.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

async function get(target: string): Promise<string> {
  const url = `http://${API}:${upstream.httpPort}${target}`;
  const curl = ['curl', '-s', '-g', '--max-time', '8', '-o', '/dev/null', '-w', '%{http_code}'];
  return (await plane.exec('asker', ...curl, url)).stdout;
}

conditions('a query that some server reads as the blocked one is blocked', async () => {
  for (const query of [
    'role=admin',
    'a=1;role=admin',
    'role=x&role=admin',
    'r%6fle=%61dmin',
    'role=admin%',
    ';role=admin;',
  ]) {
    const before = upstream.seen.length;
    assert.is(await get(`/?${query}`), '451', query);
    assert.is(upstream.seen.length, before, query);
  }
  assert.is(await get('/?role=user;x=admin'), '200');
});

conditions('a path that some server reads as the blocked one is blocked, however often it decodes', async () => {
  for (const path of ['/%2561dmin', '/%25%36%31dmin', '/%25252561dmin', '/x/%252e%252e/admin', '/x%255c..%255cadmin']) {
    const before = upstream.seen.length;
    assert.is(await get(path), '451', path);
    assert.is(upstream.seen.length, before, path);
  }
  assert.is(await get('/100%25'), '200');
  assert.is(upstream.seen.at(-1)?.path, '/100%25');
});

conditions('apply refuses a block that could stop nothing, and a stored one denies and says why', async () => {
  const domains = ['api.*.test', 'b\u00fccher.example'];
  const profile = securityProfile('weak', 'asker', [block({ domains, paths: [{ value: 'admin' }], schemes: ['wss'] })]);
  const outside = join(plane.dir, 'weak.txt');
  await writeFile(outside, yaml(profile));
  const applied = await plane.sandgate('apply', '-f', outside);
  assert.is.not(applied.status, 0);
  for (const field of ['domains[0]', 'domains[1]', 'paths[0].value', 'schemes[0]']) {
    assert.match(applied.stderr + applied.stdout, `spec.rules[0].match[0].${field}`);
  }
  await writeFile(join(plane.dir, 'weak.yaml'), yaml(profile));
  await until('the condition', 8000, async () => {
    const stored = await plane.store.get('SecurityProfile', { namespace: 'default', name: 'weak' }).catch(() => null);
    const { conditions: list = [] } = (stored?.status ?? {}) as { conditions?: { type: string; message: string }[] };
    return list.some(({ type, message }) => type === 'Accepted' && message?.includes('domains[1]'));
  });
  await until('the denial', 8000, async () => (await get('/')) !== '200');
  await rm(join(plane.dir, 'weak.yaml'));
  await until('the end of the denial', 8000, async () => (await get('/')) === '200');
});

conditions.run();
