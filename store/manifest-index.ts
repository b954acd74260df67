import { compareText } from '../base/canonical.ts';

/** Something about a file that a person should mend; a `warning` does not keep the file from being used. */
export interface Problem {
  /** Relative to the directory. */
  readonly file: string;
  readonly message: string;
  readonly severity: 'error' | 'warning';
}

/** What is known of one manifest, as it is kept between runs. */
export interface ManifestEntry {
  readonly path: string;
  /** Of the content that the keys were read from; null: must be read again. */
  readonly hash: string | null;
  /** `Kind/namespace/name` of the objects in it. */
  readonly keys: readonly string[];
  /** Whether it had no problems of its own; others are read again when the store opens. */
  readonly clean: boolean;
}

/** Which file holds which object. An object in several files belongs to the first by path. */
export class ManifestIndex {
  readonly #entries = new Map<string, ManifestEntry>();
  readonly #claims = new Map<string, readonly string[]>();
  /** Objects in more than one file. */
  readonly #contested = new Set<string>();
  readonly #problems = new Map<string, readonly Problem[]>();

  get(path: string): ManifestEntry | undefined {
    return this.#entries.get(path);
  }

  /** Every entry, in the order of their paths. */
  entries(): ManifestEntry[] {
    return [...this.#entries.values()].sort((a, b) => compareText(a.path, b.path));
  }

  /** The file that an object belongs to. */
  fileOf(key: string): string | undefined {
    return this.#claims.get(key)?.[0];
  }

  /** Enters a file anew; gives the keys that no longer belong to it though they did. */
  set(entry: ManifestEntry): string[] {
    const before = this.#entries.get(entry.path)?.keys ?? [];
    const now = new Set(entry.keys);
    const released = before.filter((key) => !now.has(key) && this.#release(key, entry.path));
    this.#entries.set(entry.path, entry);
    for (const key of entry.keys) {
      const files = this.#claims.get(key) ?? [];
      if (!files.includes(entry.path)) {
        this.#claim(key, [...files, entry.path].sort(compareText));
      }
    }
    return released;
  }

  /** Forgets a file; gives the keys that belonged to it. */
  remove(path: string): string[] {
    const released = this.set({ path, hash: null, keys: [], clean: true });
    this.#entries.delete(path);
    this.#problems.delete(path);
    return released;
  }

  #claim(key: string, files: readonly string[]): void {
    if (files.length === 0) {
      this.#claims.delete(key);
    } else {
      this.#claims.set(key, files);
    }
    if (files.length > 1) {
      this.#contested.add(key);
    } else {
      this.#contested.delete(key);
    }
  }

  /** Takes the file's claim away; true when the object belonged to it. */
  #release(key: string, path: string): boolean {
    const files = this.#claims.get(key) ?? [];
    this.#claim(
      key,
      files.filter((file) => file !== path),
    );
    return files[0] === path;
  }

  /** Replaces what is wrong under a name, which need not be a manifest's path. False when nothing was and is wrong. */
  setProblems(name: string, problems: readonly Problem[]): boolean {
    if (problems.length === 0) {
      return this.#problems.delete(name);
    }
    this.#problems.set(name, problems);
    return true;
  }

  /** Whether the path has a problem that keeps (part of) it from being used. */
  hasErrors(path: string): boolean {
    return this.#problems.get(path)?.some((problem) => problem.severity === 'error') === true;
  }

  /** Everything wrong, ordered by file and text. */
  problems(): Problem[] {
    const found = [...this.#problems.values()].flat();
    for (const key of this.#contested) {
      const [first, ...others] = this.#claims.get(key)!;
      for (const file of others) {
        found.push({ file, message: `${key} is already in ${first}, which counts`, severity: 'error' });
      }
    }
    return found.sort((a, b) => compareText(a.file, b.file) || compareText(a.message, b.message));
  }
}
