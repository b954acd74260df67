/** The ingress gateway at its limits: addresses that are silent, ports that open late, many routes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Redacted } from '../../base/redacted.ts';
import { compileIngress, type IngressRoute } from '../../policy-compiler/ingress.ts';
import { resourcesTotal } from '../../xds/metrics.ts';
import { until } from '../xds/plane.ts';
import { ask, echoOf } from './stage/client.ts';
import { IngressStage, NAMESPACE, PUBLIC_PORT, tokenOf } from './stage/ingress-stage.ts';
import { HTTP_PORT, Sandboxes } from './stage/sandboxes.ts';

const test = suite('limits of the ingress gateway');
const sandboxes = new Sandboxes();
const [AWAKE, MOVED, LATE, HOLE] = ['127.0.78.1', '127.0.78.2', '127.0.78.3', '127.0.78.4'];
let stage: IngressStage;

test.before(async () => {
  await sandboxes.start(AWAKE);
  await sandboxes.start(MOVED);
  stage = await IngressStage.start();
});

test.after(async () => {
  await stage?.close();
  sandboxes.close();
});

const to = (name: string, port = HTTP_PORT, more: { readonly signal?: AbortSignal; readonly body?: Buffer } = {}) =>
  ask(stage.socketPath, {
    host: `${port}-${name}.localhost:${PUBLIC_PORT}`,
    headers: { 'x-access-token': tokenOf(name) },
    ...more,
  });

test('what opens its port a second after it is ready is still answered, with a body that no retry could repeat', async () => {
  await stage.create('late', LATE, { paused: true });
  const answer = to('late', HTTP_PORT, { body: Buffer.alloc(3_000_000, 'x') });
  await until(async () => !(await stage.spec('late')).paused, 5000, 'wake');
  await stage.report('late', 'Running', LATE);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  await sandboxes.start(LATE);
  assert.is(echoOf(await answer).body.length, 3_000_000);
});

/** A listener that accepts nothing and whose queue is full, so that the kernel drops every new connection. */
async function blackHole(address: string): Promise<{ readonly port: number; close(): void }> {
  const program = `require('node:net').createServer().listen({ host: '${address}', port: 0, backlog: 1 }, function () {
    require('node:fs').writeSync(1, String(this.address().port));
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 30000);
  })`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [text] = (await once(child.stdout, 'data')) as [Buffer];
  const port = Number(text);
  const fillers = Array.from({ length: 8 }, () => connect({ host: address, port }).on('error', () => {}));
  await new Promise((resolve) => setTimeout(resolve, 100));
  return {
    port,
    close() {
      child.kill('SIGKILL');
      for (const filler of fillers) {
        filler.destroy();
      }
    },
  };
}

test('an address that drops packets is given up after about five seconds (ingress-gateway §4.2)', async () => {
  const hole = await blackHole(HOLE);
  try {
    await stage.create('hole', HOLE);
    await stage.publish({ hole: HOLE });
    const begun = performance.now();
    const { status } = await to('hole', hole.port, { signal: AbortSignal.timeout(15_000) });
    const took = performance.now() - begun;
    assert.is(status, 503);
    assert.ok(took > 3000 && took < 9000, `${took.toFixed(0)} ms`);
  } finally {
    hole.close();
  }
});

async function sent(): Promise<Readonly<Record<string, number>>> {
  const { values } = await resourcesTotal.get();
  return Object.fromEntries(values.map(({ labels, value }) => [`${labels['type']} ${labels['kind']}`, value]));
}

test('of ten thousand routes one that moves is one scope on the wire, in force for the next request', async () => {
  const settings = { domain: 'localhost', ingressSocket: stage.socketPath, publicPort: PUBLIC_PORT };
  const routes = Array.from({ length: 10_000 }, (_, index) => routeTo(`s${index}`, AWAKE));
  const publish = async () => {
    const resources = compileIngress(routes, settings);
    const sequence = stage.plane.publish('ingress', resources);
    await until(() => stage.plane.settled.includes(`ingress ${sequence}`), 30_000, `settlement of ${sequence}`);
  };
  await publish();
  assert.is(echoOf(await to('s5000')).address, AWAKE);
  const before = await sent();
  const begun = performance.now();
  routes[5000] = routeTo('s5000', MOVED);
  await publish();
  console.log(`  compiled, sent and acknowledged in ${(performance.now() - begun).toFixed(0)} ms`);
  const after = await sent();
  assert.equal(
    Object.entries(after).filter(([name, count]) => count !== (before[name] ?? 0)),
    [['scope sent', before['scope sent']! + 1]],
  );
  assert.is(echoOf(await to('s5000')).address, MOVED);
});

function routeTo(id: string, address: string): IngressRoute {
  const ref = { kind: 'Sandbox', namespace: NAMESPACE, name: id };
  return { id, uid: `uid-${id}`, address, token: new Redacted(tokenOf(id)), ref };
}

test.run();
