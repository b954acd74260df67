import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { CodedError } from '../base/errors.ts';
import type { Layout } from './layout.ts';
import { isRunning, killAndWait, type RecordedProcess, recordOf } from './process-record.ts';
import { run, TOOL_ENVIRONMENT } from './shell.ts';
import { findTools, type Tools } from './tools.ts';

/** Address of the bridge in the node namespace; sandboxes have the others of this range (D15). */
export const NODE_ADDRESS = '10.244.0.1';
export const NODE_ADDRESS_6 = 'fd53:6174:6e64::1';
const BRIDGE = 'sandgate0';

/** First of the user ids that sandboxes of a plane run by root have outside, one each: nobody's on any machine. */
const UID_BASE = 0x7000_0000;
const UID_COUNT = 0x1_0000;
/** The unprivileged user of a machine that maps too few ids, such as one in a container. */
const NOBODY = 65_534;

/** How the node's user namespace maps ids. Inside, 0 is always the plane's own user. */
interface IdMap {
  /** Lines `inside outside count`, of user and of group ids. */
  readonly uids: string;
  readonly gids: string;
  /** Id inside the node namespace of the n-th sandbox's user; without capabilities it is nobody special. */
  readonly uidBase: number;
  readonly uidCount: number;
}

interface NodeRecord extends RecordedProcess {
  /** The process that made it and with which it ends. */
  readonly owner: RecordedProcess;
  readonly uidBase: number;
  readonly uidCount: number;
}

/** The node namespace: a user and a network namespace with a bridge, in which everything of local mode happens. */
export interface NodeNamespace {
  readonly holder: RecordedProcess;
  readonly tools: Tools;
  /** Whether the plane belongs to root; an ordinary user's sandboxes share that user's id outside. */
  readonly byRoot: boolean;
  /** Whether sandboxes have IPv6 addresses too. */
  readonly ipv6: boolean;
  /** Id of a sandbox's user, inside the node namespace and, for a plane of root, outside too. */
  sandboxUid(index: number): number;
  /** argv of a program of ours in the node's network: no capabilities, ends with its parent. Throws `node-gone`. */
  wrap(argv: readonly string[]): string[];
  /** The same in another network namespace that belongs to the node, such as a sandbox's. */
  wrapIn(networkPid: number, argv: readonly string[]): string[];
  /** argv of a tool with the node's own capabilities. */
  admin(argv: readonly string[], networkPid?: number): string[];
  /** The same in the network and pid namespace of a sandbox, of which this is the holder; ends with its parent. */
  enterSandbox(holderPid: number, argv: readonly string[]): string[];
  /** Ends the node namespace if this process made it. Whatever still runs in it ends or loses its network. */
  close(): Promise<void>;
}

/**
 * Makes the node namespace of a directory after ending what a killed predecessor left of it, and records it in
 * `run/node.json`. It lives as long as the calling process: its holder reads a pipe from here. Throws `missing-tools`,
 * `no-namespaces` (the machine forbids them), `already-running`.
 */
export async function openNode(layout: Layout): Promise<NodeNamespace> {
  const tools = findTools();
  await endRecordedNode(layout);
  const child = startHolder(tools);
  try {
    await firstByte(child);
    const map = idMap();
    writeMaps(child.pid!, map);
    child.stdin!.write('\n');
    await firstByte(child);
    const record: NodeRecord = {
      ...recordOf(child.pid!),
      owner: recordOf(process.pid),
      uidBase: map.uidBase,
      uidCount: map.uidCount,
    };
    const node = nodeOf(record, tools, async () => {
      child.stdin!.destroy();
      await killAndWait(record);
      await rm(layout.nodeRecord, { force: true });
    });
    await makeNetwork(node);
    await writeFile(layout.nodeRecord, JSON.stringify(record), { mode: 0o600 });
    return node;
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  }
}

/** The node namespace that another process of this plane has opened; throws `node-gone` when there is none. */
export async function attachNode(layout: Layout): Promise<NodeNamespace> {
  const record = await readRecord(layout);
  if (record === null || !isRunning(record)) {
    throw new CodedError('node-gone', `no node namespace of ${layout.dir} is running`);
  }
  return nodeOf(record, findTools(), async () => {});
}

async function readRecord(layout: Layout): Promise<NodeRecord | null> {
  try {
    return JSON.parse(await readFile(layout.nodeRecord, 'utf8')) as NodeRecord;
  } catch {
    return null;
  }
}

async function endRecordedNode(layout: Layout): Promise<void> {
  const record = await readRecord(layout);
  if (record !== null) {
    if (isRunning(record) && isRunning(record.owner)) {
      throw new CodedError('already-running', `process ${record.owner.pid} runs the plane of ${layout.dir} already`);
    }
    await killAndWait(record);
    await rm(layout.nodeRecord, { force: true });
  }
}

/** Two lines of answers: one when the namespaces are there, one when the maps are in force and it holds them. */
function startHolder(tools: Tools): ChildProcess {
  const script = 'echo; read -r go && echo && exec cat >/dev/null';
  return spawn(tools.unshare, ['--user', '--net', '--', '/bin/sh', '-c', script], {
    env: TOOL_ENVIRONMENT,
    stdio: ['pipe', 'pipe', 'pipe'],
    // A terminal's Ctrl-C must not end it before what lives in it.
    detached: true,
  });
}

