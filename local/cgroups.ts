import { accessSync, constants, readFileSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';

/** Hierarchies in which this process may make groups; null where it may not. */
export interface CgroupRoots {
  /** Of version 2: a writable group below which ours lie. */
  readonly unified: string | null;
  /** Of version 1, by controller. */
  readonly freezer: string | null;
  readonly memory: string | null;
  readonly pids: string | null;
}

/** Bounds of one Pod. */
export interface PodLimits {
  /** Bytes; null: unlimited. */
  readonly memoryBytes: number | null;
  readonly processes: number;
}

/** Looks for the hierarchies that this process may use; it makes nothing. */
export function findCgroups(): CgroupRoots {
  const mounts = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '));
  const own = new Map(
    readFileSync('/proc/self/cgroup', 'utf8')
      .trim()
      .split('\n')
      .map((line) => [line.split(':')[1]!, line.split(':').slice(2).join(':')] as const),
  );
  const v1 = (controller: string): string | null => {
    const mount = mounts.find(([, , type, options]) => type === 'cgroup' && options?.split(',').includes(controller));
    return mount === undefined ? null : writable(mount[1]!);
  };
  const mount = mounts.find(([, , type]) => type === 'cgroup2');
  const unified = mount === undefined ? null : (writable(mount[1]!) ?? writable(join(mount[1]!, own.get('') ?? '/')));
  return { unified, freezer: v1('freezer'), memory: v1('memory'), pids: v1('pids') };
}

/** A process moves only between groups whose common parent may be written, so the folder alone is not enough. */
function writable(path: string): string | null {
  try {
    accessSync(path, constants.W_OK);
    accessSync(join(path, 'cgroup.procs'), constants.W_OK);
    return path;
  } catch {
    return null;
  }
}

/** The control groups of one directory's Pods. */
export class Cgroups {
  readonly roots: CgroupRoots;
  readonly #name: string;

  constructor(dir: string, roots: CgroupRoots = findCgroups()) {
    this.roots = roots;
    this.#name = `sandgate-${contentHash(dir)}`;
  }

  #places(): string[] {
    const { unified, freezer, memory, pids } = this.roots;
    const chosen = unified === null ? [freezer, memory, pids] : [unified, memory, pids];
    return [...new Set(chosen)].filter((path) => path !== null).map((path) => join(path, this.#name));
  }

  /** Makes a Pod's groups; empty where the machine allows none. Limits that cannot be set are left out. */
  async create(podUid: string, limits: PodLimits): Promise<PodCgroup> {
    const folders: string[] = [];
    for (const place of this.#places()) {
      const folder = join(place, podUid);
      try {
        await mkdir(folder, { recursive: true });
        folders.push(folder);
      } catch {
        // A hierarchy that only looked usable.
      }
    }
    const [unified] = folders.filter((folder) => this.#isUnified(folder));
    if (unified !== undefined) {
      enableControllers(dirname(unified));
    }
    for (const folder of folders) {
      limit(folder, this.#isUnified(folder), limits);
    }
    const freezer = folders.find((folder) => folder.startsWith(`${this.roots.freezer}/`)) ?? null;
    return new PodCgroup(folders, unified ?? null, unified === undefined ? freezer : null);
  }

  #isUnified(folder: string): boolean {
    return this.roots.unified !== null && folder.startsWith(join(this.roots.unified, this.#name));
  }

  /** Ends and removes every group of this directory: what a killed predecessor left. */
  async clear(): Promise<void> {
    for (const place of this.#places()) {
      for (const entry of await readdir(place, { withFileTypes: true }).catch(() => [])) {
        if (entry.isDirectory()) {
          await removeGroup(join(place, entry.name));
        }
      }
      await rmdir(place).catch(() => {});
    }
  }
}

/** Controllers of version 2 are handed down level by level, as far as the machine lets us. */
function enableControllers(parent: string): void {
  for (const folder of [dirname(parent), parent]) {
    for (const controller of ['memory', 'pids']) {
      trySet(join(folder, 'cgroup.subtree_control'), `+${controller}`);
    }
  }
}

function limit(folder: string, unified: boolean, limits: PodLimits): void {
  const memory =
    limits.memoryBytes === null ? [] : [[unified ? 'memory.max' : 'memory.limit_in_bytes', limits.memoryBytes]];
  for (const [file, value] of [...memory, ['pids.max', limits.processes]] as const) {
    trySet(join(folder, String(file)), String(value));
  }
}

function trySet(file: string, value: string): boolean {
  try {
    writeFileSync(file, value, { flag: 'r+' });
    return true;
  } catch {
    return false;
  }
}

async function removeGroup(folder: string): Promise<void> {
  for (let tries = 0; tries < 200; tries += 1) {
    trySet(join(folder, 'freezer.state'), 'THAWED');
    trySet(join(folder, 'cgroup.freeze'), '0');
    const left = (await readFile(join(folder, 'cgroup.procs'), 'utf8').catch(() => '')).trim();
    for (const pid of left
      .split('\n')
      .map(Number)
      .filter((value) => value > 0)) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has just ended.
      }
    }
    if (
      await rmdir(folder).then(
        () => true,
        (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
      )
    ) {
      return;
    }
    await sleep(10);
  }
  throw new CodedError('unkillable', `the control group ${folder} does not empty`);
}

/** One Pod's control groups. */
export class PodCgroup {
  readonly #folders: readonly string[];
  readonly #unified: string | null;
  readonly #freezer: string | null;

  constructor(folders: readonly string[], unified: string | null, freezer: string | null) {
    this.#folders = folders;
    this.#unified = unified;
    this.#freezer = freezer;
  }

  /** Files into which a process writes its pid to join. */
  get joinFiles(): readonly string[] {
    return this.#folders.map((folder) => join(folder, 'cgroup.procs'));
  }

  /** Whether {@link freeze} can work here. */
  get canFreeze(): boolean {
    return this.#unified !== null || this.#freezer !== null;
  }

  /** Freezes or thaws every process of the Pod and waits until it is so; throws `freeze-failed`. */
  async freeze(frozen: boolean): Promise<void> {
    for (let tries = 0; tries < 500; tries += 1) {
      await this.#set(frozen, tries);
      if ((await this.#state()) === frozen) {
        return;
      }
      await sleep(4);
    }
    throw new CodedError('freeze-failed', `the control group did not ${frozen ? 'freeze' : 'thaw'}`);
  }

  async #set(frozen: boolean, tries: number): Promise<void> {
    const set = (file: string, value: string): Promise<void> => writeFile(file, value, { flag: 'r+' });
    if (this.#unified !== null) {
      await (tries === 0 ? set(join(this.#unified, 'cgroup.freeze'), frozen ? '1' : '0') : null);
      return;
    }
    // Version 1 can get stuck over a process that forks just then; it has to be told again, at times after a thaw.
    const file = join(this.#freezer!, 'freezer.state');
    if (frozen && tries % 50 === 49) {
      await set(file, 'THAWED');
      await sleep(5);
    }
    await set(file, frozen ? 'FROZEN' : 'THAWED');
  }

  async #state(): Promise<boolean> {
    if (this.#unified !== null) {
      return (await readFile(join(this.#unified, 'cgroup.events'), 'utf8')).includes('frozen 1');
    }
    return (await readFile(join(this.#freezer!, 'freezer.state'), 'utf8')).startsWith('FROZEN');
  }

  /** Ends what is left in the groups and removes them. */
  async remove(): Promise<void> {
    for (const folder of this.#folders) {
      await removeGroup(folder);
    }
  }
}
