import { type Dirent, type FSWatcher, lstatSync, readdirSync, type Stats, statSync, watch } from 'node:fs';
import { join } from 'node:path';
import { compareText } from '../base/canonical.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { isTemporaryName } from './file-swap.ts';

export interface TreeWatcherOptions {
  readonly root: string;
  readonly logger: Logger;
  /** Names at the top that are no manifests. */
  readonly skip: ReadonlySet<string>;
  /** A manifest may have come, changed or gone; told once after a burst of events. Paths are relative to the root. */
  readonly onFile: (path: string) => void;
  /** Symbolic links and unreadable folders: what is there and not read. */
  readonly onOdd: (path: string, why: string | null) => void;
  /** How one folder is watched, so that a test can refuse it; default `fs.watch`. */
  readonly watchFolder?: (path: string, listener: (event: string, name: string | null) => void) => FSWatcher;
}

/** A write by an editor is several events: they are joined while they come this close together. */
const QUIET_MS = 12;
/** But never held back longer than this. */
const BURST_MS = 60;
/** How often the tree is looked through where the kernel gives no more watches. */
const POLL_MS = 500;

/** Whether a name is that of a manifest. Names with a leading dot belong to editors and tools. */
export function isManifestName(name: string): boolean {
  return !name.startsWith('.') && /\.ya?ml$/.test(name);
}

/**
 * Watches the folders of a tree. One watch a folder, since a watch a file (as chokidar does) costs 50 MB and 10,000
 * kernel watches for 10,000 manifests. Links are not followed. Whether a told file really changed is the listener's to
 * find out, by its content.
 */
export class TreeWatcher {
  /** Temporary files of an earlier process, found by {@link start}. */
  readonly leftovers: string[] = [];
  readonly #options: TreeWatcherOptions;
  /** Watched folders, relative; the root is the empty text. */
  readonly #folders = new Map<string, FSWatcher | null>();
  readonly #files = new Map<string, string>();
  readonly #pending = new Map<string, { timer: NodeJS.Timeout; since: number }>();
  #poll: NodeJS.Timeout | null = null;
  #started = false;
  #closed = false;

  constructor(options: TreeWatcherOptions) {
    this.#options = options;
  }

  /** Begins to watch and gives the manifests that are there, in order. Nothing that changes later is missed. */
  start(): string[] {
    this.#enter('');
    this.#started = true;
    return [...this.#files.keys()].sort(compareText);
  }

  #enter(folder: string): void {
    const path = join(this.#options.root, folder);
    this.#leave(folder);
    try {
      const watchFolder = this.#options.watchFolder ?? watch;
      const watcher = watchFolder(path, (_event, name) => this.#event(folder, name));
      watcher.on('error', (error) => this.#fallBack(error));
      this.#folders.set(folder, watcher);
    } catch (error) {
      this.#folders.set(folder, null);
      this.#fallBack(error);
    }
    for (const entry of this.#entries(folder)) {
      this.#look(folder, entry.name);
    }
  }

  #entries(folder: string): Dirent[] {
    try {
      const entries = readdirSync(join(this.#options.root, folder), { withFileTypes: true });
      this.#options.onOdd(folder, null);
      return entries;
    } catch (error) {
      this.#options.onOdd(folder, `cannot be read: ${errorText(error)}`);
      return [];
    }
  }

  /** Looks at one name of a folder: enters a new folder, tells of a manifest, forgets what has gone. */
  #look(folder: string, name: string): void {
    if (!this.#started && isTemporaryName(name)) {
      this.leftovers.push(folder === '' ? name : `${folder}/${name}`);
    }
    if (name.startsWith('.') || (folder === '' && this.#options.skip.has(name))) {
      return;
    }
    const path = folder === '' ? name : `${folder}/${name}`;
    const stat = lstatSync(join(this.#options.root, path), { throwIfNoEntry: false });
    if (stat?.isDirectory()) {
      this.#enter(path);
      return;
    }
    this.#leave(path);
    const link = stat?.isSymbolicLink() === true && (isManifestName(name) || this.#leadsToFolder(path));
    this.#options.onOdd(path, link ? 'is a symbolic link; links are not followed' : null);
    if (isManifestName(name)) {
      this.#note(path, link ? undefined : stat);
    }
  }

  #leadsToFolder(path: string): boolean {
    return statSync(join(this.#options.root, path), { throwIfNoEntry: false })?.isDirectory() === true;
  }

  #note(path: string, stat: Stats | undefined): void {
    if (stat?.isFile()) {
      this.#files.set(path, signature(stat));
    } else {
      this.#files.delete(path);
    }
    this.#later(path);
  }

  /** Forgets a folder with everything in it. */
  #leave(folder: string): void {
    if (!this.#folders.has(folder)) {
      return;
    }
    const inside = (path: string): boolean => folder === '' || path === folder || path.startsWith(`${folder}/`);
    for (const [path, watcher] of this.#folders) {
      if (inside(path)) {
        watcher?.close();
        this.#folders.delete(path);
      }
    }
    for (const path of this.#files.keys()) {
      if (inside(path)) {
        this.#files.delete(path);
        this.#later(path);
      }
    }
  }

  #event(folder: string, name: string | null): void {
    if (this.#closed || !this.#folders.has(folder)) {
      return;
    }
    if (name === null) {
      this.#enter(folder);
    } else {
      this.#look(folder, name);
    }
  }

  #later(path: string): void {
    if (!this.#started) {
      return;
    }
    const now = performance.now();
    const pending = this.#pending.get(path);
    if (pending !== undefined) {
      clearTimeout(pending.timer);
    }
    const since = pending?.since ?? now;
    const wait = Math.max(0, Math.min(QUIET_MS, since + BURST_MS - now));
    const timer = setTimeout(() => {
      this.#pending.delete(path);
      this.#options.onFile(path);
    }, wait);
    this.#pending.set(path, { timer, since });
  }

  /** No more watches (the limit of the kernel, a file system without events): look through the tree instead. */
  #fallBack(error: unknown): void {
    if (this.#poll === null && !this.#closed) {
      this.#options.logger.warn(
        { error: errorText(error) },
        'no change events for a folder: looking through it twice a second',
      );
      this.#poll = setInterval(() => this.#lookThrough(''), POLL_MS);
      this.#poll.unref();
    }
  }

  #lookThrough(folder: string): void {
    const seen = new Set<string>();
    for (const { name } of this.#entries(folder)) {
      const path = folder === '' ? name : `${folder}/${name}`;
      seen.add(path);
      if (this.#folders.has(path)) {
        this.#lookThrough(path);
      } else if (!this.#isKnown(path)) {
        this.#look(folder, name);
      }
    }
    const known = [...this.#folders.keys(), ...this.#files.keys()];
    for (const path of known) {
      const parent = path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
      if (path !== '' && parent === folder && !seen.has(path)) {
        this.#look(folder, path.slice(parent === '' ? 0 : parent.length + 1));
      }
    }
  }

  #isKnown(path: string): boolean {
    const stat = lstatSync(join(this.#options.root, path), { throwIfNoEntry: false });
    return stat !== undefined && this.#files.get(path) === signature(stat);
  }

  close(): void {
    this.#closed = true;
    for (const watcher of this.#folders.values()) {
      watcher?.close();
    }
    for (const { timer } of this.#pending.values()) {
      clearTimeout(timer);
    }
    if (this.#poll !== null) {
      clearInterval(this.#poll);
    }
  }
}

function signature(stat: Stats): string {
  return `${stat.ino} ${stat.size} ${stat.mtimeMs} ${stat.ctimeMs}`;
}
