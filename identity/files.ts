import { randomBytes } from 'node:crypto';
import { chmod, link, mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CodedError } from '../base/errors.ts';

/** A directory that only its owner can enter; one that others may enter is closed. */
export async function privateDirectory(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  await chmod(path, 0o700);
}

/**
 * The text of a private file, or null when it is absent. Throws `key-exposed` when others may read or write it: a key
 * that was open is no secret any more, so it is not used and not repaired in silence.
 */
export async function readPrivate(path: string): Promise<string | null> {
  try {
    const { mode } = await stat(path);
    if ((mode & 0o077) !== 0) {
      const octal = (mode & 0o777).toString(8);
      throw new CodedError('key-exposed', `${path} is open to others (mode ${octal}); remove it, or chmod 600 it`);
    }
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') {
      return null;
    }
    throw error;
  }
}

/** Writes a file of mode 0600 that is whole at every moment; readers that watch the directory see one rename. */
export async function replacePrivate(path: string, text: string): Promise<void> {
  const temporary = await writeTemporary(path, text);
  await rename(temporary, path);
}

/**
 * Writes a file of mode 0600 unless it exists, and returns what is stored: of several starters the first wins and all
 * get its text.
 */
export async function createPrivate(path: string, text: string): Promise<string> {
  const temporary = await writeTemporary(path, text);
  try {
    await link(temporary, path);
    return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
      throw error;
    }
    return (await readPrivate(path)) ?? text;
  } finally {
    await rm(temporary, { force: true });
  }
}

async function writeTemporary(path: string, text: string): Promise<string> {
  const temporary = join(dirname(path), `.${randomBytes(9).toString('base64url')}.tmp`);
  const file = await open(temporary, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  return temporary;
}
