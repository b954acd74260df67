import { spawn } from 'node:child_process';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import type { Sandbox } from '../../api/sandbox.ts';
import { FakePlane } from './support.ts';

/** Commands that speak to a running plane: its store and its admin API over their UNIX sockets. */
const running = suite('commands with a running plane');
let plane: FakePlane;

running.before.each(async () => {
  plane = await FakePlane.start((call, response) => {
    const answers: Readonly<Record<string, readonly [number, unknown]>> = {
      '/exec': [200, { argv: ['/bin/sh', '-c', 'cat; echo "$WORD"; exit 7'], env: { WORD: 'word' } }],
      '/explain': [404, { error: { code: 'not-found', message: 'there is no Sandbox default/nobody', fields: [] } }],
    };
    const [status, body] = answers[call.path] ?? [200, {}];
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  });
});
running.after.each(() => plane.close());

const TOKEN = 'agents.kruise.io/runtime-access-token';
const ID = 'agents.kruise.io/sandbox-id';
const key = { namespace: 'default', name: 'demo' };

const sandbox = (rest: Record<string, unknown> = {}, spec: Record<string, unknown> = {}): KubeObject => ({
  apiVersion: 'agents.kruise.io/v1alpha1',
  kind: 'Sandbox',
  metadata: { name: 'demo', ...rest },
  spec: { template: { spec: { containers: [{ name: 'web', image: 'x' }] } }, ...spec },
});

const policy = (name = 'egress'): KubeObject => ({
  apiVersion: 'agents.kruise.io/v1alpha1',
  kind: 'TrafficPolicy',
  metadata: { name },
  spec: { selector: {}, egress: { rules: [{ action: 'allow', to: [{ fqdn: 'a.test' }] }] } },
});

const condition = (type: string, status: string, reason: string, observedGeneration: number) => ({
  ...{ type, status, reason, observedGeneration },
  message: `because of ${reason}`,
  lastTransitionTime: '2026-01-01T00:00:00Z',
});

const apply = (object: KubeObject, ...args: readonly string[]) =>
  plane.sandgate(['apply', '-f', '-', ...args], { input: JSON.stringify(object) });

running('apply leaves token, id, status, finalizers and uid of a Sandbox as they are', async () => {
  const stored = await plane.store.create(
    sandbox({
      annotations: { [TOKEN]: 'a'.repeat(36), 'agents.kruise.io/cleanup': 'true' },
      labels: { [ID]: 'abc' },
      finalizers: ['agents.kruise.io/sandbox'],
    }),
  );
  await plane.store.patchStatus('Sandbox', key, { type: 'merge', body: { status: { phase: 'Running' } } });
  const { status, stdout, stderr } = await apply(sandbox({ labels: { team: 'x' } }));
  assert.is(status, 0, stderr);
  assert.is(stdout, 'Sandbox default/demo configured\n');
  const after = await plane.store.get('Sandbox', key);
  assert.is(after.metadata.uid, stored.metadata.uid);
  assert.equal(after.metadata.annotations, { [TOKEN]: 'a'.repeat(36) });
  assert.equal(after.metadata.labels, { [ID]: 'abc', team: 'x' });
  assert.equal(after.metadata.finalizers, ['agents.kruise.io/sandbox']);
  assert.equal(after.status, { phase: 'Running' });
});

running('apply of a manifest that says nothing of a pause does not end it', async () => {
  await plane.store.create(sandbox({}, { paused: true }));
  const silent = await apply(sandbox());
  assert.is(silent.stdout, 'Sandbox default/demo unchanged\n', silent.stderr);
  const awake = await apply(sandbox({}, { paused: false }));
  assert.is(awake.stdout, 'Sandbox default/demo configured\n', awake.stderr);
  assert.is(((await plane.store.get('Sandbox', key)) as unknown as Sandbox).spec?.paused, false);
});

running('apply goes on when somebody else changes the object in between', async () => {
  await plane.store.create(policy());
  let turns = 0;
  const replace = plane.store.replace.bind(plane.store);
  plane.store.replace = async (object) => {
    turns += 1;
    if (turns === 1) {
      await plane.store.patchStatus(
        'TrafficPolicy',
        { ...key, name: 'egress' },
        {
          type: 'merge',
          body: { status: { conditions: [] } },
        },
      );
    }
    return replace(object);
  };
  const { status, stdout, stderr } = await apply({ ...policy(), metadata: { name: 'egress', labels: { a: 'b' } } });
  assert.is(status, 0, stderr);
  assert.is(stdout, 'TrafficPolicy default/egress configured\n');
  assert.is(turns, 2);
});

running('apply --wait ends when the present generation is programmed, and not before', async () => {
  const stored = await plane.store.create(policy());
  const say = (status: string, generation: number) =>
    plane.store.patchStatus(
      'TrafficPolicy',
      { ...key, name: 'egress' },
      {
        type: 'merge',
        body: { status: { conditions: [condition('Programmed', status, 'Programmed', generation)] } },
      },
    );
  await say('True', stored.metadata.generation ?? 0);
  const changed = { ...policy(), spec: { ...(policy().spec as object), priority: 7 } };
  const early = await apply(changed, '--wait', '--timeout', '1');
  assert.is(early.status, 1);
  assert.match(early.stderr, /TrafficPolicy default\/egress/);
  await say('True', (stored.metadata.generation ?? 0) + 1);
  assert.is((await apply(changed, '--wait', '--timeout', '1')).status, 0);
});

