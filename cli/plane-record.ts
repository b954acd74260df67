import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CodedError } from '../base/errors.ts';
import type { Layout } from '../local/layout.ts';

/** What `up` tells the roles of its plane, also those that are started apart. */
export interface PlaneRecord {
  readonly ingress: { readonly host: string; readonly port: number };
  /** The domain below which sandboxes are reached; absent: that of the settings. */
  readonly domain?: string;
}

const file = (layout: Layout): string => join(layout.run, 'plane.json');

/** Writes the record; readers see the old or the new one, whole. */
export async function writePlaneRecord(layout: Layout, record: PlaneRecord): Promise<void> {
  const temporary = `${file(layout)}.new`;
  await writeFile(temporary, JSON.stringify(record), { mode: 0o600 });
  await rename(temporary, file(layout));
}

/** Reads the record; throws `unavailable` when no `up` has run in this directory. */
export async function readPlaneRecord(layout: Layout): Promise<PlaneRecord> {
  try {
    return JSON.parse(await readFile(file(layout), 'utf8')) as PlaneRecord;
  } catch (error) {
    throw new CodedError('unavailable', `no plane is running in ${layout.dir}: start sandgate up --dir ${layout.dir}`, {
      cause: error,
    });
  }
}
