import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pod } from '../api/pod.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import { Redacted } from '../base/redacted.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { joinCgroups } from './container-process.ts';
import { dropCapabilities, environmentLines, exportLines } from './container-setup.ts';
import type { Layout } from './layout.ts';
import { attachNode, type NodeNamespace } from './node-namespace.ts';
import { PodData } from './pod-data.ts';
import { isRunning, type RecordedProcess } from './process-record.ts';
import type { Settings } from './settings.ts';
import { quote, quoteAll, TOOL_ENVIRONMENT } from './shell.ts';
import { findProgram } from './tools.ts';

/** What the agent writes down about a running container: enough to enter it, and nothing secret. */
export interface ContainerRecord extends RecordedProcess {
  readonly uid: number;
  readonly gid: number;
  readonly workingDir: string;
  readonly joinFiles: readonly string[];
}

/** A command line to spawn with inherited standard streams. The environment holds the sandbox's secrets: never log it. */
export interface ExecSpec {
  readonly argv: readonly string[];
  readonly env: Redacted<Readonly<Record<string, string>>>;
}

export interface ExecTarget {
  readonly namespace: string;
  readonly name: string;
  /** The first one when absent. */
  readonly container?: string;
}

export interface ExecCommand {
  readonly command: readonly string[];
  /** Whether standard input is a terminal; the command then gets one of its own. */
  readonly tty: boolean;
}

function recordFile(layout: Layout, podUid: string, container: string): string {
  return join(layout.sandbox(podUid), 'containers', `${container}.json`);
}

/** Records a container that has just been started. */
export async function writeContainerRecord(
  layout: Layout,
  podUid: string,
  container: string,
  record: ContainerRecord,
): Promise<void> {
  await writeFile(recordFile(layout, podUid, container), JSON.stringify(record), { mode: 0o600 });
}

/**
 * How to run a command in a Pod's container (D20): with its user, directory, environment, namespaces and control groups,
 * without any capability; its traffic obeys the sandbox's policies. The status is the command's own, 126 and 127 as a
 * shell gives them, a signal for the caller to turn into 128 + n. Throws `not-found` (no such Pod or container),
 * `not-running`, `paused` (thaw it first), `no-terminal`.
 */
export async function execSpec(
  plane: { readonly store: ObjectStore; readonly layout: Layout; readonly settings: Settings },
  target: ExecTarget,
  { command, tty }: ExecCommand,
): Promise<ExecSpec> {
  const pod = (await plane.store.get('Pod', target)) as Pod;
  const container = pod.spec.containers.find(({ name }) => target.container === undefined || name === target.container);
  if (container === undefined) {
    const names = pod.spec.containers.map(({ name }) => name).join(', ');
    throw new CodedError(
      'not-found',
      `Pod ${target.namespace}/${target.name} has no container ${target.container}; it has ${names}`,
    );
  }
  if (isFrozen(pod)) {
    throw new CodedError('paused', `Pod ${target.namespace}/${target.name} is paused`);
  }
  const podUid = pod.metadata.uid ?? '';
  const record = await readRecord(plane.layout, podUid, container.name);
  const node = await attachNode(plane.layout).catch((error: unknown) => {
    throw isCoded(error, 'node-gone') ? notRunning(target) : error;
  });
  if (record === null || !isRunning(record)) {
    throw notRunning(target);
  }
  const { env } = await new PodData(plane.store, pod, pod.status?.podIP ?? '').program(container, plane.settings);
  return enterSpec(node, record, { command, tty }, env);
}

/** Whether the Pod says that its processes are frozen. */
export function isFrozen(pod: Pod): boolean {
  return (pod.status?.conditions ?? []).some(({ type, status }) => type === 'ContainersPaused' && status === 'True');
}

function notRunning(target: ExecTarget): CodedError {
  return new CodedError('not-running', `Pod ${target.namespace}/${target.name} is not running`);
}

async function readRecord(layout: Layout, podUid: string, container: string): Promise<ContainerRecord | null> {
  try {
    return JSON.parse(await readFile(recordFile(layout, podUid, container), 'utf8')) as ContainerRecord;
  } catch {
    return null;
  }
}

/** The same for a container of which everything is known. */
export function enterSpec(
  node: NodeNamespace,
  record: ContainerRecord,
  { command, tty }: ExecCommand,
  env: Redacted<Readonly<Record<string, string>>>,
): ExecSpec {
  const at = `/proc/${record.pid}/ns`;
  const namespaces = ['mnt', 'pid', 'ipc', 'uts', 'net', 'user'].map(
    (name) => `--${OPTION[name] ?? name}=${at}/${name}`,
  );
  // Root enters as the plane's user and becomes the sandbox's; an ordinary user is the sandbox's user already.
  const identity = node.byRoot ? ['-S', `${record.uid}`, '-G', `${record.gid}`] : ['--preserve-credentials'];
  const drop = dropCapabilities(record.uid === 0).toSpliced(1, 0, '--pdeathsig', 'KILL');
  const script = [
    ...environmentLines(),
    `cd ${quote(record.workingDir)} || exit 126`,
    'unset PWD OLDPWD',
    'exec "$@"',
  ].join('\n');
  const inner = [
    node.tools.nsenter,
    ...namespaces,
    ...identity,
    '--',
    ...drop,
    '/bin/sh',
    '-c',
    script,
    'sandgate',
    ...command,
  ];
  const argv = joinCgroups(record.joinFiles, node.admin(inner));
  const term = tty ? { TERM: process.env['TERM'] ?? 'xterm' } : {};
  return {
    argv: tty ? withTerminal(argv) : argv,
    env: new Redacted({ ...TOOL_ENVIRONMENT, SANDGATE_ENV: exportLines({ ...term, ...env.reveal() }) }),
  };
}

const OPTION: Readonly<Record<string, string>> = { mnt: 'mount' };

/**
 * A terminal of its own: with the caller's, a program in the sandbox could type into it what the caller's shell would
 * run afterwards (TIOCSTI).
 */
function withTerminal(argv: readonly string[]): string[] {
  const script = findProgram('script');
  if (script === null) {
    throw new CodedError('no-terminal', 'the program "script" (package bsdutils) is needed for a terminal');
  }
  return [script, '--quiet', '--return', '--flush', '--command', `exec ${quoteAll(argv)}`, '/dev/null'];
}
