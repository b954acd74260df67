import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, readlinkSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CodedError } from '../base/errors.ts';
import { type ContainerPlan, setupScript } from './container-setup.ts';
import type { NodeNamespace } from './node-namespace.ts';
import { allPids, childrenOf, isRunning, type RecordedProcess, recordOf, signalProcess } from './process-record.ts';
import { TOOL_ENVIRONMENT } from './shell.ts';

/** How a container's first process ended. */
export interface ContainerExit {
  /** As a shell gives it: 128 + n after signal n. */
  readonly code: number;
}

/** A container that has been started. */
export interface ContainerProcess {
  /** Its first process, process 1 of its own pid namespace. */
  readonly main: RecordedProcess;
  readonly exited: Promise<ContainerExit>;
  /** Asks it to end. A first process without a handler would never hear it and is killed at once. */
  terminate(): void;
  /** Kills everything in the container. */
  kill(): void;
}

/** What starting needs beside the plan. */
export interface ContainerSurroundings {
  readonly node: NodeNamespace;
  /** Process whose network and pid namespace the container joins. */
  readonly holderPid: number;
  /** `cgroup.procs` files that everything of the container joins first. */
  readonly joinFiles: readonly string[];
  /** Open for appending: standard output and standard error. */
  readonly log: number;
}

const SIGNALS: Readonly<Record<string, number>> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGSYS: 31,
};
const SETUP_TIMEOUT_MS = 20_000;

/** An exit status as a shell would say it. */
export function exitCode(code: number | null, signal: NodeJS.Signals | null): number {
  return code ?? 128 + (signal === null ? 0 : (SIGNALS[signal] ?? 0));
}

/** argv that joins control groups and becomes the given command. */
export function joinCgroups(joinFiles: readonly string[], argv: readonly string[]): string[] {
  if (joinFiles.length === 0) {
    return [...argv];
  }
  const script = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 126; shift; done; shift; exec "$@"';
  return ['/bin/sh', '-c', script, 'join', ...joinFiles, '--', ...argv];
}

/**
 * Starts a container in fresh namespaces inside its sandbox's. Resolves when its own program is about to run. Throws
 * `create-failed` when the set-up fails and `no-program` when the program does not exist in the container.
 */
export async function startContainer(plan: ContainerPlan, at: ContainerSurroundings): Promise<ContainerProcess> {
  await rm(plan.folder, { recursive: true, force: true });
  for (const folder of plan.byRoot ? ['upper', 'work'] : ['']) {
    await mkdir(join(plan.folder, folder), { recursive: true, mode: 0o755 });
  }
  const unshare = [at.node.tools.unshare, '--mount', '--pid', '--ipc', '--uts', '--fork', '--kill-child'];
  // What waits outside the pid namespace stays outside the control groups: frozen, it could not notice the end.
  const inside = joinCgroups(at.joinFiles, [...unshare, '--', '/bin/sh', '-s']);
  const [file, ...rest] = at.node.enterSandbox(at.holderPid, inside);
  const child = spawn(file!, rest, {
    env: TOOL_ENVIRONMENT,
    stdio: ['pipe', at.log, 'pipe', 'pipe', at.log],
    // Away from the terminal of whoever started the plane.
    detached: true,
  });
  child.stdin!.on('error', () => {});
  child.stdin!.end(setupScript(plan));
  const exited = new Promise<ContainerExit>((done) => {
    child.once('exit', (code, signal) => done({ code: exitCode(code, signal) }));
    child.once('error', () => done({ code: 128 }));
  });
  await setupEnd(child, exited);
  const main = firstProcess(child);
  if (main === null) {
    // It was so short-lived that it has ended before it could be looked at.
    const { code } = await exited;
    return ended(child, code);
  }
  return {
    main,
    exited,
    terminate: () => void (heedsTerm(main.pid) ? signalProcess(main, 'SIGTERM') : signalProcess(main, 'SIGKILL')),
    kill: () => void (signalProcess(main, 'SIGKILL') || child.kill('SIGKILL')),
  };
}

function ended(child: ChildProcess, code: number): ContainerProcess {
  const nothing = (): void => {};
  const main = { pid: child.pid!, startTime: '' };
  return { main, exited: Promise.resolve({ code }), terminate: nothing, kill: nothing };
}

/** Waits for the word on the status pipe; whatever is not `ok` is why there is no container. */
async function setupEnd(child: ChildProcess, exited: Promise<ContainerExit>): Promise<void> {
  const status = child.stdio[3] as NodeJS.ReadableStream;
  let said = '';
  const hear = (text: string): void => {
    said = `${said}${text}`.slice(-4096);
  };
  // The tools around the container complain here; also later, about its end, which is known anyway.
  child.stderr!.setEncoding('utf8').on('data', hear);
  const answer = new Promise<void>((done) => {
    status.setEncoding('utf8');
    status.on('data', (text: string) => {
      hear(text);
      if (/^ok$/m.test(said)) {
        done();
      }
    });
    status.on('end', done).on('error', done);
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), SETUP_TIMEOUT_MS);
  await Promise.race([answer, exited]);
  clearTimeout(timer);
  if (/^ok$/m.test(said)) {
    return;
  }
  child.kill('SIGKILL');
  await exited;
  const missing = /^missing (.*)$/m.exec(said);
  if (missing !== null) {
    throw new CodedError('no-program', `exec: ${JSON.stringify(missing[1])}: no such program in the sandbox`);
  }
  throw new CodedError('create-failed', said.trim().split('\n').slice(-3).join('; ') || 'the set-up ended early');
}

/** spawned program → its child in the sandbox's pid namespace → process 1 of the container's. */
function firstProcess(child: ChildProcess): RecordedProcess | null {
  try {
    const [inSandbox] = childrenOf(child.pid!);
    const [first] = inSandbox === undefined ? [] : childrenOf(inSandbox);
    return first === undefined ? null : recordOf(first);
  } catch {
    return null;
  }
}

/** Whether the process has a handler for SIGTERM; a first process without one never gets it. */
function heedsTerm(pid: number): boolean {
  try {
    const mask = /^SigCgt:\t([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '0';
    return (BigInt(`0x${mask}`) & (1n << 14n)) !== 0n;
  } catch {
    return false;
  }
}

/**
 * Stops or continues every process of a container by signals, where no control group can: again and again until none
 * is left running, since a process may have forked meanwhile. Throws `freeze-failed`.
 */
export async function signalContainer(main: RecordedProcess, stop: boolean): Promise<void> {
  const namespace = pidNamespace(main.pid);
  for (let round = 0; round < 100; round += 1) {
    const left = allPids().filter((pid) => pidNamespace(pid) === namespace && isStopped(pid) === !stop);
    if (namespace === null || left.length === 0 || !isRunning(main)) {
      return;
    }
    for (const pid of left) {
      try {
        process.kill(pid, stop ? 'SIGSTOP' : 'SIGCONT');
      } catch {
        // It has just ended.
      }
    }
    await sleep(5);
  }
  throw new CodedError('freeze-failed', `not every process could be ${stop ? 'stopped' : 'continued'}`);
}

function pidNamespace(pid: number): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return null;
  }
}

/** A process that has ended counts as both. */
function isStopped(pid: number): boolean | null {
  try {
    const state = /^State:\t(.)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return state === 'Z' || state === 'X' ? null : state === 'T';
  } catch {
    return null;
  }
}
