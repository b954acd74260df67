import { spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs';
import { CodedError, errorText } from '../base/errors.ts';

/** A held lock; the kernel releases it when this process ends, however it ends. */
export interface Lock {
  release(): void;
}

/**
 * Takes an exclusive lock on a file. The lock is the kernel's (`flock`), not a pid in a file, so a dead holder's lock is
 * free at once and two processes can never take over a stale one together. Node has no call for it: the `flock` program
 * of util-linux locks our own open file, which it inherits, and the lock stays with that file after it has ended.
 * The file's text names the holder for people only.
 *
 * Throws `locked` with the holder's pid, `unavailable` where the program is missing.
 */
export function takeLock(path: string): Lock {
  const fd = openSync(path, 'a+', 0o600);
  try {
    const { status, error } = spawnSync('flock', ['-n', '-x', '3'], { stdio: ['ignore', 'ignore', 'ignore', fd] });
    if (error !== undefined) {
      const hint = 'install util-linux (macOS: brew install flock)';
      throw new CodedError('unavailable', `cannot lock ${path}: ${errorText(error)}; ${hint}`, { cause: error });
    }
    if (status !== 0) {
      const holder = readFileSync(path, 'utf8').trim();
      throw new CodedError('locked', `process ${holder === '' ? 'of unknown pid' : holder} holds ${path}`);
    }
    ftruncateSync(fd, 0);
    writeSync(fd, `${process.pid}\n`);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  let held = true;
  return {
    release: () => {
      // Once only: the number may by then be another file's.
      if (held) {
        held = false;
        closeSync(fd);
      }
    },
  };
}
