import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { type Bootstrap, pipe, writeBootstrap } from '../../envoy/bootstrap-common.ts';
import { egressBootstrap } from '../../envoy/bootstrap-egress.ts';
import { ingressBootstrap } from '../../envoy/bootstrap-ingress.ts';
import { sidecarBootstrap } from '../../envoy/bootstrap-sidecar.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { superviseEnvoy } from '../../envoy/supervise.ts';
import { replacePrivate } from '../../identity/files.ts';
import { eventually, type Plane, startPlane } from './plane.ts';

const test = suite('bootstrap');
const run = promisify(execFile);
let plane: Plane;
let binary: string;

test.before(async () => {
  binary = await findEnvoy();
  plane = await startPlane([
    {
      name: 'outbound',
      address: { socketAddress: { address: '127.0.0.1', portValue: 0 } },
      filterChains: [{ filters: [] }],
    },
  ]);
});
test.after(() => plane.close());

const roles: Readonly<Record<string, () => Bootstrap>> = {
  egress: () => egressBootstrap({ ...plane.settings('egress'), processorSocket: join(plane.folder, 'p.sock') }),
  ingress: () => ingressBootstrap({ ...plane.settings('ingress'), processorSocket: join(plane.folder, 'p.sock') }),
  sidecar: () => sidecarBootstrap({ ...plane.settings('sidecar'), gatewaySocket: join(plane.folder, 'egress.sock') }),
};

for (const [role, bootstrap] of Object.entries(roles)) {
  test(`Envoy accepts the bootstrap of the ${role}`, async () => {
    const path = await writeBootstrap(bootstrap());
    assert.is(statSync(path).mode & 0o777, 0o600);
    const { stderr } = await run(binary, ['--mode', 'validate', '-c', path, '--reject-unknown-dynamic-fields']);
    assert.not.match(stderr, /deprecated|no configured limit/i);
  });
}

test('a bootstrap is the same text each time', () => {
  assert.equal(roles['egress']!(), roles['egress']!());
});

test('a socket path that does not fit is refused', () => {
  assert.is(pipe(`/${'a'.repeat(106)}`, 0o600).pipe?.mode, 0o600);
  for (const path of [`/${'a'.repeat(107)}`, 'relative.sock', `/${'é'.repeat(60)}`]) {
    assert.throws(
      () => pipe(path),
      (error: unknown) => isCoded(error, 'socket-path'),
    );
  }
});

test('Envoy subscribes by delta over mutual TLS, goes live, and takes a renewed certificate', async () => {
  const bootstrap = roles['egress']!();
  const envoy = superviseEnvoy({
    binary,
    bootstrapPath: await writeBootstrap(bootstrap),
    adminSocket: plane.settings('egress').adminSocket,
    logger: silentLogger,
    concurrency: 1,
    drainSeconds: 1,
    listeners: ['outbound'],
  });
  try {
    await envoy.ready(15_000);
    assert.equal(plane.methods, ['delta']);
    assert.equal(plane.nodes, ['egress-1']);
    assert.equal(plane.refusals, []);
    assert.equal(
      (await envoy.admin.listeners()).map(({ name }) => name),
      ['outbound'],
    );
    assert.is(statSync(plane.settings('egress').adminSocket).mode & 0o777, 0o600);
    const stats = await envoy.admin.stats('^cluster\\.xds\\.|control_plane.connected_state');
    assert.is(stats['control_plane.connected_state'], 1);
    assert.is(stats['cluster.xds.ssl.versions.TLSv1.3'], 1);
    const updates = async (): Promise<number> =>
      (await envoy.admin.stats('ssl_context_update_by_sds'))[
        'cluster.xds.client_ssl_socket_factory.ssl_context_update_by_sds'
      ] ?? 0;
    const before = await updates();
    const { certificatePem } = await plane.pki.issueRoleCertificate('egress');
    await replacePrivate(join(plane.pki.directory, 'egress.crt'), certificatePem.replace(/\n$/, '\n\n'));
    await eventually('the renewed certificate is taken', async () => (await updates()) > before);
  } finally {
    await envoy.stop();
  }
});

test('a server with another identity is refused', async () => {
  const wrong = sidecarBootstrap({ ...plane.settings('other'), gatewaySocket: plane.settings('other').xdsSocket });
  const context = JSON.stringify(wrong.json.staticResources?.clusters?.find(({ name }) => name === 'xds'));
  const json = JSON.parse(
    JSON.stringify(wrong.json).replace('role/control-plane', 'role/ingress'),
  ) as Bootstrap['json'];
  assert.match(context, /role\/control-plane/);
  const envoy = superviseEnvoy({
    binary,
    bootstrapPath: await writeBootstrap({ ...wrong, json }),
    adminSocket: plane.settings('other').adminSocket,
    logger: silentLogger,
    concurrency: 1,
    drainSeconds: 1,
  });
  try {
    await eventually('the handshake fails', async () => {
      const stats = await envoy.admin.stats('^cluster\\.xds\\.ssl').catch(() => ({}) as Record<string, number>);
      return (stats['cluster.xds.ssl.fail_verify_san'] ?? 0) > 0;
    });
    assert.is(envoy.state, 'starting');
    assert.not.ok(plane.nodes.includes('other-1'));
  } finally {
    await envoy.stop();
  }
});

test.run();
