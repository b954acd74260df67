import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Clock } from '../../base/clock.ts';
import { silentLogger } from '../../base/logger.ts';
import { writeBootstrap } from '../../envoy/bootstrap-common.ts';
import { egressBootstrap } from '../../envoy/bootstrap-egress.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { type EnvoyProcess, superviseEnvoy } from '../../envoy/supervise.ts';
import type { Certificate } from '../../identity/certificates.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { sandboxId } from '../../identity/spiffe.ts';
import { Tunnel } from '../e2e/tunnel.ts';
import { ControlStage, metric, trafficPolicy, until } from './stage.ts';

/** The certificate that the gateway shows to sidecars, over a real Envoy. */
const certificate = suite('certificate of the egress gateway');

const NAME = 'echo.test';
const HOUR_MS = 3_600_000;

/** Everything is issued 20 hours ago, so that the certificates of 24 hours are due; moved to now, they are renewed. */
class ShiftedClock implements Clock {
  shiftMs = -20 * HOUR_MS;

  now(): number {
    return Date.now() + this.shiftMs;
  }
}

const clock = new ShiftedClock();
let stage: ControlStage;
let envoy: EnvoyProcess;
let echo: Server;
let present: Pki;
let own: Certificate;
let uid: string;
let podUid: string;
const tunnels: Tunnel[] = [];

certificate.before(async () => {
  echo = createServer((socket: Socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => echo.once('listening', resolve));
  stage = await ControlStage.create(clock);
  uid = await stage.sandbox('one', { app: 'a' });
  podUid = (await stage.store.get('Pod', { namespace: 'default', name: 'one' })).metadata.uid!;
  await stage.store.create(trafficPolicy('tp', 'a', [{ action: 'allow', to: [{ fqdn: NAME }] }]));
  const { port } = echo.address() as { port: number };
  await stage.start({
    world: { hosts: { [NAME]: { address: '127.0.0.1', port } }, rootNamespace: 'sandbox-system' },
    renewMs: 200,
  });
  // Tokens are verified by Envoy's own clock.
  present = await openPki(join(stage.directory, 'pki'));
  own = await present.issueSidecarCertificate({ namespace: 'default', uid });
  envoy = await startGateway();
});

certificate.after(async () => {
  for (const tunnel of tunnels) {
    tunnel.close();
  }
  await envoy?.stop();
  await stage?.close();
  echo?.close();
});

async function startGateway(): Promise<EnvoyProcess> {
  const { directory, pki, xdsSocket } = stage;
  const role = await pki.issueRoleCertificate('egress');
  const adminSocket = join(directory, 'admin.sock');
  const bootstrap = egressBootstrap({
    id: 'egress',
    folder: join(directory, 'envoy'),
    xdsSocket,
    adminSocket,
    certificate: { certificateFile: role.certificateFile, keyFile: role.keyFile, caFile: pki.caFile },
    processorSocket: join(directory, 'processor.sock'),
  });
  const started = superviseEnvoy({
    binary: await findEnvoy(),
    bootstrapPath: await writeBootstrap(bootstrap),
    adminSocket,
    logger: silentLogger,
    concurrency: 1,
    drainSeconds: 1,
    listeners: ['egress'],
  });
  await started.ready(20_000);
  return started;
}

/** Serial number of the certificate that a new connection is shown. */
function shown(): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connectTls({
      path: stage.egressSocket,
      ca: stage.pki.caPem,
      cert: own.certificatePem,
      key: own.keyPem.reveal(),
      ALPNProtocols: ['h2'],
      minVersion: 'TLSv1.3',
      checkServerIdentity: () => undefined,
    });
    socket.once('secureConnect', () => {
      resolve(socket.getPeerCertificate().serialNumber);
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

async function open(tunnel: Tunnel) {
  const subject = { uid, pod: podUid, spiffeId: sandboxId({ namespace: 'default', uid }) };
  const { token } = await (await present.tokens()).issue(subject);
  const virtual = stage.plane.world.facts.virtualAddresses[NAME];
  const { status, stream } = await tunnel.open(`${virtual}:7777`, { 'x-sandbox-token': token.reveal() });
  assert.is(status, 200);
  stream.setTimeout(0);
  return stream;
}

function echoed(stream: Awaited<ReturnType<typeof open>>, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no echo of ${text}`)), 5000);
    stream.once('data', (data: Buffer) => {
      clearTimeout(timer);
      resolve(String(data));
    });
    stream.write(text);
  });
}

certificate('a renewal reaches new connections; open tunnels go on, and no listener is sent', async () => {
  const tunnel = new Tunnel({ socketPath: stage.egressSocket, caPem: stage.pki.caPem, certificate: own });
  tunnels.push(tunnel);
  await stage.settled();
  const stream = await open(tunnel);
  let isClosed = false;
  stream.once('close', () => {
    isClosed = true;
  });
  assert.is(await echoed(stream, 'before'), 'before');
  const before = await shown();
  const listeners = await metric('sandgate_xds_resources_total', { type: 'listener', kind: 'sent' });
  const secrets = await metric('sandgate_xds_resources_total', { type: 'secret', kind: 'sent' });

  clock.shiftMs = 0;
  await until('the renewed certificate', 10_000, async () => (await shown()) !== before);

  assert.is(isClosed, false);
  assert.is(await echoed(stream, 'after'), 'after');
  assert.is(
    await echoed(await open(tunnel), 'another stream of the same connection'),
    'another stream of the same connection',
  );
  const fresh = new Tunnel({ socketPath: stage.egressSocket, caPem: stage.pki.caPem, certificate: own });
  tunnels.push(fresh);
  assert.is(await echoed(await open(fresh), 'fresh'), 'fresh');
  // Longer than the drain time: a listener that was replaced would have ended the tunnel by now.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  assert.is(isClosed, false);
  assert.is(await metric('sandgate_xds_resources_total', { type: 'listener', kind: 'sent' }), listeners);
  assert.is(await metric('sandgate_xds_resources_total', { type: 'secret', kind: 'sent' }), secrets + 1);
});

certificate('nothing of the key is in what may be printed', () => {
  const { compilation } = stage.plane.plane.published!;
  assert.not.match(JSON.stringify(compilation.egress), /BEGIN|egress\.key|egress\.crt/);
});

certificate.run();
