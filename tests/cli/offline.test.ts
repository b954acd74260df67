import { chmod, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { run } from '../e2e/plane.ts';

/** Commands on a directory in which nothing runs (D16), and the exit status of every kind of mistake. */
const offline = suite('commands without a plane');
const main = join(import.meta.dirname, '..', '..', 'cli', 'main.ts');
let dir: string;

offline.before.each(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sg-cli-'));
  await writeFile(join(dir, 'sandgate.yaml'), settings().replace('trust: [ca.pem]\n', ''));
  await writeFile(
    join(dir, 'policies.yaml'),
    yaml(
      sandbox('demo'),
      trafficPolicy('egress', 'demo', [{ action: 'allow', to: [{ fqdn: API }], ports: [{ port: 443 }] }]),
      securityProfile('requests', 'demo', [
        { name: 'stop', match: [{ domains: [API], paths: [{ value: '/admin' }] }], actions: { block: {} } },
      ]),
    ),
  );
});

offline.after.each(() => rm(dir, { recursive: true, force: true }));

const sandgate = (...args: readonly string[]) => run(process.execPath, [main, ...args], { SANDGATE_DIR: dir });
const json = (text: string) => JSON.parse(text) as Record<string, unknown>;

offline('explain reads the manifests, and writes nothing', async () => {
  const blocked = await sandgate('explain', '--sandbox', 'default/demo', `https://${API}/admin`, '-o', 'json');
  assert.is(blocked.status, 0, blocked.stderr);
  const {
    sandbox: name,
    policySet,
    tls,
    l4,
    l7,
    executor,
  } = json(blocked.stdout) as Record<string, Record<string, unknown>>;
  assert.is(name as unknown, 'default/demo');
  assert.match(policySet as unknown as string, /^pset-[0-9a-f]+$/);
  assert.is(tls as unknown, 'intercepted');
  assert.equal(l4, {
    action: 'allow',
    reason: 'rule',
    rule: { kind: 'TrafficPolicy', namespace: 'default', name: 'egress', index: 0 },
  });
  assert.is(l7?.['action'], 'block');
  assert.is(executor as unknown, 'envoy');
  const port = await sandgate('explain', '--sandbox', 'default/demo', `tcp://${API}:22`, '-o', 'json');
  assert.is((json(port.stdout)['l4'] as { reason: string }).reason, 'default');
  assert.equal((await readdir(dir)).sort(), ['policies.yaml', 'sandgate.yaml']);
});

offline('explain without a URL tells the effective policy', async () => {
  const { stdout } = await sandgate('explain', '--sandbox', 'demo');
  assert.match(stdout, /TrafficPolicy default\/egress/);
  assert.match(stdout, /SecurityProfile default\/requests rule stop: block/);
});

offline('an unknown sandbox is an error that a program can read', async () => {
  const { status, stdout } = await sandgate('explain', '--sandbox', 'default/nobody', 'http://x.test/', '-o', 'json');
  assert.is(status, 1);
  assert.is((json(stdout)['error'] as { code: string }).code, 'not-found');
});

offline('compile prints the resources of every role, status every policy', async () => {
  const compiled = json((await sandgate('compile', '-o', 'json')).stdout);
  assert.equal(Object.keys(compiled), ['egress', 'ingress', 'sidecars']);
  const status = json((await sandgate('status', '-o', 'json')).stdout) as {
    policies: { name: string; inForce: string }[];
  };
  assert.equal(status.policies.map(({ name, inForce }) => `${name} ${inForce}`).sort(), [
    'egress stored',
    'requests stored',
  ]);
});

