import { join } from 'node:path';
import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { readSource, type Source } from './file-swap.ts';
import { type Manifest, type ManifestObject, parseManifest } from './manifest.ts';
import { type ManifestEntry, ManifestIndex, type Problem } from './manifest-index.ts';
import type { KindLookup } from './object-store.ts';

/** What reading manifests leads to. */
export interface ManifestSink {
  /**
   * An object as its manifest describes it. `entry` is to be kept with the change, so that one line of the log does for
   * both; `indexed` tells whether it was. Gives a reason when something else holds that name.
   */
  put(object: ManifestObject, key: string, entry?: ManifestEntry): { reason: string | null; indexed: boolean };
  /** No manifest describes the object any more. */
  vanish(key: string): void;
  /** The index has a new entry; or, with `null`, none for that path. */
  indexed(path: string, entry: ManifestEntry | null): void;
  problemsChanged(problems: readonly Problem[]): void;
}

/** A file that is no YAML is read again after this time before that counts: an editor may be half-way through a save. */
const BROKEN_AGAIN_MS = 80;
/** The same for a file that is suddenly empty: more likely a slow save than the wish to delete all that was in it. */
const EMPTY_AGAIN_MS = 500;
/** Objects without a manifest are removed after this time: they may be on their way to another file. */
const GONE_MS = 100;
/** After the state could not be written. */
const RETRY_MS = 1000;

/** The index's text for an object. */
export function objectKey(object: KubeObject): string {
  const { kind, namespace, name } = refOf(object);
  return `${kind}/${namespace}/${name}`;
}

/** Reads manifests, keeps the index of them, and says what became of the objects in them. */
export class ManifestReader {
  readonly index = new ManifestIndex();
  readonly #root: string;
  readonly #kinds: KindLookup;
  readonly #sink: ManifestSink;
  readonly #logger: Logger;
  /** Files waiting for a second look. */
  readonly #again = new Map<string, NodeJS.Timeout>();
  readonly #gone = new Set<string>();
  #goneTimer: NodeJS.Timeout | null = null;
  #shown = '[]';

  constructor(root: string, kinds: KindLookup, sink: ManifestSink, logger: Logger) {
    this.#root = root;
    this.#kinds = kinds;
    this.#sink = sink;
    this.#logger = logger;
  }

