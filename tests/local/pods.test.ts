import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Pod } from '../../api/pod.ts';
import { isCoded } from '../../base/errors.ts';
import { execSpec } from '../../local/exec.ts';
import { isSecondRun, repeatAsUser, shouldRepeat } from './as-user.ts';
import { conditionOf, eventually, LocalPlane, NAMESPACE, runProgram, shell } from './harness.ts';

const SETTINGS = `
images:
  example.com/greeter:
    command: [/bin/sh, -c, 'echo "greets $GREETING $0"; exec sleep 1000']
    env: {GREETING: hello}
`;

const test = suite<{ plane: LocalPlane }>(`pods${isSecondRun ? ' of an ordinary user' : ''}`);

test.before(async (context) => {
  context.plane = await LocalPlane.open(SETTINGS);
  const values = { user: 'alice', file: 'only-in-files', 'odd.key': 'x', binary: '\0\xff' };
  const data = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, Buffer.from(value, 'latin1').toString('base64')]),
  );
  await context.plane.store.create({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'login', namespace: NAMESPACE },
    data,
  });
  await context.plane.store.create({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'config', namespace: NAMESPACE },
    data: { MODE: "it's\nfast", file: 'content' },
  });
});

test.after(({ plane }) => plane.close());

const waiting = (pod: Pod): string | undefined => pod.status?.containerStatuses?.[0]?.state?.waiting?.reason;

async function log(plane: LocalPlane, pod: Pod, container = 'main'): Promise<string> {
  return readFile(join(plane.layout.sandbox(pod.metadata.uid!), `${container}.log`), 'utf8');
}

