import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Redacted } from '../base/redacted.ts';
import { replacePrivate } from '../identity/files.ts';
import type { Layout } from '../local/layout.ts';

/** Where the admin API of a plane is, for the commands that ask it (D22). */
export interface AdminRecord {
  /** `unix:PATH` or `HOST:PORT`. */
  readonly address: string;
  /** Bearer token of TCP callers; null on a UNIX socket. */
  readonly token: Redacted | null;
}

const file = (layout: Layout): string => join(layout.run, 'admin.json');

/** Writes the record, mode 0600. Returns the function that takes it away. */
export async function writeAdminRecord(layout: Layout, { address, token }: AdminRecord): Promise<() => Promise<void>> {
  await replacePrivate(file(layout), JSON.stringify({ address, token: token?.reveal() ?? null }));
  return () => rm(file(layout), { force: true });
}

/** Reads the record; null when no plane has left one. */
export async function readAdminRecord(layout: Layout): Promise<AdminRecord | null> {
  const text = await readFile(file(layout), 'utf8').catch(() => null);
  if (text === null) {
    return null;
  }
  const { address, token } = JSON.parse(text) as { readonly address: string; readonly token: string | null };
  return { address, token: token === null ? null : new Redacted(token) };
}
