import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { DecisionRecord } from '../../control-plane/decision-log.ts';
import { layoutOf } from '../../local/layout.ts';
import { directory, FakePlane, sandgate } from './support.ts';

/** `logs` and `exec` against an admin API that answers as the plane does when something is wrong. */
const logs = suite('logs and refusals of the admin API');

const record: DecisionRecord = {
  time: '2026-01-01T00:00:00Z',
  direction: 'egress',
  sandbox: 'default/demo',
  action: 'block',
  method: 'GET',
  authority: 'a.test',
  path: '/\u001b[2Jx',
  status: 403,
  policy: 'SecurityProfile default/requests',
  rule: 'no-admin',
  reason: 'block',
  executor: 'envoy',
  destination: '192.0.2.1:80',
  durationMs: 1,
};

async function withPlane(
  answer: Parameters<typeof FakePlane.start>[0],
  work: (plane: FakePlane) => Promise<void>,
): Promise<void> {
  const plane = await FakePlane.start(answer);
  try {
    await work(plane);
  } finally {
    await plane.close();
  }
}

logs('a record says policy, rule, reason and executor, and cannot steer the terminal', () =>
  withPlane(
    (_call, response) => response.end(`${JSON.stringify(record)}\n`),
    async (plane) => {
      const text = await plane.sandgate(['logs', 'default/demo']);
      assert.is(text.status, 0, text.stderr);
      for (const part of ['SecurityProfile default/requests', 'no-admin', 'block', 'envoy', '403', 'GET a.test/']) {
        assert.ok(text.stdout.includes(part), text.stdout);
      }
      assert.not.ok(text.stdout.includes('\u001b'), 'no escape sequence');
      const json = await plane.sandgate(['logs', 'default/demo', '-o', 'json']);
      assert.equal(JSON.parse(json.stdout), record);
      assert.equal(
        plane.calls.map(({ path }) => path),
        ['/logs?sandbox=default%2Fdemo', '/logs?sandbox=default%2Fdemo'],
      );
    },
  ),
);

logs('-f prints as records come, and says so when the plane ends', () =>
  withPlane(
    (_call, response) => {
      response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      const line = JSON.stringify(record);
      response.write(line.slice(0, 20));
      setTimeout(() => response.write(`${line.slice(20)}\n`), 100);
      setTimeout(() => response.destroy(), 400);
    },
    async (plane) => {
      const { status, stdout, stderr } = await plane.sandgate(['logs', 'default/demo', '-f', '-o', 'json']);
      assert.equal(JSON.parse(stdout), record);
      assert.is(status, 1);
      assert.match(stderr, /^error: [^\n]+\n$/);
      assert.is(plane.calls[0]?.path, '/logs?sandbox=default%2Fdemo&follow=1');
    },
  ),
);

logs('--tail asks for the last decisions alone, and takes nothing but a number', () =>
  withPlane(
    (_call, response) => response.end(`${JSON.stringify(record)}\n`),
    async (plane) => {
      assert.is((await plane.sandgate(['logs', 'demo', '--tail', '5'])).status, 0);
      assert.is(plane.calls[0]?.path, '/logs?sandbox=default%2Fdemo&tail=5');
      for (const tail of ['x', '-1', '1.5']) {
        assert.is((await plane.sandgate(['logs', 'demo', `--tail=${tail}`])).status, 2, tail);
      }
    },
  ),
);

logs('--container prints what it wrote, with the part that was cut off before', () =>
  withPlane(undefined, async (plane) => {
    const container = { name: 'web', image: 'x' };
    await plane.store.create({
      apiVersion: 'agents.kruise.io/v1alpha1',
      kind: 'Sandbox',
      metadata: { name: 'demo' },
      spec: { template: { spec: { containers: [container] } } },
    });
    const early = await plane.sandgate(['logs', 'demo', '-c', 'web']);
    assert.is(early.status, 1);
    assert.match(early.stderr, /^error: Sandbox default\/demo has no Pod/);
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'demo' }, spec: { containers: [container] } };
    const { uid } = (await plane.store.create(pod)).metadata;
    const folder = layoutOf(plane.dir).sandbox(uid!);
    await mkdir(folder, { recursive: true });
    const file = join(folder, 'web.log');
    await writeFile(`${file}.1`, 'one\ntwo\n');
    await writeFile(file, 'three\nfo');
    assert.is((await plane.sandgate(['logs', 'demo', '-c', 'web'])).stdout, 'one\ntwo\nthree\nfo');
    for (const [tail, text] of [
      ['0', ''],
      ['1', 'fo'],
      ['3', 'two\nthree\nfo'],
      ['99', 'one\ntwo\nthree\nfo'],
    ]) {
      assert.is((await plane.sandgate(['logs', 'demo', '-c', 'web', '--tail', tail!])).stdout, text);
    }
    const wrong = await plane.sandgate(['logs', 'demo', '-c', 'nope']);
    assert.match(wrong.stderr, /no container nope; it has web/);
  }),
);

logs('what the plane refuses is told in its words, with status 1', () =>
  withPlane(
    (call, response) => {
      response.writeHead(409, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ error: { code: 'paused', message: `${call.path} is paused`, fields: [] } }));
    },
    async (plane) => {
      const { status, stdout, stderr } = await plane.sandgate(['exec', 'default/demo', '--', 'true']);
      assert.is(status, 1);
      assert.is(stdout, '');
      assert.is(stderr, 'error: /exec is paused\n');
    },
  ),
);

logs('without a plane the commands that need one say how to start it', async () => {
  const dir = await directory();
  for (const args of [
    ['logs', 'default/demo'],
    ['exec', 'default/demo', '--', 'true'],
  ]) {
    const { status, stderr } = await sandgate([...args.slice(0, 1), '--dir', dir, ...args.slice(1)]);
    assert.is(status, 1);
    assert.match(stderr, /sandgate up --dir/);
  }
  await rm(dir, { recursive: true, force: true });
});

logs.run();
