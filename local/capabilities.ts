import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorText } from '../base/errors.ts';
import { AddressPool } from './addresses.ts';
import { findCgroups } from './cgroups.ts';
import { startContainer } from './container-process.ts';
import { createLayout, layoutOf } from './layout.ts';
import { openNode } from './node-namespace.ts';
import { openSandboxNamespace } from './sandbox-namespace.ts';
import { findProgram, installCommand, missingTools } from './tools.ts';

/** One thing that local mode looks for on a machine. */
export interface Capability {
  readonly name: string;
  readonly ok: boolean;
  /** Without it there is no isolation at all. */
  readonly required: boolean;
  /** What was found, or what follows from its absence. */
  readonly detail: string;
  /** The one command that mends it; null when there is none or nothing to mend. */
  readonly fix: string | null;
}

/** What this machine can do (D15). */
export interface Capabilities {
  /** `namespaces`: sandboxes are isolated; `advisory`: they could only be asked to use a proxy. */
  readonly mode: 'namespaces' | 'advisory';
  readonly list: readonly Capability[];
}

/**
 * Finds out what this machine can do, by trying it: a node namespace, a sandbox with capture rules and a container are
 * made and removed again. Takes about half a second; nothing stays.
 */
export async function detectCapabilities(): Promise<Capabilities> {
  const list = [platform(), tools()];
  if (list.every(({ ok }) => ok)) {
    list.push(await namespaces());
  }
  const possible = list.every(({ ok }) => ok);
  return {
    mode: possible ? 'namespaces' : 'advisory',
    list: [...list, freezer(), limits(), rootFolders(), terminal()],
  };
}

function platform(): Capability {
  const ok = process.platform === 'linux';
  const detail = ok ? 'Linux' : `${process.platform}: namespaces are a feature of Linux`;
  return { name: 'platform', ok, required: true, detail, fix: null };
}

function tools(): Capability {
  const missing = missingTools();
  const ok = missing.length === 0;
  return {
    name: 'tools',
    ok,
    required: true,
    detail: ok ? 'util-linux, iproute2, nftables' : `not found: ${missing.join(', ')}`,
    fix: ok ? null : installCommand(missing),
  };
}

async function namespaces(): Promise<Capability> {
  const who = process.getuid!() === 0 ? 'as root' : 'as an ordinary user';
  const problem = await trial().then(() => null, errorText);
  return {
    name: 'namespaces',
    ok: problem === null,
    required: true,
    detail: problem === null ? `a sandbox was made and removed ${who}` : `no sandbox could be made ${who}: ${problem}`,
    fix: problem === null ? null : permission(),
  };
}

/** Switches of the kernel and of distributions that forbid user namespaces. */
function permission(): string | null {
  const switches = [
    ['kernel.unprivileged_userns_clone', '0', '1'],
    ['kernel.apparmor_restrict_unprivileged_userns', '1', '0'],
    ['user.max_user_namespaces', '0', '15000'],
  ] as const;
  for (const [name, forbids, allows] of switches) {
    const file = `/proc/sys/${name.replace('.', '/')}`;
    if (existsSync(file) && readFileSync(file, 'utf8').trim() === forbids) {
      return `sysctl -w ${name}=${allows}`;
    }
  }
  return null;
}

async function trial(): Promise<void> {
  const layout = layoutOf(await mkdtemp(join(tmpdir(), 'sg-doctor-')));
  try {
    await createLayout(layout);
    const node = await openNode(layout);
    try {
      const address = await (await AddressPool.open(layout.sandboxes)).take();
      const sandbox = await openSandboxNamespace(node, address);
      const log = openSync('/dev/null', 'a');
      try {
        const plan = {
          folder: join(layout.sandboxes, 'trial'),
          byRoot: node.byRoot,
          hostname: 'trial',
          podAddress: address.ipv4,
          outerUid: node.sandboxUid(address.index),
          ...{ uid: 0, gid: 0, env: { PATH: '/usr/bin:/bin' }, workingDir: '/', mounts: [], argv: ['true'] },
        };
        const { exited } = await startContainer(plan, { node, holderPid: sandbox.holder.pid, joinFiles: [], log });
        await exited;
      } finally {
        closeSync(log);
        await sandbox.close();
      }
    } finally {
      await node.close();
    }
  } finally {
    await rm(layout.dir, { recursive: true, force: true });
    await rm(layout.run, { recursive: true, force: true });
  }
}

function freezer(): Capability {
  const roots = process.platform === 'linux' ? findCgroups() : null;
  const how = roots?.unified != null ? 'control groups v2' : roots?.freezer != null ? 'control groups v1' : 'SIGSTOP';
  return { name: 'pause', ok: true, required: false, detail: `sandboxes are frozen by ${how}`, fix: null };
}

function limits(): Capability {
  const roots = process.platform === 'linux' ? findCgroups() : null;
  const ok = roots?.memory != null || roots?.unified != null;
  const detail = ok ? 'by control groups' : 'no control group is writable: memory and processes are not limited';
  return { name: 'limits', ok, required: false, detail, fix: null };
}

function rootFolders(): Capability {
  const byRoot = process.getuid?.() === 0;
  const detail = byRoot ? "/usr is a copy-on-write view of the machine's" : "/usr is the machine's, read-only";
  return { name: 'root file system', ok: true, required: false, detail, fix: null };
}

function terminal(): Capability {
  const ok = findProgram('script') !== null;
  const detail = ok ? 'exec gives a terminal of its own' : 'exec gives no terminal: the program "script" is missing';
  return { name: 'terminal', ok, required: false, detail, fix: ok ? null : 'apt-get install --yes bsdutils' };
}
