import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { run } from '../e2e/plane.ts';
import { FakePlane } from './support.ts';

/** `exec`: its options, its terminal, and what it says of a sandbox that sleeps. */
const exec = suite('exec');
let plane: FakePlane;
/** What the sandbox runs in place of the command. */
let script = 'cat; exit 7';
let refusal: readonly [status: number, code: string] | null = null;

exec.before.each(async () => {
  script = 'cat; exit 7';
  refusal = null;
  plane = await FakePlane.start((_call, response) => {
    const [status, body] =
      refusal === null
        ? [200, { argv: ['/bin/sh', '-c', script], env: { PATH: process.env['PATH'] } }]
        : [refusal[0], { error: { code: refusal[1], message: 'Pod default/demo is refused', fields: [] } }];
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  });
});
exec.after.each(() => plane.close());

const sandbox = (spec: object): KubeObject => ({
  apiVersion: 'agents.kruise.io/v1alpha1',
  kind: 'Sandbox',
  metadata: { name: 'demo' },
  spec: { template: { spec: { containers: [{ name: 'web', image: 'x' }] } }, ...spec },
});

const bodies = () => plane.calls.map(({ body }) => body);

/** Runs `sandgate` with a terminal of its own on all streams; `input` comes through a pipe instead. */
function inTerminal(args: string, input?: string) {
  const main = `${import.meta.dirname}/../../cli/main.ts`;
  const feed = input === undefined ? '' : `printf '%s' '${input}' | `;
  const line = `${feed}'${process.execPath}' '${main}' ${args}`;
  return run('script', ['--quiet', '--return', '--command', line, '/dev/null'], { SANDGATE_DIR: plane.dir });
}

exec('options may stand before and after the sandbox, as with kubectl', async () => {
  for (const args of [
    ['-i', '-c', 'web', 'demo', '--', 'prog', '-x'],
    ['demo', '-i', '-c', 'web', '--', 'prog', '-x'],
  ]) {
    const { status, stdout, stderr } = await plane.sandgate(['exec', ...args], { input: 'in' });
    assert.is(status, 7, stderr);
    assert.is(stdout, 'in');
  }
  const body = { sandbox: 'default/demo', container: 'web', command: ['prog', '-x'], tty: false };
  assert.equal(bodies(), [body, body]);
});

exec('wrong usage is told before anything is asked', async () => {
  for (const args of [
    ['demo'],
    ['demo', '--'],
    ['demo', '-x', '--', 'prog'],
    ['demo', '-i'],
    ['a/b/c', '--', 'prog'],
    ['a/', '--', 'prog'],
  ]) {
    assert.is((await plane.sandgate(['exec', ...args])).status, 2, args.join(' '));
  }
  assert.equal(bodies(), []);
});

exec('-t without a terminal says that there is none, and goes on', async () => {
  const { status, stderr } = await plane.sandgate(['exec', '-it', 'demo', '--', 'prog']);
  assert.is(status, 7);
  assert.match(stderr, /no terminal/);
  assert.is((bodies()[0] as { tty: boolean }).tty, false);
});

exec('a terminal is asked for when standard input is one, unless -T', async () => {
  script = 'exit 5';
  assert.is((await inTerminal('exec demo -- prog')).status, 5);
  assert.is((await inTerminal('exec -T demo -- prog')).status, 5);
  assert.equal(
    bodies().map((body) => (body as { tty: boolean }).tty),
    [true, false],
  );
});

exec('a command without a terminal of its own cannot reach that of the caller', async () => {
  script =
    'for fd in 0 1 2; do test -t $fd && echo has-$fd; done; (: </dev/tty) 2>/dev/null && echo has-tty; echo done';
  for (const ran of [await inTerminal('exec -T demo -- prog'), await inTerminal('exec demo -- prog', 'x')]) {
    assert.match(ran.stdout, /done/);
    assert.not.match(ran.stdout, /has-/);
  }
});

exec('of a sandbox that was stopped for its pause it says how to wake it', async () => {
  refusal = [404, 'not-found'];
  await plane.store.create(sandbox({ paused: true, pausePolicy: { type: 'Stop' } }));
  const stopped = await plane.sandgate(['exec', 'demo', '--', 'prog']);
  assert.is(stopped.status, 1);
  assert.match(stopped.stderr, /^error: Sandbox default\/demo is paused, its processes have been stopped: .*--wake/);
  refusal = [409, 'paused'];
  assert.match(
    (await plane.sandgate(['exec', 'demo', '--', 'prog'])).stderr,
    /paused, its processes are frozen: .*--wake/,
  );
});

exec('a sandbox that is not there is named, and not its Pod', async () => {
  refusal = [404, 'not-found'];
  const { status, stderr } = await plane.sandgate(['exec', 'other/nobody', '--', 'prog']);
  assert.is(status, 1);
  assert.is(stderr, 'error: there is no Sandbox other/nobody\n');
  await plane.store.create(sandbox({}));
  assert.match((await plane.sandgate(['exec', 'demo', '--', 'prog'])).stderr, /Sandbox default\/demo is not running/);
});

exec.run();
