/** What a suite gets, and small things that several of them use. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { EnvoyProcess } from '../envoy/supervise.ts';
import { findProgram } from '../local/tools.ts';
import type { Metrics } from './report.ts';

const execute = promisify(execFile);

export interface SuiteContext {
  readonly rounds: number;
  /** Length of one loaded run. */
  readonly seconds: number;
  /** Path of the load generator. */
  readonly wrk: string;
  /** Progress and raw rounds. */
  readonly say: (line: string) => void;
}

export interface Suite {
  /** Whether it sends load: then it needs the load generator, and has a network namespace of its own. */
  readonly loads: boolean;
  load(): Promise<{ run(context: SuiteContext): Promise<Metrics> }>;
}

/** Things to undo, last begun first ended. */
export class Stage {
  readonly #undo: (() => Promise<unknown>)[] = [];

  defer(undo: () => Promise<unknown>): void {
    this.#undo.push(undo);
  }

  /** Keeps an Envoy until the end. */
  keep(envoy: EnvoyProcess): EnvoyProcess {
    this.defer(() => envoy.stop());
    return envoy;
  }

  /** A folder that goes at the end. */
  async folder(): Promise<string> {
    const path = await mkdtemp(join(tmpdir(), 'sandgate-bench-'));
    this.defer(() => rm(path, { recursive: true, force: true }));
    return path;
  }

  async close(): Promise<void> {
    for (let undo = this.#undo.pop(); undo !== undefined; undo = this.#undo.pop()) {
      await undo().catch((error: Error) => process.stderr.write(`bench: ${error.message}\n`));
    }
  }
}

const stages = new Set<Stage>();

/** Runs a suite's work on a stage that is cleared afterwards. */
export async function onStage<T>(work: (stage: Stage) => Promise<T>): Promise<T> {
  const stage = new Stage();
  stages.add(stage);
  try {
    return await work(stage);
  } finally {
    await stage.close();
    stages.delete(stage);
  }
}

/** Clears what is on a stage now, when the process has to end early. */
export async function clearStages(): Promise<void> {
  await Promise.all([...stages].map((stage) => stage.close()));
}

/** Runs `ip` in the namespace of the suite. */
export async function ip(...args: readonly string[]): Promise<void> {
  await execute(findProgram('ip') ?? 'ip', args);
}
