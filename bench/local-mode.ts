/** `sandgate up` as a process, in an empty directory of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { guarded } from '../envoy/guard.ts';
import type { Stage } from './suite.ts';

const MAIN = join(import.meta.dirname, '..', 'cli', 'main.ts');

export interface LocalMode {
  readonly pid: number;
  /** From the start of the process to its line `ready`. */
  readonly readyMs: number;
}

const STOP_MS = 20_000;

/** Starts it and waits until it is ready; it ends with the stage. Throws with its log when it ends before. */
export async function startLocalMode(stage: Stage): Promise<LocalMode> {
  const dir = await mkdtemp(join(tmpdir(), 'sandgate-bench-'));
  stage.defer(() => rm(dir, { recursive: true, force: true }));
  const began = performance.now();
  const { argv, needsPipe } = guarded([
    process.execPath,
    // As `bin/sandgate` does.
    '--max-semi-space-size=4',
    MAIN,
    'up',
    '--dir',
    dir,
    '--ingress',
    '127.0.0.1:0',
    '-o',
    'json',
  ]);
  const stdio = ['ignore', 'pipe', 'pipe', ...(needsPipe ? ['pipe' as const] : [])] as const;
  const child = spawn(argv[0]!, argv.slice(1), { stdio: [...stdio] });
  const ended = once(child, 'exit');
  stage.defer(async () => {
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await ended;
    clearTimeout(timer);
  });
  let log = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    log = (log + text).slice(-20_000);
  });
  const ready = new Promise<number>((resolve) => {
    createInterface({ input: child.stdout! }).on('line', (line) => {
      if ((JSON.parse(line) as { readonly ready?: boolean }).ready === true) {
        resolve(performance.now() - began);
      }
    });
  });
  const readyMs = await Promise.race([ready, ended.then(() => null)]);
  if (readyMs === null) {
    throw new Error(`sandgate up ended before it was ready:\n${log}`);
  }
  return { pid: child.pid!, readyMs };
}