test('environment, arguments, folder and user are those of the Pod', async ({ plane }) => {
  await plane.createPod(
    'environment',
    {
      containers: [
        shell('main', 'env | sort; echo "args $1"; pwd; id -u; exec sleep 1000', {
          args: ['name', '$(MODE)/$(UNKNOWN)/$$(MODE)'],
          workingDir: '/work/new folder',
          securityContext: { runAsUser: 1234 },
          envFrom: [
            { configMapRef: { name: 'config' } },
            { secretRef: { name: 'login' }, prefix: 'LOGIN_' },
            { secretRef: { name: 'none', optional: true } },
          ],
          env: [
            { name: 'PLAIN', value: 'a $(MODE) $HOME "quoted"' },
            { name: 'FROM_SECRET', valueFrom: { secretKeyRef: { name: 'login', key: 'user' } } },
            { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
            { name: 'APP', valueFrom: { fieldRef: { fieldPath: "metadata.labels['app']" } } },
            { name: 'SSL_CERT_FILE', value: '/own' },
            { name: 'LD_PRELOAD', value: '' },
          ],
        }),
      ],
    },
    { labels: { app: 'web' } },
  );
  const pod = await plane.ready('environment');
  const text = await log(plane, pod);
  const expected = [
    'APP=web',
    'FROM_SECRET=alice',
    'HOME=/',
    'HOSTNAME=environment',
    'LOGIN_user=alice',
    `POD_IP=${pod.status!.podIP}`,
    "MODE=it's",
    'fast',
    "PLAIN=a it's",
    'fast $HOME "quoted"',
    'SSL_CERT_FILE=/own',
    'CURL_CA_BUNDLE=/etc/sandgate/ca-bundle.pem',
    "args it's",
    'fast/$(UNKNOWN)/$(MODE)',
    '/work/new folder',
    '1234',
  ];
  for (const line of expected) {
    assert.ok(text.split('\n').includes(line), `${line} in ${text}`);
  }
  assert.not.match(text, /SANDGATE|odd\.key|LC_ALL|XDG/);
  const { out } = await plane.sh('environment', 'echo "$FROM_SECRET $(id -u) $(pwd)"');
  assert.is(out, 'alice 1234 /work/new folder\n');
  assert.is((await plane.sh('environment', 'openssl verify -CAfile "$CURL_CA_BUNDLE" "$CURL_CA_BUNDLE"')).code, 0);
});

test('volumes: shared emptyDir, secret and configMap files', async ({ plane }) => {
  const volumes = [
    { name: 'shared', emptyDir: {} },
    { name: 'login', secret: { secretName: 'login', defaultMode: 0o400 } },
    { name: 'config', configMap: { name: 'config', items: [{ key: 'file', path: 'deep/er', mode: 0o440 }] } },
  ];
  const mounts = [
    { name: 'shared', mountPath: '/shared' },
    { name: 'login', mountPath: '/login' },
    { name: 'login', mountPath: '/etc/user', subPath: 'user' },
    { name: 'config', mountPath: '/config' },
  ];
  await plane.createPod('volumes', {
    volumes,
    containers: [
      shell('one', 'echo from-one > /shared/file; exec sleep 1000', {
        volumeMounts: mounts,
        securityContext: { runAsUser: 7 },
      }),
      shell('two', 'exec sleep 1000', { volumeMounts: [{ name: 'shared', mountPath: '/shared', readOnly: true }] }),
    ],
  });
  const pod = await plane.ready('volumes');
  await eventually('the shared file', async () =>
    (await plane.sh('volumes', 'cat /shared/file', 'two')).out === 'from-one\n' ? true : null,
  );
  assert.is.not((await plane.sh('volumes', 'echo x > /shared/file', 'two')).code, 0);
  const { out } = await plane.sh(
    'volumes',
    'od -An -tx1 /login/binary; stat -c %a /login/user; cat /etc/user; echo; cat /config/deep/er; stat -c " %a" /config/deep/er; ls /config',
    'one',
  );
  assert.is(out, ' 00 ff\n400\nalice\ncontent 440\ndeep\n');
  assert.is.not((await plane.sh('volumes', 'echo x > /login/user')).code, 0);
  const { out: found } = await runProgram({
    argv: ['grep', '-rl', 'only-in-files', plane.layout.sandbox(pod.metadata.uid!)],
    env: { PATH: process.env['PATH']! },
  });
  assert.is(found, '', 'a secret lies on the disk');
  assert.is((await plane.sh('volumes', 'cat /login/file', 'one')).out, 'only-in-files');
});

test('an image stands for the command that the settings name; without one a container idles and says so', async ({
  plane,
}) => {
  await plane.createPod('images', {
    containers: [
      { name: 'main', image: 'example.com/greeter', args: ['you'] },
      { name: 'other', image: 'example.com/unknown' },
    ],
  });
  const pod = await plane.ready('images');
  assert.is(await log(plane, pod), 'greets hello you\n');
  const noted = await plane.until('images', (seen) => conditionOf(seen, 'FieldsNoted') === 'True');
  const { message } = noted.status!.conditions!.find(({ type }) => type === 'FieldsNoted')!;
  assert.match(message!, 'container other has no command here and idles');
});

test("the product's own Node is there for a command that asks for it", async ({ plane }) => {
  await plane.createPod('node', {
    containers: [
      {
        name: 'main',
        command: ['/opt/sandgate/node', '-e', 'console.log(process.version); setTimeout(() => {}, 1e6)'],
      },
    ],
  });
  const pod = await plane.ready('node');
  await eventually('the version', async () => ((await log(plane, pod)).trim() === process.version ? true : null));
});

test('restart policies', async ({ plane }) => {
  await plane.createPod('never', { restartPolicy: 'Never', containers: [shell('main', 'exit 3')] });
  const failed = await plane.until('never', ({ status }) => status?.phase === 'Failed');
  assert.is(failed.status!.containerStatuses![0]!.state!.terminated!.exitCode, 3);
  await plane.createPod('once', {
    restartPolicy: 'OnFailure',
    containers: [
      shell('main', 'test -e /shared/again && exit 0; touch /shared/again; kill -SEGV $$', {
        volumeMounts: [{ name: 'v', mountPath: '/shared' }],
      }),
    ],
    volumes: [{ name: 'v', emptyDir: {} }],
  });
  const done = await plane.until('once', ({ status }) => status?.phase === 'Succeeded');
  assert.is(done.status!.containerStatuses![0]!.restartCount, 1);
  await plane.createPod('always', { containers: [shell('main', 'echo life; exit 1')] });
  const crashing = await plane.until(
    'always',
    (pod) => (pod.status?.containerStatuses?.[0]?.restartCount ?? 0) >= 3 && waiting(pod) === 'CrashLoopBackOff',
  );
  assert.is(conditionOf(crashing, 'Ready'), 'False');
  assert.ok((await log(plane, crashing)).startsWith('life\nlife\nlife\n'));
});

test('what cannot start says why', async ({ plane }) => {
  await plane.createPod('missing-program', { containers: [{ name: 'main', command: ['no-such-program'] }] });
  await plane.until('missing-program', (pod) => waiting(pod) === 'RunContainerError');
  await plane.createPod('missing-secret', {
    containers: [shell('main', 'exec sleep 1000', { envFrom: [{ secretRef: { name: 'late' } }] })],
  });
  const pod = await plane.until('missing-secret', (seen) => waiting(seen) === 'CreateContainerConfigError');
  assert.match(pod.status!.containerStatuses![0]!.state!.waiting!.message!, 'Secret default/late is not there');
  await plane.store.create({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'late', namespace: NAMESPACE },
    data: {},
  });
  await plane.ready('missing-secret');
  await plane.createPod('host', {
    hostNetwork: true,
    containers: [shell('main', 'true', { securityContext: { privileged: true } })],
  });
  const refused = await plane.until('host', ({ status }) => status?.phase === 'Failed');
  assert.match(refused.status!.message!, /spec\.hostNetwork: true is not carried out/);
  assert.match(refused.status!.message!, /spec\.containers\[0\]\.securityContext\.privileged/);
  await plane.createPod('volume', {
    containers: [shell('main', 'true')],
    volumes: [{ name: 'v', hostPath: { path: '/' } }],
  } as never);
  assert.match(
    (await plane.until('volume', ({ status }) => status?.phase === 'Failed')).status!.message!,
    'spec.volumes[0].hostPath',
  );
});