async function firstByte(child: ChildProcess): Promise<void> {
  let complaint = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    complaint += text;
  });
  await new Promise<void>((done, failed) => {
    const end = (): void =>
      failed(new CodedError('no-namespaces', `this machine makes no user namespace: ${complaint.trim()}`));
    child.once('error', failed).once('close', end);
    child.stdout!.once('data', () => {
      child.off('close', end).off('error', failed);
      done();
    });
  });
}

/** What this process may map: root a range of foreign ids or at least `nobody`, an ordinary user only itself. */
function idMap(): IdMap {
  const [uid, gid] = [process.getuid!(), process.getgid!()];
  if (uid !== 0) {
    return { uids: `0 ${uid} 1\n`, gids: `0 ${gid} 1\n`, uidBase: 0, uidCount: 1 };
  }
  const wide = isMapped('uid', UID_BASE, UID_COUNT) && isMapped('gid', UID_BASE, UID_COUNT);
  const [uidBase, uidCount] = wide ? [UID_BASE, UID_COUNT] : [NOBODY, 1];
  if (!isMapped('uid', uidBase, uidCount) || !isMapped('gid', uidBase, uidCount)) {
    throw new CodedError('no-namespaces', 'root has no other user id here that a sandbox could run as');
  }
  const range = `${uidBase} ${uidBase} ${uidCount}\n`;
  // The machine's groups, so that folders of root and a group (staff, adm) can be handed to a sandbox in its own copy.
  const groups = wide && isMapped('gid', 0, NOBODY) ? NOBODY : 1;
  return { uids: `0 0 1\n${range}`, gids: `0 0 ${groups}\n${range}`, uidBase, uidCount };
}

function isMapped(kind: 'uid' | 'gid', first: number, count: number): boolean {
  return readFileSync(`/proc/self/${kind}_map`, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/ +/).map(Number))
    .some(([inside, , length]) => first >= inside! && first + count <= inside! + length!);
}

function writeMaps(pid: number, map: IdMap): void {
  try {
    if (process.getuid!() !== 0) {
      writeFileSync(`/proc/${pid}/setgroups`, 'deny');
    }
    writeFileSync(`/proc/${pid}/uid_map`, map.uids);
    writeFileSync(`/proc/${pid}/gid_map`, map.gids);
  } catch (error) {
    throw new CodedError('no-namespaces', 'this machine lets no user namespace map ids', { cause: error });
  }
}

function nodeOf(record: NodeRecord, tools: Tools, close: () => Promise<void>): NodeNamespace {
  const byRoot = process.getuid!() === 0;
  const enter = (networkPid: number, ...more: readonly string[]): string[] => {
    if (!isRunning(record)) {
      throw new CodedError('node-gone', 'the node namespace has ended');
    }
    const identity = byRoot ? [] : ['--preserve-credentials'];
    const namespaces = [`--user=/proc/${record.pid}/ns/user`, `--net=/proc/${networkPid}/ns/net`];
    return [tools.nsenter, ...identity, ...namespaces, ...more, '--'];
  };
  const drop = ['--no-new-privs', '--bounding-set', '-all', '--inh-caps', '-all', '--ambient-caps', '-all'];
  // Entering a user namespace clears the parent-death signal, so it is set afterwards.
  const wrapIn = (networkPid: number, argv: readonly string[]): string[] => [
    ...enter(networkPid),
    tools.setpriv,
    '--pdeathsig',
    'KILL',
    ...drop,
    '--',
    ...argv,
  ];
  return {
    holder: record,
    tools,
    byRoot,
    ipv6: existsSync('/proc/sys/net/ipv6'),
    sandboxUid: (index) => record.uidBase + (index % record.uidCount),
    wrap: (argv) => wrapIn(record.pid, argv),
    wrapIn,
    admin: (argv, networkPid = record.pid) => [...enter(networkPid), ...argv],
    enterSandbox: (holderPid, argv) => [
      ...enter(holderPid, `--pid=/proc/${holderPid}/ns/pid`),
      ...[tools.setpriv, '--pdeathsig', 'KILL', '--'],
      ...argv,
    ],
    close,
  };
}

/** Nothing in the node namespace takes connections from a sandbox, and sandboxes do not see each other. */
const NODE_RULES = `
table inet sandgate_node {
  chain input {
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
  }
}
`;

async function makeNetwork(node: NodeNamespace): Promise<void> {
  const lines = [
    'link set lo up',
    `link add name ${BRIDGE} type bridge`,
    `addr add ${NODE_ADDRESS}/16 dev ${BRIDGE}`,
    ...(node.ipv6 ? [`addr add ${NODE_ADDRESS_6}/64 dev ${BRIDGE} nodad`] : []),
    `link set ${BRIDGE} up`,
  ];
  await run(node.admin([node.tools.ip, '-batch', '-']), `${lines.join('\n')}\n`);
  await run(node.admin([node.tools.nft, '-f', '-']), NODE_RULES);
}

/** `ip -batch` lines that connect a sandbox's network namespace, held by that process, to the bridge. */
export function bridgeLines(link: string, holderPid: number): string {
  return [
    `link add name ${link} type veth peer name eth0 netns ${holderPid}`,
    `link set ${link} master ${BRIDGE}`,
    // Isolated ports reach the bridge's own address only.
    `link set ${link} type bridge_slave isolated on`,
    `link set ${link} up`,
    '',
  ].join('\n');
}
