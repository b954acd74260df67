import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import { MAX_MANIFEST_BYTES } from './manifest.ts';

/** A file as it was read in one go. */
export interface Source {
  readonly text: string;
  readonly hash: string;
  /** Permission bits. */
  readonly mode: number;
  /** Why the content cannot be used; then `text` is empty. */
  readonly unusable: string | null;
}

/** A change of a manifest that a commit has promised; carried out after it, also by the next process. */
export interface Swap {
  readonly path: string;
  /** The new content in a file beside the old one; null: the manifest is removed. */
  readonly temporary: string | null;
  /** Hash of the content that is replaced; null: there was no file. An editor that was faster keeps its content. */
  readonly before: string | null;
}

const PREFIX = '.sandgate-';
const SUFFIX = '.tmp';

/** Whether a file is one that {@link writeTemporary} makes. */
export function isTemporaryName(name: string): boolean {
  return name.startsWith(PREFIX) && name.endsWith(SUFFIX);
}

/** Reads a regular file without following a link and without waiting on a pipe; null when there is none. */
export function readSource(path: string): Source | null {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') {
      return null;
    }
    return { text: '', hash: `unreadable ${code}`, mode: 0, unusable: `cannot be read (${code})` };
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) {
      return null;
    }
    const mode = stat.mode & 0o7777;
    if (stat.size > MAX_MANIFEST_BYTES) {
      return { text: '', hash: `large ${stat.size}`, mode, unusable: 'larger than 16 MiB' };
    }
    const bytes = readFileSync(fd);
    const hash = contentHash(bytes, 32);
    try {
      return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes), hash, mode, unusable: null };
    } catch {
      return { text: '', hash, mode, unusable: 'not UTF-8' };
    }
  } finally {
    closeSync(fd);
  }
}

/** The hash that {@link readSource} gives for a content. */
export function hashOf(text: string): string {
  return contentHash(Buffer.from(text), 32);
}

/**
 * Writes and syncs the new content beside its target, with the target's permissions and owner. Folders are made; one
 * that is a link is refused, since it may lead out of the directory. Returns the path relative to the root.
 */
export async function writeTemporary(root: string, path: string, text: string): Promise<string> {
  makeFolders(root, dirname(path));
  const temporary = join(dirname(path), `${PREFIX}${basename(path)}.${randomBytes(6).toString('hex')}${SUFFIX}`);
  const old = lstatSync(join(root, path), { throwIfNoEntry: false });
  const file = await open(join(root, temporary), 'wx', 0o600);
  try {
    await file.writeFile(text);
    if (old !== undefined) {
      if (process.getuid?.() === 0) {
        await file.chown(old.uid, old.gid);
      }
      await file.chmod(old.mode & 0o7777);
    }
    await file.sync();
  } catch (error) {
    rmSync(join(root, temporary), { force: true });
    throw error;
  } finally {
    await file.close();
  }
  return temporary;
}

function makeFolders(root: string, folder: string): void {
  const parts = folder === '.' ? [] : folder.split('/');
  for (const index of parts.keys()) {
    const path = join(root, ...parts.slice(0, index + 1));
    mkdirSync(path, { recursive: true });
    if (!lstatSync(path).isDirectory()) {
      throw new CodedError('unavailable', `${path} is not a folder; links are not followed`);
    }
  }
}

/** Puts the new content in place of the old. */
export function carryOut(root: string, swap: Swap): void {
  const target = join(root, swap.path);
  if (swap.temporary === null) {
    rmSync(target, { force: true });
  } else {
    renameSync(join(root, swap.temporary), target);
  }
}

/** Finishes or drops a swap that a killed process left. */
export function finishSwap(root: string, swap: Swap): void {
  const temporary = swap.temporary === null ? null : join(root, swap.temporary);
  if (temporary !== null && lstatSync(temporary, { throwIfNoEntry: false }) === undefined) {
    return;
  }
  const untouched = (readSource(join(root, swap.path))?.hash ?? null) === swap.before;
  if (untouched) {
    carryOut(root, swap);
  } else if (temporary !== null) {
    rmSync(temporary, { force: true });
  }
}

/** Makes the names in a folder durable. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
