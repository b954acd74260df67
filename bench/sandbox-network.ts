/** A sandbox's network and sidecar, as the node agent makes them, with nothing else of a sandbox. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sidecarBootstrap } from '../envoy/bootstrap-sidecar.ts';
import { captureRules } from '../envoy/capture.ts';
import type { EnvoyProcess } from '../envoy/supervise.ts';
import { findTools } from '../local/tools.ts';
import { startEnvoy } from './envoys.ts';
import type { BenchPlane } from './plane.ts';
import type { Stage } from './suite.ts';

export interface SandboxNetwork {
  readonly sidecar: EnvoyProcess;
  /** Prefix of a command that is to run in the sandbox's network. */
  readonly enter: readonly string[];
}

/** Ends with its standard input, and so with this process. */
const HOLDER = 'process.stdin.resume()';

const SETUP = [
  'ip link set lo up',
  'ip link add eth0 type veth peer name eth1',
  'ip addr add 10.244.0.2/24 dev eth0',
  'ip link set eth0 up',
  'ip link set eth1 up',
  'ip route add default via 10.244.0.1',
].join('; ');

/** Makes the network of one stored sandbox and starts its sidecar. */
export async function startSandboxNetwork(
  stage: Stage,
  plane: BenchPlane,
  identity: { readonly namespace: string; readonly uid: string },
): Promise<SandboxNetwork> {
  const tools = findTools();
  const holder = spawn(tools.unshare, ['--net', process.execPath, '-e', HOLDER], {
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  const ended = once(holder, 'exit');
  stage.defer(async () => {
    holder.stdin.end();
    await ended;
  });
  await once(holder, 'spawn');
  await isApart(holder.pid!);
  const enter = [tools.nsenter, '--net', '--target', String(holder.pid)];
  await sh(enter, SETUP);
  await sh(enter, `${tools.nft} -f -`, captureRules());
  const { layout, pki } = plane;
  const folder = join(layout.sandboxes, identity.uid);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { certificatePem, keyPem } = await pki.issueSidecarCertificate(identity);
  const certificate = {
    certificateFile: join(folder, 'sidecar.crt'),
    keyFile: join(folder, 'sidecar.key'),
    caFile: pki.caFile,
  };
  await writeFile(certificate.certificateFile, certificatePem, { mode: 0o600 });
  await writeFile(certificate.keyFile, keyPem.reveal(), { mode: 0o600 });
  const adminSocket = layout.socket('envoy-sidecar-1');
  const bootstrap = sidecarBootstrap({
    id: `sidecar-${identity.uid}`,
    folder,
    xdsSocket: layout.socket('xds'),
    adminSocket,
    gatewaySocket: layout.socket('egress'),
    certificate,
  });
  const sidecar = await startEnvoy(bootstrap, {
    name: 'sidecar',
    adminSocket,
    listeners: ['outbound'],
    place: 'rest',
    wrap: (argv) => [...enter, ...argv],
  });
  return { sidecar: stage.keep(sidecar), enter };
}

/** `unshare` replaces itself by the command only after it has made the namespace. */
async function isApart(pid: number): Promise<void> {
  const own = await readlink('/proc/self/ns/net');
  for (let tries = 0; (await readlink(`/proc/${pid}/ns/net`)) === own; tries += 1) {
    if (tries > 200) {
      throw new Error('no network namespace could be made for the sandbox');
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function sh(prefix: readonly string[], script: string, input = ''): Promise<void> {
  return new Promise((resolve, reject) => {
    const argv = [...prefix, '/bin/sh', '-ec', script];
    const child = execFile(argv[0]!, argv.slice(1), (error, _, stderr) =>
      error === null ? resolve() : reject(new Error(stderr.trim() || error.message)),
    );
    child.stdin?.end(input);
  });
}
