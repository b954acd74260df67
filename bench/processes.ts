/** What the kernel says of processes: CPU time of threads, memory, trees; and on which cores they run. */
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';

/** The kernel's clock tick in user space; 100 on every Linux that Node supports. */
const TICKS_PER_SECOND = 100;

/** CPU seconds of the whole process. */
export function processCpu(pid: number): number {
  return statCpu(`/proc/${pid}/stat`);
}

/** Seconds that threads ran, and seconds in which they could have run while others had their core. */
export interface Use {
  readonly ran: number;
  readonly waited: number;
}

/** Of an Envoy's worker threads (`wrk:worker_0`, …). Throws when there is none. */
export function workerUse(pid: number): Use {
  return sum(workers(pid).map(useOf));
}

/** Of a Node process's main thread. */
export function mainThreadUse(pid: number): Use {
  return useOf(`/proc/${pid}/task/${pid}`);
}

function useOf(task: string): Use {
  const waited = Number(readFileSync(`${task}/schedstat`, 'utf8').split(' ')[1]) / 1e9;
  return { ran: statCpu(`${task}/stat`), waited };
}

function sum(uses: readonly Use[]): Use {
  return uses.reduce((all, { ran, waited }) => ({ ran: all.ran + ran, waited: all.waited + waited }), {
    ran: 0,
    waited: 0,
  });
}

function workers(pid: number): readonly string[] {
  const tasks = readdirSync(`/proc/${pid}/task`).map((task) => `/proc/${pid}/task/${task}`);
  const found = tasks.filter((task) => readFileSync(`${task}/comm`, 'utf8').startsWith('wrk:worker'));
  if (found.length === 0) {
    throw new Error(`process ${pid} has no Envoy worker`);
  }
  return found;
}

function statCpu(file: string): number {
  // The name in parentheses may hold anything; user and system time are the 12th and 13th field behind it.
  const fields = readFileSync(file, 'utf8').replace(/^.*\)/s, '').trim().split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

/** Proportional set size of a process in MB (10^6 bytes): shared pages count for each sharer in part. */
export function pssMb(pid: number): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const kilobytes = Number(/^Pss:\s+(\d+) kB$/m.exec(text)?.[1]);
  return (kilobytes * 1024) / 1e6;
}

/** A process and everything that descends from it. */
export function processTree(root: number): number[] {
  const children = Map.groupBy(
    readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number),
    parentOf,
  );
  const tree = [root];
  for (let next = 0; next < tree.length; next += 1) {
    tree.push(...(children.get(tree[next]!) ?? []));
  }
  return tree;
}

function parentOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/s, '').trim().split(' ')[1]);
  } catch {
    return 0; // It has ended meanwhile.
  }
}

/** The command line of a process, shortened. */
export function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}

/**
 * Runs a command on the core of the Envoys under test (`test`) or on all others (`rest`), so that load generator and
 * upstream never take what is measured. With a single core nothing is pinned.
 */
export function pinned(place: 'test' | 'rest', argv: readonly string[]): readonly string[] {
  const cores = availableParallelism();
  if (cores < 2) {
    return argv;
  }
  return ['taskset', '-c', place === 'test' ? '0' : `1-${cores - 1}`, ...argv];
}
