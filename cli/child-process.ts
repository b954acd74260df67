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
  /** Told of every change of {@link Child.state}. */
  readonly onState?: (state: ChildState) => void;
}

/** `failing`: it ended {@link FAILURES} times without having become ready; it is still started again and again. */
export type ChildState = 'starting' | 'running' | 'failing' | 'stopped';

const BACKOFF_MS = [200, 400, 800, 1600, 3000] as const;
/** A child that lived this long starts again without a pause. */
const STEADY_MS = 10_000;
/** So many ends without readiness between them are no accident. */
export const FAILURES = 3;

/**
 * A child that is started again with back-off when it ends, and that never outlives this process. It says that it is
 * ready by a line `{"ready":true}` on its standard output; its standard error is ours.
 */
export class Child {
  readonly name: string;
  readonly #options: ChildOptions;
  #process: ChildProcess | null = null;
  #guard: Readable | null = null;
  #state: ChildState = 'starting';
  /** Ends in a row without readiness or a long life between them. */
  #failures = 0;
  #timer: NodeJS.Timeout | null = null;
  #ready = Promise.withResolvers<void>();
  restarts = 0;

  constructor(options: ChildOptions) {
    this.name = options.name;
    this.#options = options;
    this.#start();
  }

  /** Of the running process; undefined between two. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  get state(): ChildState {
    return this.#state;
  }

  /** Resolves when a process of it is ready; throws `not-ready` when that takes too long. */
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
    this.#setState('stopped');
    clearTimeout(this.#timer ?? undefined);
    const child = this.#process;
    if (child === null) {
      return;
    }
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), this.#options.graceMs ?? 5000);
    await ended.finally(() => clearTimeout(timer));
  }

  #setState(state: ChildState): void {
    if (this.#state !== state && this.#state !== 'stopped') {
      this.#state = state;
      this.#options.onState?.(state);
    }
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
      if (line === '{"ready":true}' && this.#process === child) {
        this.#failures = 0;
        this.#ready.resolve();
        this.#setState('running');
      }
    });
    child.once('error', (error) => {
      logger.error({ child: name, error: error.message }, 'a child could not be started');
      if (child.pid === undefined) {
        this.#ended(started, { code: null, signal: null });
      }
    });
    child.once('exit', (code, signal) => this.#ended(started, { code, signal }));
  }

  #ended(started: number, how: { readonly code: number | null; readonly signal: NodeJS.Signals | null }): void {
    const { name, logger } = this.#options;
    this.#guard?.destroy();
    this.#process = null;
    if (this.#state === 'stopped') {
      return;
    }
    logger.warn({ child: name, ...how }, 'a child ended and is started again');
    if (this.#state === 'running') {
      this.#ready = Promise.withResolvers<void>();
    }
    this.restarts += 1;
    this.#failures = Date.now() - started > STEADY_MS ? 0 : this.#failures + 1;
    this.#setState(this.#failures >= FAILURES ? 'failing' : 'starting');
    const pause = this.#failures === 0 ? 0 : BACKOFF_MS[Math.min(this.#failures, BACKOFF_MS.length) - 1]!;
    this.#timer = setTimeout(() => this.#start(), pause);
  }
}