test('probes: a port, a file, a life that has to end', async ({ plane }) => {
  const http = { httpGet: { path: '/ok', port: 'web', httpHeaders: [{ name: 'x-probe', value: 'yes' }] } };
  const serve = 'mkdir /www && cd /www && python3 -m http.server 3000';
  await plane.createPod('probes', {
    containers: [
      shell('web', serve, { ports: [{ name: 'web', containerPort: 3000 }], readinessProbe: http }),
      shell('file', 'exec sleep 1000', { readinessProbe: { exec: { command: ['test', '-e', '/ready'] } } }),
    ],
  });
  const not = await plane.until('probes', (pod) =>
    (pod.status?.conditions ?? []).some(({ message }) => message?.includes('HTTP status 404') === true),
  );
  assert.is(conditionOf(not, 'Ready'), 'False');
  await plane.sh('probes', 'touch /www/ok', 'web');
  await plane.sh('probes', 'touch /ready', 'file');
  await plane.ready('probes');
  const liveness = { exec: { command: ['/bin/sh', '-c', 'test ! -e /dead'] }, periodSeconds: 1, failureThreshold: 1 };
  await plane.createPod('liveness', { containers: [shell('main', 'exec sleep 1000', { livenessProbe: liveness })] });
  await plane.ready('liveness');
  await plane.sh('liveness', 'touch /dead');
  const again = await plane.until('liveness', (pod) => (pod.status?.containerStatuses?.[0]?.restartCount ?? 0) > 0);
  assert.is(again.status!.containerStatuses![0]!.restartCount, 1);
});

const COUNTER = `import itertools, time, threading
for n in itertools.count():
    print(n, flush=True)
    time.sleep(0.02)`;

test('freezing stops every process, thawing continues them with what they knew', async ({ plane }) => {
  await plane.createPod('freeze', { containers: [{ name: 'main', command: ['/usr/bin/python3', '-c', COUNTER] }] });
  const pod = await plane.ready('freeze');
  const lines = async (): Promise<string[]> => (await log(plane, pod)).trim().split('\n');
  await eventually('counting', async () => ((await lines()).length > 5 ? true : null));
  await plane.patch('freeze', { annotations: { 'sandgate.dev/freeze': 'true' } });
  const frozen = await plane.until('freeze', (seen) => conditionOf(seen, 'ContainersPaused') === 'True');
  assert.is(conditionOf(frozen, 'Ready'), 'False');
  assert.is(conditionOf(frozen, 'ContainersResumed'), 'False');
  const before = await lines();
  await sleep(300);
  assert.equal(await lines(), before);
  assert.ok(isCoded(await plane.spec('freeze', ['true']).catch((error: unknown) => error), 'paused'));
  await plane.patch('freeze', { annotations: { 'sandgate.dev/freeze': null } });
  const thawed = await plane.until('freeze', (seen) => conditionOf(seen, 'ContainersResumed') === 'True');
  assert.is(conditionOf(thawed, 'ContainersPaused'), 'False');
  await plane.ready('freeze');
  await eventually('more counting', async () => ((await lines()).length > before.length + 5 ? true : null));
  const after = await lines();
  assert.equal(
    after,
    after.map((_, index) => String(index)),
  );
  // A frozen one can be deleted.
  await plane.patch('freeze', { annotations: { 'sandgate.dev/freeze': 'true' } });
  await plane.until('freeze', (seen) => conditionOf(seen, 'ContainersPaused') === 'True');
  await plane.store.delete('Pod', { namespace: NAMESPACE, name: 'freeze' });
  await plane.gone('freeze');
});