  /**
   * Takes up the manifests that are there at the start. Files that have not changed since they were last read are not
   * parsed: their objects are in the state. What the others lost is gone at once.
   */
  load(paths: readonly string[], known: ReadonlyMap<string, ManifestEntry>): void {
    for (const entry of known.values()) {
      this.index.set(entry);
    }
    const present = new Set(paths);
    for (const path of known.keys()) {
      if (!present.has(path)) {
        this.#forget(path);
      }
    }
    for (const path of paths) {
      const source = readSource(join(this.#root, path));
      const entry = known.get(path);
      if (source !== null && entry?.clean && entry.hash === source.hash) {
        this.index.setProblems(path, this.#openToOthers(path, source, entry.keys));
      } else {
        this.#take(path, source, true);
      }
    }
    this.settleNow();
  }

  /** A file may have changed. */
  check(path: string, last = false): void {
    clearTimeout(this.#again.get(path));
    this.#again.delete(path);
    this.#take(path, readSource(join(this.#root, path)), last);
    this.#show();
  }

  #take(path: string, source: Source | null, last: boolean): void {
    if (source === null) {
      this.#forget(path);
      return;
    }
    const entry = this.index.get(path);
    if (entry !== undefined && entry.hash === source.hash && (entry.clean || !last)) {
      if (entry.clean) {
        this.index.setProblems(path, this.#openToOthers(path, source, entry.keys));
      }
      return;
    }
    const manifest = source.unusable === null ? parseManifest(source.text, this.#kinds) : unusable(source.unusable);
    if (manifest.broken !== null && !last) {
      this.#lookAgain(path, BROKEN_AGAIN_MS);
    } else if (source.unusable === null && source.text.trim() === '' && entry?.keys.length && !last) {
      this.#lookAgain(path, EMPTY_AGAIN_MS);
    } else if (manifest.broken !== null) {
      this.index.setProblems(path, [error(path, `${manifest.broken}; what was read before stays in force`)]);
      this.#enter({ path, hash: source.hash, keys: entry?.keys ?? [], clean: false });
    } else {
      this.#absorb(path, source, manifest);
    }
  }

  #absorb(path: string, source: Source, manifest: Manifest): void {
    const keys = manifest.objects.map((object) => objectKey(object.form));
    const problems = manifest.problems.map((message) => error(path, message));
    // Any object that is missing may be the document that cannot be read: as after a syntax error, it stays as it was.
    const missing =
      problems.length === 0 ? [] : (this.index.get(path)?.keys ?? []).filter((key) => !keys.includes(key));
    // The claims come first: a commit asks which file an object belongs to.
    const entry: ManifestEntry = { path, hash: null, keys: [...keys, ...missing], clean: problems.length === 0 };
    this.#release(this.index.set(entry));
    const finished: ManifestEntry = { ...entry, hash: source.hash };
    let failed = false;
    let indexed = false;
    for (const [at, object] of manifest.objects.entries()) {
      const key = keys[at]!;
      if (this.index.fileOf(key) === path) {
        try {
          const last = at === keys.length - 1 && problems.length === 0;
          const put = this.#sink.put(object, key, last ? finished : undefined);
          problems.push(...(put.reason === null ? [] : [error(path, put.reason)]));
          indexed ||= put.indexed;
        } catch (cause) {
          failed = true;
          problems.push(error(path, `${key}: ${errorText(cause)}`));
        }
      }
    }
    this.index.setProblems(path, [...problems, ...this.#openToOthers(path, source, keys)]);
    if (failed) {
      this.#lookAgain(path, RETRY_MS);
    } else if (indexed) {
      this.index.set(finished);
    } else {
      this.#enter({ ...finished, clean: problems.length === 0 });
    }
  }

  #enter(entry: ManifestEntry): void {
    this.#release(this.index.set(entry));
    try {
      this.#sink.indexed(entry.path, entry);
    } catch (cause) {
      this.#logger.error({ file: entry.path, error: errorText(cause) }, 'the index of manifests cannot be written');
    }
  }

  #forget(path: string): void {
    if (this.index.get(path) === undefined) {
      return;
    }
    this.#release(this.index.remove(path));
    try {
      this.#sink.indexed(path, null);
    } catch (cause) {
      this.#logger.error({ file: path, error: errorText(cause) }, 'the index of manifests cannot be written');
    }
  }

  /** Whether the file is being given time to become whole. */
  isWaiting(path: string): boolean {
    return this.#again.has(path);
  }

  #lookAgain(path: string, delay: number): void {
    clearTimeout(this.#again.get(path));
    this.#again.set(
      path,
      setTimeout(() => this.check(path, true), delay),
    );
  }

  #release(keys: readonly string[]): void {
    for (const key of keys) {
      this.#gone.add(key);
    }
    if (keys.length > 0) {
      clearTimeout(this.#goneTimer ?? undefined);
      this.#goneTimer = setTimeout(() => this.settleNow(), GONE_MS);
    }
  }

  /** Decides about objects that left their file: another file describes them, or they are gone. */
  settleNow(): void {
    clearTimeout(this.#goneTimer ?? undefined);
    this.#goneTimer = null;
    if (this.#again.size > 0 && this.#gone.size > 0) {
      // A file in the middle of a save may be where they are going.
      this.#release([...this.#gone]);
      return;
    }
    const keys = [...this.#gone];
    this.#gone.clear();
    for (const key of keys) {
      const file = this.index.fileOf(key);
      if (file !== undefined) {
        this.reread(file);
        continue;
      }
      try {
        this.#sink.vanish(key);
      } catch (cause) {
        this.#logger.error({ object: key, error: errorText(cause) }, 'an object without a manifest stays');
        this.#release([key]);
      }
    }
    this.#show();
  }

  /** Reads a file although its content has not changed. */
  reread(path: string): void {
    const entry = this.index.get(path);
    if (entry !== undefined) {
      this.index.set({ ...entry, hash: null });
    }
    this.check(path);
  }

  #openToOthers(path: string, source: Source, keys: readonly string[]): Problem[] {
    const exposed = (source.mode & 0o077) !== 0 && keys.some((key) => key.startsWith('Secret/'));
    const message = `others can read this Secret: chmod 600 ${join(this.#root, path)}`;
    return exposed ? [{ file: path, message, severity: 'warning' }] : [];
  }

  /** A link or a folder that is not read; null when it is in order. */
  odd(path: string, why: string | null): void {
    // Kept apart from what is wrong with the content of a manifest of that name.
    const problems: Problem[] = why === null ? [] : [{ file: path, message: why, severity: 'warning' }];
    if (this.index.setProblems(`odd ${path}`, problems)) {
      this.#show();
    }
  }

  /** Tells of problems when they have changed. */
  #show(): void {
    const problems = this.index.problems();
    const shown = JSON.stringify(problems);
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.#sink.problemsChanged(problems);
    }
  }

  close(): void {
    clearTimeout(this.#goneTimer ?? undefined);
    for (const timer of this.#again.values()) {
      clearTimeout(timer);
    }
  }
}

function unusable(reason: string): Manifest {
  return { objects: [], problems: [], broken: reason };
}

function error(file: string, message: string): Problem {
  return { file, message, severity: 'error' };
}
