/**
 * An Envoy that resets every ext_proc stream, as it does without the runtime flag of our bootstraps, and as it does for
 * every client that leaves: Node would end the one connection of all requests after about a thousand.
 */
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { silentLogger } from '../../base/logger.ts';
import { writeBootstrap } from '../../envoy/bootstrap-common.ts';
import { ingressBootstrap } from '../../envoy/bootstrap-ingress.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { type EnvoyProcess, superviseEnvoy } from '../../envoy/supervise.ts';
import { type ExtProcServer, serveExtProc } from '../../extproc/server.ts';
import { compileIngress } from '../../policy-compiler/ingress.ts';
import { Plane, until } from '../xds/plane.ts';

const TOTAL = 5500;
const LANES = 16;
const FLAG = 'envoy.reloadable_features.ext_proc_graceful_grpc_close';

const test = suite('resets of ext_proc streams');
let plane: Plane;
let processor: ExtProcServer;
let envoy: EnvoyProcess;
let release = () => {};

test.before(async () => {
  plane = await Plane.create();
  await plane.start();
  const ingressSocket = join(plane.directory, 'ingress.sock');
  const processorSocket = join(plane.directory, 'processor.sock');
  processor = await serveExtProc({
    socketPath: processorSocket,
    logger: silentLogger,
    async handler(head, context) {
      if (head.authority === 'held.test') {
        context.extend(60);
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      }
      return { kind: 'respond', status: 418, body: head.authority, details: 'test' };
    },
  });
  const role = await plane.pki.issueRoleCertificate('ingress');
  const adminSocket = join(plane.directory, 'admin.sock');
  const bootstrap = ingressBootstrap({
    id: 'test',
    folder: plane.directory,
    xdsSocket: plane.socketPath,
    adminSocket,
    certificate: { certificateFile: role.certificateFile, keyFile: role.keyFile, caFile: plane.pki.caFile },
    processorSocket,
  });
  const layeredRuntime = { layers: [{ name: 'static', staticLayer: { [FLAG]: false } }] };
  envoy = superviseEnvoy({
    binary: await findEnvoy(),
    bootstrapPath: await writeBootstrap({ ...bootstrap, json: { ...bootstrap.json, layeredRuntime } }),
    adminSocket,
    logger: silentLogger,
    concurrency: 1,
    drainSeconds: 1,
    listeners: ['ingress'],
  });
  const settings = { domain: 'localhost', ingressSocket, publicPort: 8080 };
  plane.publish('ingress', compileIngress([], settings));
  await envoy.ready(20_000);
});

test.after(async () => {
  await envoy?.stop();
  await processor?.close();
  await plane?.close();
});

function ask(host: string, agent: Agent | false): Promise<string> {
  return new Promise((resolve) => {
    const sent = request({ socketPath: join(plane.directory, 'ingress.sock'), agent, headers: { host } }, (answer) => {
      let body = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      answer.once('end', () => resolve(`${answer.statusCode} ${body}`));
    });
    sent.once('error', (error) => resolve(error.message));
    sent.end();
  });
}

/** How often each answer came. */
async function flood(total: number): Promise<Readonly<Record<string, number>>> {
  const agent = new Agent({ keepAlive: true, maxSockets: LANES });
  const seen: Record<string, number> = {};
  let next = 0;
  const lane = async () => {
    while (next++ < total) {
      const answer = await ask('any.test', agent);
      seen[answer] = (seen[answer] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  agent.destroy();
  return seen;
}

const stat = async (name: string) => (await envoy.admin.stats(`^cluster\\.processor\\.`))[`cluster.processor.${name}`];

test(`${TOTAL} resets on one connection fail no request, nor one that is held meanwhile`, async () => {
  const held = ask('held.test', false);
  await until(async () => (await stat('upstream_rq_active')) === 1, 5000, 'held request');
  assert.equal(await flood(TOTAL), { '418 any.test': TOTAL });
  assert.ok((await stat('http2.tx_reset'))! > 5000);
  assert.is(await stat('upstream_cx_total'), 1);
  release();
  assert.is(await held, '418 held.test');
});

test.run();
