import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { findEnvoy } from '../../envoy/find.ts';
import { allPids, childrenOf } from '../../local/process-record.ts';
import { any, type EnvoyJson } from '../../proto/resource.ts';
import { type Plane, startPlane } from '../envoy/plane.ts';
import { isSecondRun, repeatAsUser, shouldRepeat } from './as-user.ts';
import { conditionOf, eventually, LocalPlane, NAMESPACE, type Output, shell } from './harness.ts';

const HCM = 'envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager';
const ANSWER: EnvoyJson[typeof HCM] = {
  statPrefix: 'outbound',
  routeConfig: {
    virtualHosts: [
      {
        name: 'all',
        domains: ['*'],
        routes: [{ match: { prefix: '/' }, directResponse: { status: 200, body: { inlineString: 'captured' } } }],
      },
    ],
  },
  httpFilters: [{ name: 'router', typedConfig: any('envoy.extensions.filters.http.router.v3.Router', {}) }],
};
const test = suite<{ plane: LocalPlane; xds: Plane }>(`sidecar${isSecondRun ? ' of an ordinary user' : ''}`);

test.before(async (context) => {
  context.xds = await startPlane([
    {
      name: 'outbound',
      address: { socketAddress: { address: '::', portValue: 15001, ipv4Compat: true } },
      filterChains: [{ filters: [{ name: 'hcm', typedConfig: any(HCM, ANSWER) }] }],
    },
  ]);
  context.plane = await LocalPlane.open('', { envoyPath: await findEnvoy(), pki: context.xds.pki });
});

test.after(async ({ plane, xds }) => {
  await plane?.close();
  await xds.close();
});

const FETCH = 'import urllib.request; print(urllib.request.urlopen("http://192.0.2.1/", timeout=3).read().decode())';
const fetch = (plane: LocalPlane): Promise<Output> => plane.exec('box', ['/usr/bin/python3', '-c', FETCH]);

function envoyOf(folder: string): number | null {
  const found = allPids().find((pid) => {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return words.includes(join(folder, 'envoy-sidecar.json')) && readlinkSync(`/proc/${pid}/exe`).includes('envoy');
    } catch {
      return false;
    }
  });
  return found ?? null;
}

test('a Pod is not ready, and its program not started, before the outbound listener is up', async ({ plane, xds }) => {
  const sandbox = await plane.store.create({
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'Sandbox',
    metadata: { name: 'box', namespace: NAMESPACE },
    spec: {},
  });
  const { uid } = sandbox.metadata;
  const owner = { apiVersion: sandbox.apiVersion, kind: 'Sandbox', name: 'box', uid, controller: true };
  await plane.createPod('box', { containers: [shell('main', 'exec sleep 1000')] }, { ownerReferences: [owner] });
  const waiting = await plane.until(
    'box',
    (pod) => pod.status?.containerStatuses?.[0]?.state?.waiting?.message?.includes('sidecar') === true,
  );
  assert.is(conditionOf(waiting, 'Ready'), 'False');
  assert.ok(waiting.status!.podIP);
  await symlink(join(xds.folder, 'xds.sock'), plane.layout.socket('xds'));
  await plane.ready('box');
  assert.equal(new Set(xds.nodes), new Set([`sidecar-${uid}`]));
});

test('what the sandbox sends is captured, whatever the address', async ({ plane }) => {
  assert.is((await fetch(plane)).out.trim(), 'captured');
});

test('the sidecar shares the network of the sandbox and nothing else, and has no capability', async ({ plane }) => {
  const pod = (await plane.pod('box'))!;
  const folder = plane.layout.sandbox(pod.metadata.uid!);
  const pid = (await eventually('the sidecar', () => envoyOf(folder)))!;
  const holder = JSON.parse(readFileSync(join(folder, 'holder.json'), 'utf8')) as { pid: number };
  const same = (name: string, other: number | string): boolean =>
    readlinkSync(`/proc/${pid}/ns/${name}`) === readlinkSync(`/proc/${other}/ns/${name}`);
  assert.ok(same('net', holder.pid));
  assert.ok(same('mnt', 'self') && same('pid', 'self'));
  assert.not.ok(same('user', 'self'));
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  assert.match(status, /CapEff:\t0{16}\n/);
  assert.match(status, /CapBnd:\t0{16}\n/);
  assert.match(status, /NoNewPrivs:\t1/);
  for (const file of ['sidecar.crt', 'sidecar.key', 'envoy-sidecar.json']) {
    assert.is(statSync(join(folder, file)).mode & 0o777, 0o600, file);
  }
  const found = await plane.sh(
    'box',
    'find / -xdev -name "sidecar*" 2>/dev/null; grep -l envo[y] /proc/[0-9]*/cmdline; true',
  );
  assert.is(found.out, '');
});

test('without its sidecar a sandbox is closed, and the sidecar comes back', async ({ plane }) => {
  const pod = (await plane.pod('box'))!;
  const folder = plane.layout.sandbox(pod.metadata.uid!);
  const pid = envoyOf(folder)!;
  process.kill(pid, 'SIGSTOP');
  process.kill(pid, 'SIGKILL');
  const closed = await fetch(plane);
  const back = Date.now();
  // Either it was closed, or the new one was there first; never anything else.
  assert.ok(/refused|reset/i.test(closed.err) || closed.out.trim() === 'captured', closed.err);
  await eventually(
    'the next sidecar',
    async () => ((await fetch(plane)).out.trim() === 'captured' ? true : null),
    5000,
  );
  assert.ok(Date.now() - back < 2500);
  assert.is.not(envoyOf(folder), pid);
});

test('a Pod of no Sandbox gets no sidecar and reaches nothing', async ({ plane }) => {
  await plane.createPod('stray', { containers: [shell('main', 'exec sleep 1000')] });
  await plane.ready('stray');
  const { err, code } = await plane.exec('stray', ['/usr/bin/python3', '-c', FETCH]);
  assert.is.not(code, 0);
  assert.match(err, /refused/i);
});

test('certificate, key, socket and process go with the Pod', async ({ plane }) => {
  const pod = (await plane.pod('box'))!;
  const folder = plane.layout.sandbox(pod.metadata.uid!);
  await plane.store.delete('Pod', { namespace: 'default', name: 'box' });
  await plane.gone('box');
  assert.is(envoyOf(folder), null);
  assert.not.ok(existsSync(folder));
  assert.equal(
    readdirSync(plane.layout.run).filter((name) => name.startsWith('envoy-sidecar')),
    [],
  );
  assert.ok(childrenOf(process.pid).length > 0);
});

if (shouldRepeat) {
  test('all of it holds for an ordinary user too', async () => {
    const { code, output } = await repeatAsUser(import.meta.url, { envoy: await findEnvoy() });
    assert.is(code, 0, output);
  });
}

test.run();
