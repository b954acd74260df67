import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { sandbox, settings, yaml } from './manifests.ts';
import { TestPlane, until } from './plane.ts';

/** Requests to sandboxes, native and through the processor, awake and asleep (Done when 5 and 7). */
const ingress = suite('ingress of a whole local mode');
let plane: TestPlane;
const tokens: Record<string, string> = {};

ingress.before(async () => {
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings().replace('trust: [ca.pem]\n', ''),
      'all.yaml': yaml(
        sandbox('frozen'),
        sandbox('stopped', { spec: { pauseStrategy: { type: 'Stop' } } }),
        sandbox('sleeper', { spec: { autoPausePolicy: undefined } }),
      ),
    },
  });
  for (const name of ['frozen', 'stopped', 'sleeper']) {
    await plane.phase(name, 'Running');
    const { metadata } = await plane.store.get('Sandbox', { namespace: 'default', name });
    tokens[name] = metadata.annotations!['agents.kruise.io/runtime-access-token']!;
  }
});

ingress.after(() => plane?.stop());

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers: IncomingHttpHeaders;
}

const agent = new Agent({ keepAlive: false });

/** One request; status 0 when it failed or was cancelled by `signal`. */
function ask(
  name: string,
  headers: Readonly<Record<string, string>>,
  path = '/',
  signal?: AbortSignal,
): Promise<Answer> {
  return new Promise((resolve) => {
    const sent = request(
      {
        host: '127.0.0.1',
        port: plane.port,
        path,
        agent,
        headers: { host: `3000-${name}.localhost:${plane.port}`, ...headers },
        ...(signal === undefined ? {} : { signal }),
      },
      (answer) => {
        let body = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          body += chunk;
        });
        answer.once('end', () => resolve({ status: answer.statusCode ?? 0, body, headers: answer.headers }));
        answer.once('error', () => resolve({ status: 0, body, headers: {} }));
      },
    );
    sent.once('error', () => resolve({ status: 0, body: '', headers: {} }));
    sent.end();
  });
}

const withToken = (name: string) => ({ 'x-access-token': tokens[name]! });

async function pause(name: string): Promise<void> {
  const key = { namespace: 'default', name };
  await plane.store.patch('Sandbox', key, { type: 'merge', body: { spec: { paused: true } } });
  await plane.phase(name, 'Paused');
}

async function processed(): Promise<number> {
  const records = await plane.sandgate('logs', 'default/frozen', '-o', 'json');
  return records.stdout.split('\n').filter((line) => line.includes('"executor":"ext_proc"')).length;
}

ingress('a running sandbox is reached natively, by the right token alone', async () => {
  await until('the native route', 5000, async () => {
    const before = await processed();
    const answer = await ask('frozen', withToken('frozen'));
    await new Promise((resolve) => setTimeout(resolve, 1200));
    return answer.status === 200 && (await processed()) === before;
  });
  assert.is((await ask('frozen', withToken('frozen'))).body, 'frozen');
  for (const headers of [{}, { 'x-access-token': '' }, { 'x-access-token': 'x' }, withToken('stopped')]) {
    const { status, body } = await ask('frozen', headers as Record<string, string>);
    assert.is(status, 401);
    assert.is(body, 'unauthorized: invalid or missing access token');
  }
  const unknown = await ask('nobody', withToken('frozen'));
  assert.is(unknown.status, 401);
});

ingress('the header form and the path form reach it too', async () => {
  const form = { host: `localhost:${plane.port}`, 'e2b-sandbox-id': 'frozen', 'e2b-sandbox-port': '3000' };
  assert.is((await ask('frozen', { ...withToken('frozen'), ...form })).body, 'frozen');
  const path = await ask('frozen', { ...withToken('frozen'), host: 'localhost' }, '/kruise/frozen/3000/x?y=1');
  assert.is(path.body, 'frozen');
  assert.is((await ask('frozen', { ...withToken('frozen'), host: '99999-frozen.localhost' })).status, 400);
  assert.is((await ask('frozen', { ...withToken('frozen'), host: 'localhost' })).status, 404);
});

ingress('headers of the gateway cannot be forged', async () => {
  const forged = {
    'x-sandgate-hot': 'frozen',
    'x-sbx-scope': 'x-miss',
    'x-envoy-original-dst-host': '127.0.0.1:1',
  };
  assert.is((await ask('frozen', forged)).status, 401);
  assert.is((await ask('frozen', { ...forged, ...withToken('frozen') })).body, 'frozen');
});

ingress('the answer is JSON for who asks for it, and says when to come again', async () => {
  const { headers, body } = await ask('frozen', { accept: 'application/json' });
  assert.is(headers['content-type'], 'application/json');
  assert.is((JSON.parse(body) as { error: string }).error, 'unauthorized');
  assert.is(headers['x-sandgate-reason'], 'unauthorized');
});

for (const name of ['frozen', 'stopped'] as const) {
  ingress(`${name}: 500 requests at once are one resume and 500 answers of the right sandbox`, async () => {
    await pause(name);
    const generation = async () =>
      (await plane.store.get('Sandbox', { namespace: 'default', name })).metadata.generation ?? 0;
    const before = await generation();
    assert.is((await ask(name, { 'x-access-token': 'wrong' })).status, 401);
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.is(await generation(), before, 'an unauthenticated request wakes nothing');
    const answers = await Promise.all(Array.from({ length: 500 }, () => ask(name, withToken(name))));
    const wrong = answers.filter(({ status, body }) => status !== 200 || body !== name);
    assert.equal(wrong.slice(0, 3), []);
    assert.is(await generation(), before + 1);
    assert.is((await ask(name, withToken(name))).body, name);
  });
}

ingress('a request that meets a sandbox on its way to sleep is answered', async () => {
  const key = { namespace: 'default', name: 'frozen' };
  await plane.store.patch('Sandbox', key, { type: 'merge', body: { spec: { paused: true } } });
  const answers = await Promise.all(Array.from({ length: 20 }, () => ask('frozen', withToken('frozen'))));
  assert.equal([...new Set(answers.map(({ status, body }) => `${status} ${body}`))], ['200 frozen']);
  // Those that came before the native route was withdrawn have woken nothing; a later one does.
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.is((await ask('frozen', withToken('frozen'))).body, 'frozen');
});

ingress('a storm of callers that leave fails none of those who stay', async () => {
  await pause('stopped');
  const leaving = new AbortController();
  const gone = Array.from({ length: 1800 }, () => ask('stopped', withToken('stopped'), '/', leaving.signal));
  const staying = Array.from({ length: 200 }, () => ask('stopped', withToken('stopped')));
  setTimeout(() => leaving.abort(), 150);
  const answers = await Promise.all(staying);
  await Promise.all(gone);
  assert.equal([...new Set(answers.map(({ status, body }) => `${status} ${body}`))], ['200 stopped']);
});

ingress('a paused sandbox without a wake rule is not woken', async () => {
  await pause('sleeper');
  const { status, body } = await ask('sleeper', withToken('sleeper'));
  assert.is(status, 502);
  assert.is(body, 'healthy sandbox not found: sleeper');
});

ingress('whoever holds the token of a sandbox that is gone is told so, and nobody else', async () => {
  await plane.store.delete('Sandbox', { namespace: 'default', name: 'sleeper' });
  await until(
    'its end',
    15_000,
    async () => (await ask('sleeper', withToken('sleeper'))).body === 'sandbox not found: sleeper',
  );
  assert.is((await ask('sleeper', { 'x-access-token': 'other' })).status, 401);
});

ingress.run();
