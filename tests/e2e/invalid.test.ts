import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane, until } from './plane.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** Bad objects, refused by `apply` and put into the directory by hand (D2, Done when 4). */
const invalid = suite('invalid objects');
let plane: TestPlane;
let upstream: Upstream;

const block = (path: string) => ({
  name: 'stop',
  match: [{ domains: [API], paths: [{ type: 'Prefix', value: path }] }],
  actions: { block: { statusCode: 418, body: 'kept' } },
});

/** Each with the field and a word of the reason that the error names. */
const BAD: Readonly<Record<string, readonly [object: object, field: string, reason: RegExp]>> = {
  'a wrong regex': [
    securityProfile('bad', 'victim', [
      { name: 'r', match: [{ domains: [API], paths: [{ type: 'Regex', value: '(' }] }], actions: { block: {} } },
    ]),
    'spec.rules[0].match[0].paths[0].value',
    /regular expression/,
  ],
  'an unknown field': [
    securityProfile('bad', 'victim', [{ name: 'r', match: [{ domains: [API], pahts: [] }], actions: { block: {} } }]),
    'spec.rules[0].match[0].pahts',
    /unknown/,
  ],
  'an unknown peer': [
    trafficPolicy('bad', 'victim', [{ action: 'allow', to: [{ country: 'NL' }] }]),
    'spec.egress.rules[0].to[0]',
    /exactly one of|unknown/,
  ],
  'a reject whose range cannot be read': [
    trafficPolicy('bad', 'victim', [{ action: 'reject', to: [{ cidr: '10.0.0.300/8' }] }]),
    'spec.egress.rules[0].to[0].cidr',
    /no address range/,
  ],
  'a reject without peers': [
    trafficPolicy('bad', 'victim', [{ action: 'reject' }]),
    'spec.egress.rules[0].to',
    /is required/,
  ],
  'a block of a path that no request has': [
    securityProfile('bad', 'victim', [
      { name: 'r', match: [{ domains: [API], paths: [{ value: 'admin' }] }], actions: { block: {} } },
    ]),
    'spec.rules[0].match[0].paths[0].value',
    /must begin with/,
  ],
  'a domain with a port': [
    securityProfile('bad', 'victim', [{ name: 'r', match: [{ domains: [`${API}:443`] }], actions: { block: {} } }]),
    'spec.rules[0].match[0].domains[0]',
    /port/,
  ],
};

const files = () => ({
  'sandgate.yaml': settings(),
  'ca.pem': upstream.caPem,
  'sandboxes.yaml': yaml(sandbox('victim'), sandbox('bystander')),
  'policies.yaml': yaml(
    trafficPolicy('victim-egress', 'victim', [{ action: 'allow', to: [{ fqdn: API }] }]),
    trafficPolicy('bystander-egress', 'bystander', [{ action: 'allow', to: [{ fqdn: API }] }]),
  ),
  'kept.yaml': yaml(securityProfile('kept', 'bystander', [block('/kept')])),
});

invalid.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({ files: files() });
  await Promise.all([plane.phase('victim', 'Running'), plane.phase('bystander', 'Running')]);
});

invalid.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

async function fetch(name: string, path: string): Promise<{ readonly code: string; readonly body: string }> {
  const url = `http://${API}:${upstream.httpPort}${path}`;
  const { stdout } = await plane.exec(name, 'curl', '-s', '--max-time', '5', '-w', '\n%{http_code}', url);
  const cut = stdout.lastIndexOf('\n');
  return { code: stdout.slice(cut + 1), body: stdout.slice(0, cut) };
}

async function reason(name: string): Promise<string> {
  const answer = (await plane.admin('POST', '/explain', {
    sandbox: `default/${name}`,
    url: `http://${API}:${upstream.httpPort}/`,
  })) as { l4: { reason: string; rule: { name: string } | null } };
  return `${answer.l4.reason} ${answer.l4.rule?.name ?? ''}`;
}

for (const [what, [object, field, words]] of Object.entries(BAD)) {
  invalid(`apply refuses ${what} with file, object, field and reason, and stores nothing`, async () => {
    const file = join(plane.dir, 'new.txt');
    await writeFile(file, yaml(object));
    const { status, stderr } = await plane.sandgate('apply', '-f', file);
    assert.is(status, 1);
    assert.match(stderr, 'new.txt');
    assert.match(stderr, /bad/);
    assert.ok(stderr.includes(field), stderr);
    assert.match(stderr, words);
    const { kind } = object as KubeObject;
    assert.is((await plane.store.list(kind)).items.filter(({ metadata }) => metadata.name === 'bad').length, 0);
  });

  invalid(`${what}, put there by hand, denies exactly the sandbox that it selects`, async () => {
    const before = upstream.seen.length;
    await writeFile(join(plane.dir, 'bad.yaml'), yaml(object), { mode: 0o600 });
    await until('the denial', 5000, async () => (await reason('victim')) === 'policy-invalid bad');
    await until('the denial at the sidecar', 5000, async () => (await fetch('victim', '/')).code !== '200');
    const seen = upstream.seen.length;
    await fetch('victim', '/');
    assert.is(upstream.seen.length, seen);
    assert.is((await fetch('bystander', '/')).code, '200');
    assert.ok(upstream.seen.length > before);
    const { kind } = object as KubeObject;
    await until('the condition', 5000, async () => {
      const stored = await plane.store.get(kind, { namespace: 'default', name: 'bad' });
      const conditions =
        (stored.status as { conditions?: { type: string; status: string; message: string }[] } | undefined)
          ?.conditions ?? [];
      return conditions.some(
        ({ type, status, message }) => type === 'Accepted' && status === 'False' && message.includes(field),
      );
    });
    await rm(join(plane.dir, 'bad.yaml'));
    await until('the end of the denial', 5000, async () => (await fetch('victim', '/')).code === '200');
  });
}

invalid('a broken change keeps the last good form in force, also after a kill and a restart', async () => {
  assert.is((await fetch('bystander', '/kept')).code, '418');
  // What every Envoy has taken is written down; from then on the change may be broken.
  await until('the last good form', 5000, async () => {
    const { items } = await plane.store.list('ControllerRevision');
    return items.some(({ metadata }) => metadata.ownerReferences?.[0]?.name === 'kept');
  });
  const [broken] = BAD['a wrong regex']!;
  const text = yaml({
    ...broken,
    metadata: { name: 'kept' },
    spec: { ...((broken as KubeObject).spec as object), selector: { matchLabels: { app: 'bystander' } } },
  });
  await writeFile(join(plane.dir, 'kept.yaml'), text, { mode: 0o600 });
  await new Promise((resolve) => setTimeout(resolve, 800));
  assert.is((await fetch('bystander', '/kept')).code, '418');
  assert.is((await fetch('bystander', '/free')).code, '200');
  await plane.stop('SIGKILL');
  plane = await TestPlane.start({ files: {}, dir: plane.dir });
  await Promise.all([plane.phase('victim', 'Running'), plane.phase('bystander', 'Running')]);
  await until('traffic', 10_000, async () => (await fetch('bystander', '/free')).code === '200');
  assert.is((await fetch('bystander', '/kept')).code, '418');
  assert.is((await fetch('victim', '/')).code, '200');
});

invalid.run();
