import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { contents, directory, sandgate } from './support.ts';

/** `apply`, `get` and `delete` on a directory in which nothing runs. */
const objects = suite('objects of a directory');
let dir: string;

objects.before.each(async () => {
  dir = await directory({ 'plane/sandgate.yaml': 'domain: sbx.test\n' });
});
objects.after.each(() => rm(dir, { recursive: true, force: true }));

const plane = () => join(dir, 'plane');
const on = (args: readonly string[], input = '') => sandgate([...args, '--dir', plane()], { input });

const policy = (rest: string) => `apiVersion: agents.kruise.io/v1alpha1
kind: TrafficPolicy
metadata: { name: egress${rest} }
spec:
  selector: { matchLabels: { app: demo } }
  egress: { rules: [{ action: allow, to: [{ fqdn: a.test }] }] }
`;

const sandboxManifest = (metadata: string) => `apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata: { name: demo, ${metadata} }
spec: { template: { spec: { containers: [{ name: web, image: x }] } } }
`;

objects('apply warns of what has no effect, and stores it all the same', async () => {
  const rule = { name: 'r', match: [{ domains: ['a.test'] }], actions: { bypass: true, block: {} } };
  const spec = { selector: {}, rules: [rule] };
  const profile = { apiVersion: 'agents.kruise.io/v1alpha1', kind: 'SecurityProfile', metadata: { name: 'w' }, spec };
  const { status, stdout, stderr } = await on(['apply', '-f', '-'], JSON.stringify(profile));
  assert.is(status, 0);
  assert.is(stdout, 'SecurityProfile default/w created\n');
  assert.match(
    stderr,
    /^warning: standard input:1: SecurityProfile default\/w: spec\.rules\[0\]\.actions\.block: has no effect/,
  );
});

objects('apply says created, unchanged, configured; what a manifest leaves out goes away', async () => {
  const labelled = policy(', labels: { a: b }');
  assert.is((await on(['apply', '-f', '-'], labelled)).stdout, 'TrafficPolicy default/egress created\n');
  assert.is((await on(['apply', '-f', '-'], labelled)).stdout, 'TrafficPolicy default/egress unchanged\n');
  assert.is((await on(['apply', '-f', '-'], policy(''))).stdout, 'TrafficPolicy default/egress configured\n');
  const { metadata } = JSON.parse((await on(['get', 'tp', 'egress', '-o', 'json'])).stdout);
  assert.is(Object.keys(metadata.labels ?? {}).length, 0);
});

objects('a dry run says what would change and writes nothing', async () => {
  const { status, stdout } = await on(['apply', '--dry-run', '-f', '-'], policy(''));
  assert.is(status, 0);
  assert.match(stdout, /^TrafficPolicy default\/egress created/);
  assert.equal(Object.keys(await contents(plane())), ['sandgate.yaml']);
});

objects('get reads a directory that never had a plane, and writes nothing to it', async () => {
  const given = await directory({ 'policy.yaml': policy('') });
  try {
    const { status, stdout } = await sandgate(['get', 'trafficpolicies', '-o', 'name', '--dir', given]);
    assert.is(status, 0);
    assert.is(stdout, 'trafficpolicy/egress\n');
    assert.equal(Object.keys(await contents(given)), ['policy.yaml']);
  } finally {
    await rm(given, { recursive: true, force: true });
  }
});

objects('a directory is read whatever its path looks like, hidden files and settings left out', async () => {
  const hidden = await directory({
    '.conf/sub/policy.yaml': policy(''),
    '.conf/.hidden/other.yaml': policy('-hidden'),
    '.conf/sandgate.yaml': '{}',
    'work/x': '',
  });
  try {
    for (const [cwd, path] of [
      [join(hidden, 'work'), '../.conf'],
      [join(hidden, 'work'), '../work/../.conf'],
      [hidden, join(hidden, '.conf')],
    ] as const) {
      const ran = await sandgate(['apply', '--dry-run', '-f', path, '--dir', plane()], { cwd });
      assert.match(ran.stdout, /^TrafficPolicy default\/egress created[^\n]*\n$/, `${path} ${ran.stderr}`);
    }
  } finally {
    await rm(hidden, { recursive: true, force: true });
  }
});

