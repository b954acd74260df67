import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { CodedError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { guarded, type Wrap } from '../envoy/guard.ts';

export interface ChildOptions {
  readonly name: string;
  readonly argv: readonly string[];
  readonly logger: Logger;
  /** Puts the command into another namespace; must exec. */
  readonly wrap?: Wrap;
  readonly env?: NodeJS.ProcessEnv;
  /** How long the child has to end after SIGTERM, milliseconds. */
  readonly graceMs?: number;
}

const BACKOFF_MS = [200, 400, 800, 1600, 3000] as const;
/** A child that lived this long starts again without a pause. */
const STEADY_MS = 10_000;

/**
 * A child that is started again with back-off when it ends, and that never outlives this process. It says that it is
 * ready by a line `{"ready":true}` on its standard output; its standard error is ours.
 */
export class Child {
  readonly name: string;
  readonly #options: ChildOptions;
  #process: ChildProcess | null = null;
  #guard: Readable | null = null;
  #stopping = false;
  #attempt = 0;
  #timer: NodeJS.Timeout | null = null;
  #ready = Promise.withResolvers<void>();
  restarts = 0;

  constructor(options: ChildOptions) {
    this.name = options.name;
    this.#options = options;
    this.#start();
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Resolves when the present process is ready; throws `not-ready` when that takes too long. */
  async ready(timeoutMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(new CodedError('not-ready', `${this.name} was not ready within ${timeoutMs} ms`));
      }, timeoutMs);
    });
    await Promise.race([this.#ready.promise, late]).finally(() => clearTimeout(timer));
  }

  /** Ends the child: SIGTERM, then SIGKILL after its grace. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#timer ?? undefined);
    const child = this.#process;
    if (child === null || child.exitCode !== null || child.signalCode !== null) {
      return;
    }
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), this.#options.graceMs ?? 5000);
    await ended.finally(() => clearTimeout(timer));
  }

  #start(): void {
    const { argv, wrap, env, name, logger } = this.#options;
    const command = guarded(argv, wrap);
    const started = Date.now();
    const child = spawn(command.argv[0]!, command.argv.slice(1), {
      env: env ?? process.env,
      // In a group of its own, so that a terminal's Ctrl-C reaches this process alone, which ends its children in order.
      detached: true,
      stdio: ['ignore', 'pipe', 'inherit', ...(command.needsPipe ? (['pipe'] as const) : [])],
    });
    this.#process = child;
    this.#guard = (child.stdio[3] as Readable | undefined) ?? null;
    createInterface({ input: child.stdout! }).on('line', (line) => {
      if (line === '{"ready":true}') {
        this.#attempt = 0;
        this.#ready.resolve();
      }
    });
    child.once('error', (error) => logger.error({ child: name, error: error.message }, 'a child could not be started'));
    child.once('exit', (code, signal) => {
      this.#guard?.destroy();
      if (!this.#stopping) {
        logger.warn({ child: name, code, signal }, 'a child ended and is started again');
        this.#restart(Date.now() - started);
      }
    });
  }

  #restart(livedMs: number): void {
    this.#ready = Promise.withResolvers<void>();
    this.restarts += 1;
    this.#attempt = livedMs > STEADY_MS ? 0 : this.#attempt + 1;
    const pause = this.#attempt === 0 ? 0 : BACKOFF_MS[Math.min(this.#attempt, BACKOFF_MS.length) - 1]!;
    this.#timer = setTimeout(() => this.#start(), pause);
  }
}
