import { setTimeout as sleep } from 'node:timers/promises';
import type { Container } from '../api/pod.ts';
import { errorText, isCoded } from '../base/errors.ts';
import type { ContainerExit, ContainerProcess } from './container-process.ts';
import type { ProbeReports } from './probes.ts';

/** `state` of a container status, as Kubernetes writes it. */
export type ContainerState =
  | { readonly waiting: { readonly reason: string; readonly message?: string } }
  | { readonly running: { readonly startedAt: string } }
  | { readonly terminated: Terminated };

export interface Terminated {
  readonly exitCode: number;
  readonly reason: string;
  readonly message?: string;
  readonly startedAt?: string;
  readonly finishedAt: string;
}

/** Times between the starts of a container that does not stay. */
export interface BackOff {
  readonly firstMs: number;
  readonly longestMs: number;
  /** After so long a life the next failure counts as the first. */
  readonly healthyMs: number;
}

export const DEFAULT_BACK_OFF: BackOff = { firstMs: 500, longestMs: 30_000, healthyMs: 60_000 };

export interface RunnerOptions {
  readonly container: Container;
  readonly restartPolicy: 'Always' | 'OnFailure' | 'Never';
  readonly backOff: BackOff;
  /** Restarts before this agent began. */
  readonly restartCount: number;
  /** Starts it once; see `startContainer` for the errors. */
  start(): Promise<ContainerProcess>;
  /** Begins to watch its probes. */
  watch(process: ContainerProcess, reports: ProbeReports, signal: AbortSignal): void;
  /** Told of every change. */
  changed(): void;
}

const REASONS: Readonly<Record<string, string>> = {
  'config-error': 'CreateContainerConfigError',
  'create-failed': 'CreateContainerError',
  'no-program': 'RunContainerError',
};

/** RFC 3339 with seconds, as Kubernetes writes times. */
export function timeText(milliseconds = Date.now()): string {
  return new Date(milliseconds).toISOString().replace(/\.\d+Z$/, 'Z');
}

/** Keeps one container running as its restart policy says, and knows its status. */
export class ContainerRunner {
  readonly name: string;
  state: ContainerState = { waiting: { reason: 'ContainerCreating' } };
  lastState: { readonly terminated?: Terminated } = {};
  ready = false;
  started = false;
  restartCount: number;
  /** Why it is not ready, from its readiness probe. */
  detail = '';
  process: ContainerProcess | null = null;
  readonly #options: RunnerOptions;
  readonly #stop = new AbortController();

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.name = options.container.name;
    this.restartCount = options.restartCount;
  }

  /** Whether it has ended and will not be started again. */
  get final(): Terminated | null {
    return this.#done && 'terminated' in this.state ? this.state.terminated : null;
  }

  #done = false;

  /** Resolves when it has ended for good. */
  async run(): Promise<void> {
    const { restartPolicy } = this.#options;
    let failures = 0;
    while (!this.#stop.signal.aborted) {
      const began = Date.now();
      const end = await this.#once();
      if (end !== null) {
        this.#set({ terminated: end });
        if (restartPolicy === 'Never' || (restartPolicy === 'OnFailure' && end.exitCode === 0)) {
          break;
        }
        this.lastState = { terminated: end };
      }
      if (this.#stop.signal.aborted) {
        break;
      }
      failures = Date.now() - began >= this.#options.backOff.healthyMs ? 1 : failures + 1;
      await this.#wait(end !== null, failures);
    }
    this.#done = true;
    this.#options.changed();
  }

  /** Asks it to end, kills it after the time, and starts it no more. */
  async stop(graceMs: number): Promise<void> {
    this.#stop.abort();
    const { process } = this;
    if (process === null) {
      return;
    }
    if (graceMs > 0) {
      process.terminate();
      const timer = new AbortController();
      await Promise.race([process.exited, sleep(graceMs, undefined, { signal: timer.signal }).catch(() => {})]);
      timer.abort();
    }
    process.kill();
    await process.exited;
  }

  /** One life; null when it did not come to run, which the state then says. */
  async #once(): Promise<Terminated | null> {
    let process: ContainerProcess;
    try {
      process = await this.#options.start();
    } catch (error) {
      return this.#startFailed(error);
    }
    if (this.#stop.signal.aborted) {
      process.kill();
    }
    const startedAt = timeText();
    this.process = process;
    const life = new AbortController();
    this.#set({ running: { startedAt } });
    let unhealthy: string | null = null;
    this.#options.watch(
      process,
      this.#reports((why) => {
        unhealthy ??= why;
        process.kill();
      }, life.signal),
      life.signal,
    );
    const { code }: ContainerExit = await process.exited;
    life.abort();
    this.process = null;
    this.ready = false;
    this.started = false;
    return {
      exitCode: code,
      reason: code === 0 ? 'Completed' : 'Error',
      ...(unhealthy === null ? {} : { message: unhealthy }),
      startedAt,
      finishedAt: timeText(),
    };
  }

  #startFailed(error: unknown): Terminated | null {
    const code = isCoded(error) ? error.code : '';
    const reason = (Object.hasOwn(REASONS, code) ? REASONS[code] : undefined) ?? 'CreateContainerError';
    const message = errorText(error);
    if (this.#options.restartPolicy === 'Never' && code === 'no-program') {
      return { exitCode: 128, reason: 'StartError', message, finishedAt: timeText() };
    }
    this.#set({ waiting: { reason, message } });
    return null;
  }

  /** Between two lives: the state of a failed start stays, a container that has run waits as `CrashLoopBackOff`. */
  async #wait(hasRun: boolean, failures: number): Promise<void> {
    const { firstMs, longestMs } = this.#options.backOff;
    const delay = Math.min(longestMs, firstMs * 2 ** (failures - 1));
    if (hasRun) {
      const message = `back-off ${delay} ms restarting container ${this.name}`;
      this.#set({ waiting: { reason: 'CrashLoopBackOff', message } });
    }
    await sleep(delay, undefined, { signal: this.#stop.signal }).catch(() => {});
    if (hasRun && !this.#stop.signal.aborted) {
      this.restartCount += 1;
    }
  }

  #reports(kill: (why: string) => void, life: AbortSignal): ProbeReports {
    const when = (change: () => void): void => {
      if (!life.aborted) {
        change();
        this.#options.changed();
      }
    };
    return {
      started: () =>
        when(() => {
          this.started = true;
        }),
      ready: (ready, detail) => {
        if (ready !== this.ready || detail !== this.detail) {
          when(() => {
            this.ready = ready;
            this.detail = ready ? '' : detail;
          });
        }
      },
      unhealthy: (detail) => when(() => kill(detail)),
    };
  }

  #set(state: ContainerState): void {
    this.state = state;
    this.#options.changed();
  }
}
