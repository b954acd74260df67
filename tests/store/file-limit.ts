import { spawnSync } from 'node:child_process';

/**
 * Limits how large this process's files may grow, so that a write in the middle of a file fails as on a full disk
 * (EFBIG after a short write). Gives the function that lifts it.
 */
export function rlimit(bytes: number): () => void {
  const ignore = (): void => {};
  process.on('SIGXFSZ' as NodeJS.Signals, ignore);
  set(String(bytes));
  return () => {
    set('unlimited');
    process.off('SIGXFSZ' as NodeJS.Signals, ignore);
  };
}

function set(limit: string): void {
  const { status, error } = spawnSync('prlimit', ['--pid', String(process.pid), `--fsize=${limit}:unlimited`]);
  if (status !== 0) {
    throw new Error(`prlimit: ${error?.message ?? `status ${status}`}`);
  }
}
