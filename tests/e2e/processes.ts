import { readdirSync, readFileSync } from 'node:fs';

/** A process of this machine. */
export interface ProcessInfo {
  readonly pid: number;
  readonly parent: number;
  readonly command: string;
}

/** Every process that can be read now. */
export function processes(): ProcessInfo[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name): ProcessInfo[] => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        const [state = '', parent = '0'] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        return state === 'Z' ? [] : [{ pid: Number(name), parent: Number(parent), command }];
      } catch {
        return []; // It has ended meanwhile.
      }
    });
}

/** A process and everything below it. */
export function tree(pid: number): ProcessInfo[] {
  const all = processes();
  const below = (parent: number): ProcessInfo[] =>
    all.filter((info) => info.parent === parent).flatMap((info) => [info, ...below(info.pid)]);
  return [...all.filter((info) => info.pid === pid), ...below(pid)];
}

/** Those of the list that still run, by pid and command. */
export function stillRunning(list: readonly ProcessInfo[]): ProcessInfo[] {
  const now = new Map(processes().map((info) => [info.pid, info.command]));
  return list.filter(({ pid, command }) => now.get(pid) === command);
}
