/** Runs one Envoy for as long as it is wanted: started, watched, restarted with back-off, drained, stopped. */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { CodedError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { type EnvoyAdmin, envoyAdmin } from './admin.ts';
import { guarded, type Wrap } from './guard.ts';
import { LOG_FORMAT, logRelay } from './log-relay.ts';

export interface EnvoyOptions {
  /** Path of the binary, from `findEnvoy`. */
  readonly binary: string;
  /** The bootstrap, as `writeBootstrap` wrote it. */
  readonly bootstrapPath: string;
  /** The admin socket that the bootstrap names. */
  readonly adminSocket: string;
  readonly logger: Logger;
  /** Worker threads. */
  readonly concurrency: number;
  /** Seconds that connections of a removed chain or listener may go on (D14: at most 4 for a sidecar). */
  readonly drainSeconds: number;
  /** Names of listeners without which it is not ready: Envoy calls itself LIVE with none at all. */
  readonly listeners?: readonly string[];
  /** Relays Envoy's own information lines (at level debug) beside warnings and errors. */
  readonly verbose?: boolean;
  /**
   * Puts a prefix before the command, such as `nsenter` with its arguments, to start Envoy in other namespaces. The
   * prefix must replace itself by the command (exec) for signals to arrive.
   */
  readonly wrap?: Wrap;
  /** Told of every change of {@link EnvoyProcess.state}. */
  readonly onState?: (state: EnvoyState) => void;
}

/** `live`: ready, with its listeners. `waiting`: ended by itself, to be started again after the back-off. */
export type EnvoyState = 'starting' | 'live' | 'waiting' | 'stopping' | 'stopped';

export interface EnvoyProcess {
  readonly state: EnvoyState;
  /** Of the running process; null between two. */
  readonly pid: number | null;
  /** How often it had to be started again. */
  readonly restarts: number;
  readonly admin: EnvoyAdmin;
  /** Resolves when it is live; rejects with `envoy-not-ready` after the time, and when it is stopped. */
  ready(timeoutMs?: number): Promise<void>;
  /**
   * Ends it for good; may be called again. With `drain`, clients are told to go elsewhere and open connections get up to
   * `drainSeconds`. An Envoy that ignores SIGTERM for 5 s is killed.
   */
  stop(options?: { readonly drain?: boolean }): Promise<void>;
}

const FIRST_DELAY_MS = 50;
const LONGEST_DELAY_MS = 5000;
/** After so long a life the next failure counts as the first. */
const HEALTHY_LIFE_MS = 10_000;
const STARTING_POLL_MS = 25;
const LIVE_POLL_MS = 2000;
const TERM_PATIENCE_MS = 5000;

/** Starts an Envoy and keeps it running until it is stopped. Never rejects unknown fields silently: see the flags. */
export function superviseEnvoy(options: EnvoyOptions): EnvoyProcess {
  return new Supervisor(options);
}

/** The command line of an Envoy; it has no hot restart and refuses fields that it does not know. */
export function envoyArguments(options: EnvoyOptions): string[] {
  return [
    options.binary,
    ...['-c', options.bootstrapPath],
    '--disable-hot-restart',
    '--reject-unknown-dynamic-fields',
    ...['--concurrency', String(options.concurrency)],
    ...['--drain-time-s', String(options.drainSeconds)],
    // The gradual strategy asks only some clients to leave; the drain time is too short for that.
    ...['--drain-strategy', 'immediate'],
    ...['--log-level', options.verbose === true ? 'info' : 'warning'],
    ...['--log-format', LOG_FORMAT],
  ];
}

class Supervisor implements EnvoyProcess {
  state: EnvoyState = 'starting';
  restarts = 0;
  readonly admin: EnvoyAdmin;
  readonly #options: EnvoyOptions;
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;
  readonly #waiters = new Set<() => void>();
  #child: ChildProcess | null = null;
  #stopping: Promise<void> | null = null;

  constructor(options: EnvoyOptions) {
    this.#options = options;
    this.admin = envoyAdmin(options.adminSocket);
    this.#done = this.#keepRunning();
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  async ready(timeoutMs = 30_000): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    while (this.state !== 'live') {
      const left = deadline - Date.now();
      if (left <= 0 || this.#stop.signal.aborted) {
        throw new CodedError('envoy-not-ready', `Envoy is ${this.state}, not live (${this.#options.bootstrapPath})`);
      }
      await this.#nextChange(left);
    }
  }

  stop({ drain = false }: { readonly drain?: boolean } = {}): Promise<void> {
    this.#stopping ??= this.#end(drain);
    return this.#stopping;
  }

  #setState(state: EnvoyState): void {
    if (this.state !== state) {
      this.state = state;
      this.#options.onState?.(state);
      const waiters = [...this.#waiters];
      this.#waiters.clear();
      for (const wake of waiters) {
        wake();
      }
    }
  }

  #nextChange(timeoutMs: number): Promise<void> {
    return new Promise((wake) => {
      const timer = setTimeout(wake, timeoutMs);
      this.#waiters.add(() => {
        clearTimeout(timer);
        wake();
      });
    });
  }

  async #keepRunning(): Promise<void> {
    for (let failures = 0; !this.#stop.signal.aborted; ) {
      const started = Date.now();
      this.#setState('starting');
      const how = await this.#runOnce();
      if (this.#stop.signal.aborted) {
        break;
      }
      failures = Date.now() - started > HEALTHY_LIFE_MS ? 1 : failures + 1;
      const delay = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (failures - 1));
      this.#options.logger.warn({ how, delayMs: delay }, 'Envoy has ended and is started again');
      this.#setState('waiting');
      await sleep(delay, undefined, { signal: this.#stop.signal }).catch(() => {});
      this.restarts++;
    }
    this.#setState('stopped');
  }

  /** One life of the process; resolves with how it ended. */
  async #runOnce(): Promise<string> {
    const { logger } = this.#options;
    const { argv, needsPipe } = guarded(envoyArguments(this.#options), this.#options.wrap);
    // A group of its own: a terminal's Ctrl-C is for the supervisor, which then stops Envoy in its own time.
    const child = spawn(argv[0]!, argv.slice(1), {
      stdio: ['ignore', 'ignore', 'pipe', ...(needsPipe ? ['pipe' as const] : [])],
      detached: true,
      env: { PATH: process.env['PATH'] ?? '', LC_ALL: 'C' },
    });
    this.#child = child;
    const relay = logRelay(logger);
    child.stderr!.on('data', (chunk: Buffer) => relay.write(chunk));
    const ended = new AbortController();
    const watching = this.#watch(ended.signal);
    const how = await new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signal) => resolve(signal ?? `status ${code}`));
    });
    // With 'exit' the pipe may still hold its last words, which say why.
    await Promise.race([new Promise((closed) => child.stderr!.once('close', closed)), sleep(200)]);
    relay.end();
    child.stdio[3]?.destroy();
    ended.abort();
    await watching;
    this.#child = null;
    return how;
  }

  async #watch(ended: AbortSignal): Promise<void> {
    while (!ended.aborted) {
      const live = await this.#isLive();
      if (!ended.aborted && this.state !== 'stopping') {
        this.#setState(live ? 'live' : 'starting');
      }
      await sleep(live ? LIVE_POLL_MS : STARTING_POLL_MS, undefined, { signal: ended }).catch(() => {});
    }
  }

  async #isLive(): Promise<boolean> {
    if (!(await this.admin.ready())) {
      return false;
    }
    const wanted = this.#options.listeners ?? [];
    if (wanted.length === 0) {
      return true;
    }
    const bound = new Set((await this.admin.listeners().catch(() => [])).map(({ name }) => name));
    return wanted.every((name) => bound.has(name));
  }

  async #end(drain: boolean): Promise<void> {
    if (drain && this.state === 'live') {
      this.#setState('stopping');
      await this.#drain();
    }
    this.#stop.abort();
    this.#setState('stopping');
    const child = this.#child;
    child?.kill('SIGTERM');
    const timer = setTimeout(() => child?.kill('SIGKILL'), TERM_PATIENCE_MS);
    await this.#done;
    clearTimeout(timer);
    await this.admin.close();
  }

  /** Until no connection is left, at most the drain time. An Envoy that does not answer is not waited for. */
  async #drain(): Promise<void> {
    const deadline = Date.now() + this.#options.drainSeconds * 1000;
    try {
      await this.admin.drainListeners();
      while (Date.now() < deadline && (await this.#openConnections()) > 0) {
        await sleep(100);
      }
    } catch {
      // It has ended meanwhile.
    }
  }

  async #openConnections(): Promise<number> {
    const counts = await this.admin.stats('^listener\\..*\\.downstream_cx_active$');
    return Object.entries(counts)
      .filter(([name]) => !name.startsWith('listener.admin.') && !name.includes('.worker_'))
      .reduce((sum, [, count]) => sum + count, 0);
  }
}