test('deletion asks, waits, kills, and leaves nothing', async ({ plane }) => {
  const stubborn = 'trap "echo asked" TERM; echo armed; while :; do sleep 0.05; done';
  const polite = 'trap "sleep 0.3; exit 0" TERM; echo armed; while :; do sleep 0.05; done';
  const volumes = [{ name: 'v', emptyDir: {} }];
  await plane.createPod('stubborn', { terminationGracePeriodSeconds: 1, containers: [shell('main', stubborn)] });
  await plane.createPod('polite', { volumes, containers: [shell('main', `${polite}`)] });
  await plane.createPod('deaf', { containers: [shell('main', 'sleep 1000')] });
  const pods = await Promise.all(['stubborn', 'polite', 'deaf'].map((name) => plane.ready(name)));
  for (const pod of pods.slice(0, 2)) {
    await eventually('the trap', async () => ((await log(plane, pod)).startsWith('armed') ? true : null));
  }
  const times = await Promise.all(
    pods.map(async ({ metadata: { name } }) => {
      const began = Date.now();
      await plane.store.delete('Pod', { namespace: NAMESPACE, name });
      await plane.gone(name);
      return Date.now() - began;
    }),
  );
  assert.ok(times[0]! >= 950 && times[0]! < 4000, `stubborn ${times[0]}`);
  assert.ok(times[1]! >= 250 && times[1]! < 3000, `polite ${times[1]}`);
  assert.ok(times[2]! < 3000, `deaf ${times[2]}`);
  for (const pod of pods) {
    assert.not.ok(existsSync(plane.layout.sandbox(pod.metadata.uid!)));
  }
});

test('exec: streams, status, signals, what is not there', async ({ plane }) => {
  await plane.createPod('exec', { containers: [shell('main', 'exec sleep 1000'), shell('side', 'exec sleep 1000')] });
  await plane.ready('exec');
  assert.equal(await plane.exec('exec', ['cat'], 'over stdin'), { code: 0, out: 'over stdin', err: '' });
  assert.is((await plane.sh('exec', 'echo to-err >&2; exit 42')).code, 42);
  assert.is((await plane.sh('exec', 'kill -KILL $$')).code, 137);
  assert.is((await plane.exec('exec', ['no-such-program'])).code, 127);
  assert.is((await plane.exec('exec', ['/etc/passwd'])).code, 126);
  const failure = async (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => null,
      (error: unknown) => error,
    );
  assert.ok(isCoded(await failure(plane.spec('exec', ['true'], 'none')), 'not-found'));
  assert.ok(isCoded(await failure(plane.spec('none', ['true'])), 'not-found'));
  const { argv, env } = await plane.spec('exec', ['true']);
  assert.not.match(JSON.stringify({ argv, env }), 'SSL_CERT_FILE');
});

test('exec with a terminal: one of its own, its size and status passed on', async ({ plane }) => {
  await plane.createPod('terminal', {
    containers: [shell('main', 'exec sleep 1000', { securityContext: { runAsUser: 5 } })],
  });
  await plane.ready('terminal');
  const command = [
    '/bin/sh',
    '-c',
    'test -t 0 && test -t 1 && test -t 2 && echo "terminal $TERM $(id -u)"; stty -g >/dev/null && exit 5',
  ];
  const { argv, env } = await execSpec(plane, { namespace: NAMESPACE, name: 'terminal' }, { command, tty: true });
  const { code, out } = await runProgram({ argv, env: env.reveal() });
  assert.is(code, 5, out);
  assert.match(out, /terminal \S+ 5\r\n/);
});

if (shouldRepeat) {
  test('all of it holds for an ordinary user too', async () => {
    const { code, output } = await repeatAsUser(import.meta.url);
    assert.is(code, 0, output);
  });
}

test.run();