offline('compile of one role, and of one sandbox', async () => {
  const whole = json((await sandgate('compile', '-o', 'json')).stdout) as Record<string, { name: string }[]>;
  const egress = json((await sandgate('compile', '--role', 'egress', '-o', 'json')).stdout);
  assert.equal(egress, { egress: whole['egress'] });
  const file = join(dir, 'other.yaml');
  await writeFile(file, yaml(sandbox('other')));
  const own = json((await sandgate('compile', '--sandbox', 'demo', '-o', 'json')).stdout) as typeof whole;
  const all = json((await sandgate('compile', '-o', 'json')).stdout) as typeof whole;
  assert.is(Object.keys(all['sidecars']!).length, 2);
  assert.is(Object.keys(own['sidecars']!).length, 1);
  const names = (plane: typeof whole, start: string) =>
    plane['egress']!.map(({ name }) => name).filter((name) => name.startsWith(start));
  for (const prefix of ['i:', 'eset-', 'pset-', 'in-']) {
    assert.is(names(all, prefix).length > names(own, prefix).length, true, prefix);
    assert.ok(names(own, prefix).length > 0, prefix);
  }
  assert.is((await sandgate('compile', '--sandbox', 'nobody')).status, 1);
  assert.is((await sandgate('compile', '--role', 'nothing')).status, 2);
});

offline('explain tells of an MCP call its method, its tool and what becomes of it', async () => {
  const tools = {
    name: 'tools',
    match: [{ domains: [API], paths: [{ type: 'Prefix', value: '/mcp' }] }],
    actions: {
      mcpToolPolicy: {
        defaultAction: 'deny',
        rules: [{ method: 'tools/call', toolNames: ['add'], action: 'allow' }],
      },
    },
  };
  await writeFile(join(dir, 'mcp.yaml'), yaml(securityProfile('mcp', 'demo', [tools])));
  const call = async (tool: string) => {
    const body = join(dir, 'call.json');
    await writeFile(body, JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool } }));
    const args = ['-X', 'POST', `https://${API}/mcp`, '-H', 'mcp-protocol-version: 2025-11-25', '--data', body];
    return (await sandgate('explain', '--sandbox', 'demo', ...args)).stdout;
  };
  assert.match(await call('add'), /request: forward[\s\S]*MCP: tools\/call of tool add: allow/);
  assert.match(await call('rm'), /request: deny \(mcp\)[\s\S]*MCP: tools\/call of tool rm: deny/);
  const missing = await sandgate('explain', '--sandbox', 'demo', `https://${API}/mcp`, '--data', join(dir, 'none'));
  assert.is(missing.status, 1);
  assert.match(missing.stderr, /--data .*none cannot be read: ENOENT/);
});

offline('doctor says that Envoy is missing and how to get it, and does not', async () => {
  const cache = join(dir, 'cache');
  const env = { SANDGATE_CACHE: cache, SANDGATE_ENVOY: '', PATH: '/usr/bin:/bin' };
  const { status, stdout } = await run(process.execPath, [main, 'doctor'], env);
  assert.is(status, 1);
  assert.match(stdout, /^MISSING envoy: /m);
  assert.match(stdout, /local mode cannot run/);
  assert.match(stdout, /mend it with:\n.*sandgate doctor --install-envoy\n$/);
  assert.not.ok((await readdir(dir)).includes('cache'));
  const other = await run(process.execPath, [main, 'doctor', '-o', 'json'], { ...env, SANDGATE_ENVOY: '/bin/true' });
  assert.is(other.status, 1);
  const { ok, fix } = json(other.stdout);
  assert.is(ok, false);
  assert.match(fix as string, /unset SANDGATE_ENVOY$/);
});

offline('apply stores into the directory, and says what it did', async () => {
  const file = join(dir, 'more.txt');
  await writeFile(
    file,
    yaml(securityProfile('more', 'demo', [{ name: 'x', match: [{ domains: ['*'] }], actions: {} }])),
  );
  assert.match((await sandgate('apply', '-f', file, '--dry-run')).stdout, /created \(dry run\)/);
  assert.match((await sandgate('apply', '-f', file)).stdout, /SecurityProfile default\/more created/);
  assert.match((await sandgate('apply', '-f', file)).stdout, /unchanged/);
  assert.match((await sandgate('get', 'securityprofiles', '-o', 'name')).stdout, /more/);
  assert.match((await sandgate('delete', 'sp', 'more')).stdout, /deleted/);
  assert.not.match((await sandgate('get', 'sp', '-o', 'name')).stdout, /more/);
});