objects('input without objects is an error and not a success', async () => {
  const { status, stderr } = await on(['apply', '-f', '-'], '# nothing\n---\n');
  assert.is(status, 1);
  assert.match(stderr, /^error: standard input: .*no objects/);
});

objects('the items of a List are objects like others, each named by its own line', async () => {
  const item = (name: string, action: string) =>
    `- apiVersion: agents.kruise.io/v1alpha1\n  kind: TrafficPolicy\n  metadata: { name: ${name} }\n  spec: { selector: {}, egress: { rules: [{ action: ${action}, to: [{ fqdn: a.test }] }] } }\n`;
  const list = (kind: string, action: string) =>
    `apiVersion: v1\nkind: ${kind}\nitems:\n${item('one', 'allow')}${item('two', action)}`;
  const bad = await on(['apply', '-f', '-'], list('List', 'maybe'));
  assert.is(bad.status, 1);
  assert.match(bad.stderr, /^error: standard input:8: TrafficPolicy default\/two: spec\.egress\.rules\[0\]\.action/);
  const good = await on(['apply', '-f', '-'], list('TrafficPolicyList', 'reject'));
  assert.is(good.stdout, 'TrafficPolicy default/one created\nTrafficPolicy default/two created\n', good.stderr);
  assert.is((await on(['delete', '-f', '-'], list('List', 'allow'))).status, 0);
});

objects('an object that is there twice is refused, with both places', async () => {
  for (const command of ['apply', 'delete']) {
    const { status, stderr } = await on([command, '-f', '-'], `${policy('')}---\n${policy('')}`);
    assert.is(status, 1, command);
    assert.is(
      stderr,
      'error: standard input:7: TrafficPolicy default/egress: is already at standard input:1\n',
      command,
    );
  }
  assert.equal(Object.keys(await contents(plane())), ['sandgate.yaml']);
});

objects('what get prints in place of a secret is never stored as its value', async () => {
  const secret = 'apiVersion: v1\nkind: Secret\nmetadata: { name: key }\nstringData: { k: value-of-k }\n';
  const token = 'annotations: { agents.kruise.io/runtime-access-token: 0123456789abcdef0123456789abcdef }';
  assert.is((await on(['apply', '-f', '-'], `${secret}---\n${sandboxManifest(token)}`)).status, 0);
  for (const [kind, field] of [
    ['secret', 'stringData.k'],
    ['sandbox', 'metadata.annotations["agents.kruise.io/runtime-access-token"]'],
  ] as const) {
    const printed = (await on(['get', kind, '-o', 'yaml'])).stdout;
    assert.match(printed, /\[redacted\]/);
    assert.not.match(printed, /value-of-k|0123456789abcdef/);
    const { status, stderr } = await on(['apply', '-f', '-'], printed);
    assert.is(status, 1, kind);
    assert.ok(stderr.includes(`: ${field}: `), stderr);
  }
});

