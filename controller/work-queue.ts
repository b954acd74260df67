/**
 * The room `controller/` brings objects to the state that they ask for: one reconciler per file, over any store. It
 * knows nothing of Envoy.
 */
import { errorText } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/logger.ts';

export interface WorkQueueOptions {
  /** Keys worked on at the same time; default 16. */
  readonly concurrency?: number;
  /** First and longest pause before a failed key is tried again, in milliseconds; default 10 and 30,000. */
  readonly backoffMs?: readonly [first: number, longest: number];
  readonly logger?: Logger;
}

/** What working on a key asks for: nothing, another try at once, or one after so many milliseconds. */
export type WorkResult = { readonly againAfterMs: number } | undefined;

/** Timers hold at most this; a later one is set when it fires. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Keys to be worked on. A key is in the queue once, however often it is added, and is never worked on twice at the same
 * time: what is added meanwhile is done afterwards. A key whose work throws comes again with a doubled pause; one
 * failing key delays no other.
 */
export class WorkQueue {
  readonly #work: (key: string) => Promise<WorkResult>;
  readonly #concurrency: number;
  readonly #backoff: readonly [number, number];
  readonly #logger: Logger;
  readonly #waiting = new Set<string>();
  readonly #working = new Set<string>();
  readonly #again = new Set<string>();
  readonly #timers = new Map<string, { readonly due: number; readonly timer: NodeJS.Timeout }>();
  readonly #failures = new Map<string, number>();
  #closed = false;
  #idle: (() => void)[] = [];

  constructor(work: (key: string) => Promise<WorkResult>, options: WorkQueueOptions = {}) {
    this.#work = work;
    this.#concurrency = options.concurrency ?? 16;
    this.#backoff = options.backoffMs ?? [10, 30_000];
    this.#logger = options.logger ?? silentLogger;
  }

  /** Keys that wait or are worked on. */
  get size(): number {
    return this.#waiting.size + this.#working.size;
  }

  /** Has the key worked on soon. */
  add(key: string): void {
    if (this.#closed) {
      return;
    }
    if (this.#working.has(key)) {
      this.#again.add(key);
    } else {
      this.#waiting.add(key);
      this.#start();
    }
  }

  /** Has the key worked on after a time; of several times the soonest counts. */
  addAfter(key: string, milliseconds: number): void {
    const due = Date.now() + milliseconds;
    const known = this.#timers.get(key);
    if (this.#closed || (known !== undefined && known.due <= due)) {
      return;
    }
    clearTimeout(known?.timer);
    const fire = (): void => {
      this.#timers.delete(key);
      if (due > Date.now()) {
        this.addAfter(key, due - Date.now());
      } else {
        this.add(key);
      }
    };
    const timer = setTimeout(fire, Math.min(Math.max(0, milliseconds), LONGEST_TIMER_MS));
    this.#timers.set(key, { due, timer });
  }

  /** Resolves when nothing waits and nothing is worked on; timers may still be set. */
  async settled(): Promise<void> {
    if (this.size > 0) {
      await new Promise<void>((resolve) => this.#idle.push(resolve));
    }
  }

  /** Takes no more keys, and resolves when the work under way has ended. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#waiting.clear();
    this.#again.clear();
    for (const { timer } of this.#timers.values()) {
      clearTimeout(timer);
    }
    this.#timers.clear();
    await this.settled();
  }

  #start(): void {
    for (const key of this.#waiting) {
      if (this.#working.size >= this.#concurrency) {
        return;
      }
      this.#waiting.delete(key);
      this.#working.add(key);
      void this.#run(key);
    }
  }

  async #run(key: string): Promise<void> {
    let pause: number | null = null;
    try {
      const result = await this.#work(key);
      this.#failures.delete(key);
      pause = result === undefined ? null : result.againAfterMs;
    } catch (error) {
      const failures = this.#failures.get(key) ?? 0;
      this.#failures.set(key, failures + 1);
      pause = Math.min(this.#backoff[0] * 2 ** Math.min(failures, 30), this.#backoff[1]);
      this.#logger.warn({ key, failures: failures + 1, error: errorText(error) }, 'work failed and is tried again');
    }
    this.#working.delete(key);
    if (this.#again.delete(key)) {
      this.add(key);
    }
    if (pause !== null) {
      this.addAfter(key, pause);
    }
    this.#start();
    if (this.size === 0) {
      for (const resolve of this.#idle.splice(0)) {
        resolve();
      }
    }
  }
}
