import { rm } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { DecisionChange } from '../../cli/decision-diff.ts';
import type { Difference } from '../../cli/difference.ts';
import { listChange } from '../../cli/list-diff.ts';
import { credentialRule, sandbox, secret, securityProfile, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { contents, directory, sandgate } from './support.ts';

/** `diff` on a directory in which nothing runs: what applying would change, and nothing is written. */
const diff = suite('diff');
let dir: string;

const allow = (fqdn: string) => ({ action: 'allow', to: [{ fqdn }], ports: [{ port: 443 }] });
const stop = (path: string) => ({
  name: 'stop',
  match: [{ domains: ['api.example.test'], paths: [{ type: 'Prefix', value: path }] }],
  actions: { block: {} },
});

diff.before.each(async () => {
  dir = await directory({
    'all.yaml': yaml(
      sandbox('demo'),
      sandbox('other'),
      trafficPolicy('egress', 'demo', [allow('api.example.test'), allow('b.example.test')]),
      securityProfile('requests', 'demo', [stop('/admin'), credentialRule('key', '/v1')]),
      secret('key', 'needle-before'),
    ),
  });
});
diff.after.each(() => rm(dir, { recursive: true, force: true }));

const run = (objects: readonly object[], ...args: readonly string[]) =>
  sandgate(['diff', '-f', '-', '--dir', dir, ...args], { input: yaml(...objects) });

async function difference(...objects: readonly object[]): Promise<Difference> {
  const { status, stdout, stderr } = await run(objects, '-o', 'json');
  assert.is(status, 0, stderr);
  return JSON.parse(stdout) as Difference;
}

const rulesOf = ({ l4 }: DecisionChange) => ({
  added: l4.added.map(({ index, rule }) => [index, rule]),
  removed: l4.removed.map(({ index, rule }) => [index, rule]),
  changed: l4.changed.map(({ before, after }) => [before.rule, after.rule]),
  reordered: l4.reordered,
});

diff('a rule that is put before others is one addition, for exactly the sandboxes that are selected', async () => {
  const reject = { action: 'reject', to: [{ cidr: '192.0.2.0/24' }] };
  const { objects, decisions, resources } = await difference(
    trafficPolicy('egress', 'demo', [reject, allow('api.example.test'), allow('b.example.test')]),
  );
  assert.equal(
    objects.map(({ kind, namespace, name, change }) => [kind, namespace, name, change]),
    [['TrafficPolicy', 'default', 'egress', 'configured']],
  );
  assert.equal(
    decisions.map((decision) => decision.sandbox),
    ['default/demo'],
  );
  assert.equal(rulesOf(decisions[0]!), { added: [[0, reject]], removed: [], changed: [], reordered: false });
  assert.equal(decisions[0]!.l7, { added: [], removed: [], changed: [], reordered: false });
  assert.equal(
    resources.sidecars.map(({ sandboxes }) => sandboxes),
    [['default/demo']],
  );
  assert.ok(resources.sidecars[0]!.changed.some(({ name }) => name === 'outbound'));
  assert.equal(resources.ingress, { added: [], changed: [], removed: [] });
});

diff('an order of rules that changes is said, though every rule stays', async () => {
  const { decisions } = await difference(
    trafficPolicy('egress', 'demo', [allow('b.example.test'), allow('api.example.test')]),
  );
  assert.equal(rulesOf(decisions[0]!), { added: [], removed: [], changed: [], reordered: true });
});

diff('a changed request rule is shown before and after, a removed one and the lost default deny too', async () => {
  const { decisions } = await difference(
    securityProfile('requests', 'demo', [stop('/private')]),
    trafficPolicy('egress', 'nobody', []),
  );
  const [{ l7, defaultDeny } = {} as DecisionChange] = decisions;
  assert.equal(
    l7!.changed.map(({ before, after }) => [before.rule, after.rule]),
    [['stop', 'stop']],
  );
  assert.match(JSON.stringify(l7!.changed[0]!.before.spec), /\/admin/);
  assert.match(JSON.stringify(l7!.changed[0]!.after.spec), /\/private/);
  assert.equal(
    l7!.removed.map(({ rule }) => rule),
    ['credential'],
  );
  assert.equal(defaultDeny, { before: true, after: false });
});

diff('a new sandbox has all of its rules added', async () => {
  const { decisions, resources } = await difference({
    ...sandbox('third'),
    metadata: { name: 'third', labels: { app: 'demo' } },
    spec: { template: { metadata: { labels: { app: 'demo' } }, spec: { containers: [{ name: 'x', image: 'x' }] } } },
  });
  assert.equal(
    decisions.map((decision) => [decision.sandbox, decision.isNew, decision.l4.added.length, decision.l7.added.length]),
    [['default/third', true, 2, 2]],
  );
  assert.equal(
    resources.sidecars.map(({ sandboxes, removed }) => [sandboxes, removed]),
    [[['default/third'], []]],
  );
});

diff('a new name leaves the addresses of the others as they are', async () => {
  const { resources } = await difference(trafficPolicy('more', 'other', [allow('aaa.example.test')]));
  assert.equal(
    resources.sidecars.map(({ sandboxes }) => sandboxes),
    [['default/other']],
  );
});

diff('a secret that changes is said without its value', async () => {
  const given = [secret('key', 'needle-after')];
  const { objects, decisions, resources } = await difference(...given);
  assert.equal(objects[0]!.fields, [{ path: 'stringData.apiKey', before: '[redacted]', after: '[redacted]' }]);
  assert.equal(decisions, []);
  assert.equal(
    resources.egress.changed.map(({ name, before, after }) => [name.split(':')[0], before, after]),
    [['cred', '[redacted]', '[redacted]']],
  );
  for (const format of [[], ['-o', 'json']]) {
    const { stdout, stderr } = await run(given, ...format);
    assert.not.match(stdout + stderr, /needle/);
  }
});

diff('nothing to do is status 0, and nothing is written', async () => {
  const before = await contents(dir);
  const { status, stdout } = await run([
    trafficPolicy('egress', 'demo', [allow('api.example.test'), allow('b.example.test')]),
  ]);
  assert.is(status, 0);
  assert.match(stdout, /0 new, 0 changed, 1 unchanged.*no sandbox.*none changes/s);
  await run([trafficPolicy('new', 'demo', [allow('c.example.test')])]);
  assert.equal(await contents(dir), before);
});

diff('for a person: what comes, changes and goes, by role', async () => {
  const { stdout } = await run([trafficPolicy('egress', 'demo', [allow('api.example.test'), allow('c.example.test')])]);
  assert.match(
    stdout,
    /~ TrafficPolicy default\/egress\n +~ spec\.egress\.rules\[1\]\.to\[0\]\.fqdn: "b\.example\.test" → "c\.example\.test"/,
  );
  assert.match(
    stdout,
    /~ default\/demo: policy set pset-\w+ as before\n +~ connection: TrafficPolicy default\/egress rule 1\n +was .*b\.example.*\n +now .*c\.example/,
  );
  assert.match(stdout, /\n {2}egress: \d+ added, \d+ changed, \d+ removed\n/);
  assert.match(stdout, /\n {2}sidecar of default\/demo: 0 added, 2 changed, 0 removed\n/);
});

diff('a bad object is status 1 and named, wrong usage is 2', async () => {
  const bad = await run([trafficPolicy('egress', 'demo', [{ action: 'maybe', to: [{ fqdn: 'a.test' }] }])]);
  assert.is(bad.status, 1);
  assert.match(bad.stderr, /TrafficPolicy default\/egress: spec\.egress\.rules\[0\]\.action/);
  assert.is((await sandgate(['diff', '--dir', dir])).status, 2);
});

diff('of equal rules each counts once', () => {
  const by = { content: ({ text }: { text: string }) => text, identity: ({ at }: { at: number }) => String(at) };
  const items = (...texts: readonly string[]) => texts.map((text, at) => ({ text, at }));
  assert.equal(listChange(items('a', 'a'), items('a'), by as never), {
    added: [],
    removed: [{ text: 'a', at: 1 }],
    changed: [],
    reordered: false,
  });
});

diff.run();