/** What stored would only leave a rule out is refused by apply too (D2). */
const REFUSED: readonly [string, object, string][] = [
  [
    'an unparsable cidr',
    trafficPolicy('bad', 'demo', [{ action: 'allow', to: [{ cidr: '10.0.0.300/8' }] }]),
    'spec.egress.rules[0].to[0].cidr',
  ],
  [
    'a rule without peers',
    trafficPolicy('bad', 'demo', [{ action: 'allow', ports: [{ port: 1 }] }]),
    'spec.egress.rules[0]',
  ],
  [
    'ICMP with a port',
    trafficPolicy('bad', 'demo', [
      { action: 'allow', to: [{ cidr: '10.0.0.0/8' }], ports: [{ protocol: 'ICMP', port: 8 }] },
    ]),
    'spec.egress.rules[0].ports[0]',
  ],
];

for (const [what, object, field] of REFUSED) {
  offline(`apply refuses ${what}`, async () => {
    const file = join(dir, 'bad.txt');
    await writeFile(file, yaml(object));
    const { status, stderr } = await sandgate('apply', '-f', file);
    assert.is(status, 1);
    assert.ok(stderr.includes(`bad.txt:1: TrafficPolicy default/bad: ${field}`), stderr);
  });
}

offline('secrets are never shown', async () => {
  const file = join(dir, 'secret.yaml');
  await writeFile(
    file,
    yaml({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { apiKey: 'needle-1' } }),
  );
  await chmod(file, 0o600);
  for (const format of ['yaml', 'json', 'wide']) {
    const { stdout, status } = await sandgate('get', 'secret', 's', '-o', format);
    assert.is(status, 0);
    assert.not.match(stdout, /needle-1/);
  }
});

offline('wrong usage is status 2, a failure is status 1, and neither is a stack trace', async () => {
  for (const args of [
    ['get'],
    ['nonsense'],
    ['get', 'nonsense'],
    ['apply'],
    ['explain', 'http://x/'],
    ['up', '--api', '127.0.0.1:1'],
    ['up', '--without', 'x'],
    ['up', '--ingress', 'x'],
  ]) {
    const { status, stderr } = await sandgate(...args);
    assert.is(status, 2, `${args.join(' ')}: ${stderr}`);
    assert.not.match(stderr, /at .*\.ts:/);
  }
  for (const args of [
    ['get', 'sandbox', 'nobody'],
    ['logs', 'default/demo'],
    ['exec', 'default/demo', '--', 'true'],
    ['apply', '-f', '/no/such/file'],
    ['explain', '--sandbox', 'default/demo', 'ftp://x/'],
  ]) {
    const { status, stderr } = await sandgate(...args);
    assert.is(status, 1, `${args.join(' ')}: ${stderr}`);
    assert.not.match(stderr, /at .*\.ts:/);
  }
});

offline('every command has help with an example', async () => {
  const { stdout } = await sandgate('--help');
  const names = [...stdout.matchAll(/^ {2}([a-z-]+) /gm)]
    .map(([, name]) => name!)
    .filter((name) => !['help'].includes(name));
  assert.ok(names.length >= 18, names.join(' '));
  for (const name of names.filter((one) => one !== 'crds')) {
    const help = await sandgate(name, '--help');
    assert.is(help.status, 0);
    assert.match(help.stdout, /Example/, name);
  }
});

offline('crds prints the CRDs', async () => {
  const { stdout, status } = await sandgate('crds');
  assert.is(status, 0);
  assert.is(stdout.match(/^kind: CustomResourceDefinition$/gm)?.length, 5);
});

offline.run();
