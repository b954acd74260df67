import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { CodedError } from '../base/errors.ts';
import { captureRules } from '../envoy/capture.ts';
import type { SandboxAddress } from './addresses.ts';
import { bridgeLines, NODE_ADDRESS, NODE_ADDRESS_6, type NodeNamespace } from './node-namespace.ts';
import { childrenOf, killAndWait, type RecordedProcess, recordOf } from './process-record.ts';
import { run, TOOL_ENVIRONMENT } from './shell.ts';

/** The namespaces that a Pod's containers share: its network, and a pid namespace whose end is theirs. */
export interface SandboxNamespace {
  /** First process of the pid namespace; it belongs to the node, and the containers cannot see it. */
  readonly holder: RecordedProcess;
  /** Kills every process of the Pod, whatever it has become, and with the last one its network. */
  close(): Promise<void>;
}

/**
 * Makes a Pod's network and pid namespace, owned by the node's user namespace, with the capture rules in force before
 * the address is reachable (D15). The holder reads a pipe from this process and so ends with it, and the kernel kills
 * what is in the pid namespace then.
 */
export async function openSandboxNamespace(node: NodeNamespace, address: SandboxAddress): Promise<SandboxNamespace> {
  const { tools } = node;
  const unshare = [tools.unshare, '--net', '--pid', '--fork', '--kill-child', '--', '/bin/sh', '-c', 'exec cat'];
  const [file, ...rest] = node.admin([tools.setpriv, '--pdeathsig', 'KILL', '--', ...unshare]);
  const parent = spawn(file!, rest, { env: TOOL_ENVIRONMENT, stdio: ['pipe', 'ignore', 'ignore'], detached: true });
  const ended = new Promise<void>((done) => parent.once('close', () => done()).once('error', () => done()));
  const close = async (holder?: RecordedProcess): Promise<void> => {
    parent.stdin.destroy();
    if (holder !== undefined) {
      await killAndWait(holder);
    }
    parent.kill('SIGKILL');
    await ended;
  };
  parent.stdin.on('error', () => {});
  try {
    const holder = await holderOf(parent.pid);
    await connect(node, holder.pid, address);
    return { holder, close: () => close(holder) };
  } catch (error) {
    await close();
    throw error;
  }
}

async function holderOf(parent: number | undefined): Promise<RecordedProcess> {
  for (let tries = 0; parent !== undefined && tries < 1000; tries += 1) {
    const [child] = childrenOf(parent);
    if (child !== undefined) {
      return recordOf(child);
    }
    await sleep(2);
  }
  throw new CodedError('no-namespaces', 'the namespaces of a sandbox did not come up');
}

async function connect(node: NodeNamespace, holderPid: number, address: SandboxAddress): Promise<void> {
  const { ip, nft } = node.tools;
  await run(node.admin([nft, '-f', '-'], holderPid), captureRules());
  await run(node.admin([ip, '-batch', '-']), bridgeLines(`sg${address.index}`, holderPid));
  const lines = [
    'link set lo up',
    `addr add ${address.ipv4}/16 dev eth0`,
    'link set eth0 up',
    `route add default via ${NODE_ADDRESS}`,
  ];
  if (node.ipv6) {
    lines.push(`addr add ${address.ipv6}/64 dev eth0 nodad`, `route add default via ${NODE_ADDRESS_6}`);
  }
  await run(node.admin([ip, '-batch', '-'], holderPid), `${lines.join('\n')}\n`);
}
