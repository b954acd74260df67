import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { KubeObject } from '../api/object.ts';
import { compareText, contentHash } from '../base/canonical.ts';
import { ManualClock } from '../base/clock.ts';
import { CodedError, errorText } from '../base/errors.ts';
import { silentLogger } from '../base/logger.ts';
import { SETTINGS_FILES } from './layout.ts';
import type { Problem } from './manifest-index.ts';
import { ManifestReader, objectKey } from './manifest-reader.ts';
import type { KindLookup } from './object-store.ts';
import { MemoryStore } from './table-store.ts';
import { isManifestName } from './tree-watcher.ts';

/**
 * The manifests of a directory as they are now, in memory: for commands on a directory that has no `.sandgate/` (D16).
 * Writes nothing to the directory. Two readings of the same manifests are equal: uids follow from kind and name, and
 * every creation time is the epoch, which leaves an order by age to the names.
 */
export class ManifestStore extends MemoryStore {
  /** What people should mend, ordered by file. */
  readonly problems: readonly Problem[];

  /** Throws `unavailable` for a directory that cannot be read. */
  constructor(directory: string, kinds: KindLookup) {
    super({ kinds, clock: new ManualClock(0), uid: nameUid });
    const sink: ConstructorParameters<typeof ManifestReader>[2] = {
      put: ({ form, finalizers }) => {
        const metadata = finalizers.length === 0 ? form.metadata : { ...form.metadata, finalizers };
        this.table.commit(this.table.planForm({ ...form, metadata }));
        return { reason: null, indexed: false };
      },
      vanish: () => {},
      indexed: () => {},
      problemsChanged: () => {},
    };
    const reader = new ManifestReader(directory, kinds, sink, silentLogger);
    reader.load(manifestsBelow(directory), new Map());
    reader.close();
    this.problems = reader.index.problems();
  }

  /** An owner that no manifest describes is somewhere else: nothing goes for that. */
  protected override shouldCollect(): boolean {
    return false;
  }
}

/** A uid that follows from kind and name, for objects that no plane has given one. */
export function nameUid(object: KubeObject): string {
  const hash = contentHash(objectKey(object), 32);
  return [hash.slice(0, 8), hash.slice(8, 12), hash.slice(12, 16), hash.slice(16, 20), hash.slice(20)].join('-');
}

function manifestsBelow(directory: string, folder = ''): string[] {
  try {
    return readdirSync(join(directory, folder), { withFileTypes: true })
      .flatMap((entry) => {
        const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
        if (entry.name.startsWith('.') || SETTINGS_FILES.includes(path)) {
          return [];
        }
        return entry.isDirectory() ? manifestsBelow(directory, path) : isManifestName(entry.name) ? [path] : [];
      })
      .sort(compareText);
  } catch (error) {
    throw new CodedError('unavailable', `${join(directory, folder)} cannot be read: ${errorText(error)}`, {
      cause: error,
    });
  }
}