running('apply --wait fails at once with the reason when an Envoy refuses a policy', async () => {
  await plane.store.create(policy());
  await plane.store.patchStatus(
    'TrafficPolicy',
    { ...key, name: 'egress' },
    {
      type: 'merge',
      body: { status: { conditions: [condition('Programmed', 'False', 'EnvoyRejected', 1)] } },
    },
  );
  const { status, stderr } = await apply(policy(), '--wait', '--timeout', '15');
  assert.is(status, 1);
  assert.match(stderr, /TrafficPolicy default\/egress: .*because of EnvoyRejected/);
});

running('apply --wait waits only for what becomes ready', async () => {
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { name: 's' }, spec: {} };
  const { status, stderr } = await apply(service, '--wait', '--timeout', '2');
  assert.is(status, 0, stderr);
});

running('apply --wait of a Sandbox that is to sleep waits until it does', async () => {
  await plane.store.create(sandbox({}, { paused: true }));
  const conditions = [condition('SandboxPaused', 'True', 'FreezePauseSucceed', 1)];
  await plane.store.patchStatus('Sandbox', key, {
    type: 'merge',
    body: { status: { observedGeneration: 1, phase: 'Paused', conditions } },
  });
  const { status, stderr } = await apply(sandbox({}, { paused: true }), '--wait', '--timeout', '2');
  assert.is(status, 0, stderr);
});

running('delete ends when its object is gone, also when another of that name follows at once', async () => {
  await plane.store.create(policy());
  const remove = plane.store.delete.bind(plane.store);
  plane.store.delete = async (kind, at, options) => {
    await remove(kind, at, options);
    await plane.store.create(policy());
  };
  const { status, stdout, stderr } = await plane.sandgate(['delete', 'tp', 'egress', '--timeout', '2']);
  assert.is(status, 0, stderr);
  assert.match(stdout, /^TrafficPolicy default\/egress deleted\n$/);
});

running('delete -f removes what is there, and names what is not', async () => {
  await plane.store.create(policy('b'));
  const input = `${JSON.stringify(policy('a'))}\n---\n${JSON.stringify(policy('b'))}\n`;
  const { status, stderr } = await plane.sandgate(['delete', '-f', '-'], { input });
  assert.is(status, 1);
  assert.match(stderr, /default\/a/);
  assert.equal((await plane.store.list('TrafficPolicy')).items, []);
});

running('delete -f of what is no object is an error that names the place', async () => {
  const { status, stderr } = await plane.sandgate(['delete', '-f', '-'], { input: 'kind: TrafficPolicy\n' });
  assert.is(status, 1);
  assert.match(stderr, /^error: standard input:1: .*metadata/);
});

running('a plane that is slow to answer is not taken for one that does not run', async () => {
  await plane.store.create(policy());
  const list = plane.store.list.bind(plane.store);
  plane.store.list = async (...args) => {
    await new Promise((resolve) => setTimeout(resolve, 800));
    return list(...args);
  };
  const { status, stdout, stderr } = await plane.sandgate(['get', 'tp', '-o', 'name']);
  assert.is(status, 0, stderr);
  assert.is(stdout, 'trafficpolicy/egress\n');
});

running('exec streams, passes the environment alone, and passes the status on', async () => {
  await plane.store.create(sandbox());
  const args = ['exec', '-c', 'web', 'default/demo', '--', 'prog', '--flag', '-c', 'x'];
  const { status, stdout } = await plane.sandgate(args, { input: 'from stdin\n' });
  assert.is(stdout, 'from stdin\nword\n');
  assert.is(status, 7);
  assert.equal(plane.calls, [
    {
      path: '/exec',
      body: { sandbox: 'default/demo', container: 'web', command: ['prog', '--flag', '-c', 'x'], tty: false },
    },
  ]);
});

running('exec --wake resumes a sleeping Sandbox first', async () => {
  await plane.store.create(sandbox({}, { paused: true }));
  const say = (phase: string, type: string, observedGeneration: number) =>
    plane.store.patchStatus('Sandbox', key, {
      type: 'merge',
      body: { status: { observedGeneration, phase, conditions: [condition(type, 'True', type, observedGeneration)] } },
    });
  await say('Paused', 'SandboxPaused', 1);
  const patch = plane.store.patch.bind(plane.store);
  plane.store.patch = async (...args) => {
    const patched = await patch(...args);
    setTimeout(() => void say('Running', 'Ready', patched.metadata.generation ?? 0), 300);
    return patched;
  };
  const { status, stderr } = await plane.sandgate(['exec', '--wake', 'default/demo', '--', 'prog']);
  assert.is(status, 7, stderr);
  assert.is(((await plane.store.get('Sandbox', key)) as unknown as Sandbox).spec?.paused, false);
});

running('explain prints the error of an unknown sandbox as JSON, with status 1', async () => {
  const { status, stdout } = await plane.sandgate(['explain', '--sandbox', 'nobody', 'http://a.test/', '-o', 'json']);
  assert.is(status, 1);
  assert.ok('error' in (JSON.parse(stdout) as object));
});

running('a pipe that nobody reads any more ends a command without an error', async () => {
  for (let index = 0; index < 500; index += 1) {
    await plane.store.create(policy(`p${index}-${'x'.repeat(200)}`));
  }
  const main = `${import.meta.dirname}/../../bin/sandgate`;
  const script = '{ "$0" "$1" get tp -o yaml; echo "status $?" >&2; } | head -n 1';
  const child = spawn('/bin/sh', ['-c', script, process.execPath, main], {
    env: { ...process.env, SANDGATE_DIR: plane.dir },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  await new Promise((resolve) => child.once('close', resolve));
  assert.is(stdout.trimEnd().split('\n').length, 1);
  assert.is(stderr, 'status 0\n');
});

running.run();
