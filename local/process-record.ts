import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { CodedError } from '../base/errors.ts';

/** A process that no other can be mistaken for: pids come back, a pid with its start time does not. */
export interface RecordedProcess {
  readonly pid: number;
  /** Field 22 of `/proc/<pid>/stat`, clock ticks since the machine's start. */
  readonly startTime: string;
}

interface Stat {
  readonly state: string;
  readonly parent: number;
  readonly startTime: string;
}

function statOf(pid: number): Stat | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The second field is the name in parentheses and may hold anything.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0]!, parent: Number(fields[1]), startTime: fields[19]! };
  } catch {
    return null;
  }
}

/** The record of a live process; throws `gone` when there is none. */
export function recordOf(pid: number): RecordedProcess {
  const stat = statOf(pid);
  if (stat === null) {
    throw new CodedError('gone', `process ${pid} has ended`);
  }
  return { pid, startTime: stat.startTime };
}

/** Whether exactly that process still runs; a zombie has ended. */
export function isRunning(record: RecordedProcess): boolean {
  const stat = statOf(record.pid);
  return stat !== null && stat.startTime === record.startTime && stat.state !== 'Z' && stat.state !== 'X';
}

/** Sends a signal to exactly that process; false when it has ended. */
export function signalProcess(record: RecordedProcess, signal: NodeJS.Signals): boolean {
  if (!isRunning(record)) {
    return false;
  }
  try {
    process.kill(record.pid, signal);
    return true;
  } catch {
    return false;
  }
}

/** Kills exactly that process and waits until it has gone; throws `unkillable` when it stays. */
export async function killAndWait(record: RecordedProcess, timeoutMs = 5000): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (signalProcess(record, 'SIGKILL')) {
    if (Date.now() > deadline) {
      throw new CodedError('unkillable', `process ${record.pid} does not end`);
    }
    await sleep(5);
  }
}

/** Children of a process, in any pid namespace, by their pid here. */
export function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    return allPids().filter((other) => statOf(other)?.parent === pid);
  }
}

/** Every process below this one, parents first. */
export function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap((child) => [child, ...descendantsOf(child)]);
}

/** Every pid of this machine that is visible here. */
export function allPids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number);
}
