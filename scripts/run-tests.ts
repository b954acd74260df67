import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const root = join(import.meta.dirname, '..');
const preload = pathToFileURL(join(import.meta.dirname, 'test-preload.ts')).href;

export interface RunOptions {
  /** Files at a time. */
  readonly concurrency: number;
  /** Deadline of one file, milliseconds. */
  readonly timeoutMs: number;
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs test files, one process each (D27); gives the runner's exit status. */
export function runTests(files: readonly string[], { concurrency, timeoutMs, env = {} }: RunOptions): number {
  const done = spawnSync(
    process.execPath,
    ['--test', ...['--import', preload], `--test-concurrency=${concurrency}`, '--test-reporter=spec', ...files],
    { cwd: root, stdio: 'inherit', env: { ...process.env, ...env, SANDGATE_TEST_DEADLINE_MS: String(timeoutMs) } },
  );
  return done.status ?? 1;
}