objects('a token stays hidden until it is asked for, and a copy of a manifest in an annotation always', async () => {
  const copy = `kubectl.kubernetes.io/last-applied-configuration: '{"stringData":{"k":"leaked"}}'`;
  const token = 'agents.kruise.io/runtime-access-token: 0123456789abcdef0123456789abcdef';
  const secret = `apiVersion: v1\nkind: Secret\nmetadata: { name: key, annotations: { ${copy} } }\nstringData: { k: leaked }\n`;
  await on(['apply', '-f', '-'], `${secret}---\n${sandboxManifest(`annotations: { ${token} }`)}`);
  for (const format of ['yaml', 'json', 'wide', 'name'] as const) {
    const shown = (await on(['get', 'secret', '-o', format])).stdout + (await on(['get', 'sbx', '-o', format])).stdout;
    assert.not.match(shown, /leaked|0123456789abcdef/, format);
  }
  const asked = await on(['get', 'sandbox', 'demo', '-o', 'yaml', '--show-token']);
  assert.match(asked.stdout, /runtime-access-token: "?0123456789abcdef0123456789abcdef/);
});

objects('a Secret of a wrong shape, put there by hand, is hidden all the same', async () => {
  const given = await directory({
    'a.yaml': 'apiVersion: v1\nkind: Secret\nmetadata: { name: a }\ndata: leaked\n',
    'b.yaml': 'apiVersion: v1\nkind: Secret\nmetadata: { name: b }\nstringData: [leaked]\n',
  });
  try {
    for (const format of ['yaml', 'json']) {
      const { stdout } = await sandgate(['get', 'secrets', '-o', format, '--dir', given]);
      assert.match(stdout, /name"?: "?a/);
      assert.not.match(stdout, /leaked/);
    }
  } finally {
    await rm(given, { recursive: true, force: true });
  }
});

objects('explain of a directory whose plane has stopped keeps the order in which policies were made', async () => {
  const profile = (name: string) => `apiVersion: agents.kruise.io/v1alpha1
kind: SecurityProfile
metadata: { name: ${name} }
spec:
  selector: { matchLabels: { app: demo } }
  rules: [{ name: ${name}, match: [{ domains: [a.test] }], actions: { block: {} } }]
`;
  const demo = `apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata: { name: demo }
spec: { template: { metadata: { labels: { app: demo } }, spec: { containers: [{ name: web, image: x }] } } }
`;
  assert.is((await on(['apply', '-f', '-'], `${demo}---\n${profile('zz')}`)).status, 0);
  await new Promise((resolve) => setTimeout(resolve, 1100)); // Creation times have whole seconds.
  assert.is((await on(['apply', '-f', '-'], profile('aa'))).status, 0);
  const { stdout } = await on(['explain', '--sandbox', 'demo', '-o', 'json']);
  const { l7 } = JSON.parse(stdout) as { l7: { rule: string }[] };
  assert.equal(
    l7.map(({ rule }) => rule),
    ['zz', 'aa'],
  );
});

objects('delete removes objects, and says what is not there', async () => {
  await on(['apply', '-f', '-'], policy(''));
  assert.is((await on(['delete', 'tp', 'egress'])).stdout.split(' deleted')[0], 'TrafficPolicy default/egress');
  const again = await on(['delete', 'tp', 'egress']);
  assert.is(again.status, 1);
  assert.match(again.stderr, /egress/);
  assert.is((await on(['get', 'tp', 'egress'])).status, 1);
});

objects('delete does not call something deleted that a finalizer still holds', async () => {
  const finalizers = 'finalizers: [agents.kruise.io/sandbox]';
  await on(['apply', '-f', '-'], sandboxManifest(finalizers));
  const { stdout, stderr } = await on(['delete', 'sandbox', 'demo', '--timeout', '1']);
  assert.not.match(stdout, /demo deleted/);
  assert.match(stdout + stderr, /agents\.kruise\.io\/sandbox/);
});

objects('wrong usage is status 2', async () => {
  for (const args of [
    ['apply', '-f', '-', '--timeout', 'soon'],
    ['apply'],
    ['get', 'planets'],
    ['get', 'sandbox', '-o', 'xml'],
    ['delete', 'sandbox'],
    ['delete', 'planet', 'x'],
    ['frobnicate'],
    ['get', 'sandbox', '--frobnicate'],
  ]) {
    const { status, stdout, stderr } = await on(args, policy(''));
    assert.is(status, 2, `${args.join(' ')}: ${stdout}${stderr}`);
    assert.is.not(stderr, '');
  }
});

objects('every command has help with an example', async () => {
  const { stdout } = await sandgate(['--help']);
  for (const name of [
    ...['apply', 'delete', 'get', 'exec', 'explain', 'compile', 'status', 'logs', 'doctor', 'crds', 'up'],
  ]) {
    assert.match(stdout, new RegExp(`^  ${name}\\b`, 'm'));
    const help = await sandgate([name, '--help']);
    assert.is(help.status, 0);
    assert.match(help.stdout, new RegExp(`Example:\\n.*sandgate ${name}`), name);
  }
});

objects.run();
