import type { Clock } from '../../base/clock.ts';
import { errorText, isCoded } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { counter, histogram } from '../../base/metrics.ts';
import { SingleFlight } from '../../base/single-flight.ts';
import type { ObjectStore } from '../../store/object-store.ts';
import type { RouteRecord } from '../../world/routes.ts';

/** Where the processor reads routes, and is told when one changes. */
export interface RouteSource {
  byUid(uid: string): RouteRecord | undefined;
  /** Calls back after each change of a route; gives a function that ends it. */
  onChange(listener: (uid: string) => void): () => void;
}

export interface WakerOptions {
  readonly store: ObjectStore;
  readonly routes: RouteSource;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long a wake may take, from the first request that asks for it. */
  readonly budgetMs?: number;
}

const BUDGET_MS = 60_000;
/** Never sleeps: a century is as far as the specification goes (ingress-gateway §3.4). */
const NEVER_MS = 100 * 365 * 86_400_000;
const FLOOR_MS = 300_000;

const wakes = counter('sandgate_wakes_total', 'Wakes of sandboxes by traffic', ['result']);
const wakeSeconds = histogram(
  'sandgate_wake_seconds',
  'Time from the first request to Ready',
  [],
  [0.1, 0.5, 1, 5, 20, 60],
);

/**
 * Wakes sandboxes: one resume per sandbox however many requests ask for it, and one writer among several processors,
 * since the patch tests what it changes. A caller that leaves does not end a wake (architecture §3).
 */
export class Waker {
  readonly #options: WakerOptions;
  readonly #flights = new SingleFlight<string, RouteRecord | null>();

  constructor(options: WakerOptions) {
    this.#options = options;
  }

  /** Whether a wake of the sandbox is under way here. */
  isWaking(uid: string): boolean {
    return this.#flights.has(uid);
  }

  /** The running route of the sandbox, or null when it could not be woken in time. */
  wake(uid: string): Promise<RouteRecord | null> {
    return this.#flights.run(uid, async () => {
      const done = wakeSeconds.startTimer();
      const route = await this.#wake(uid).catch((error: unknown) => {
        this.#options.logger.warn({ sandbox: uid, error: errorText(error) }, 'a wake failed');
        return null;
      });
      wakes.inc({ result: route === null ? 'failed' : 'woken' });
      done();
      return route;
    });
  }

  async #wake(uid: string): Promise<RouteRecord | null> {
    const end = this.#options.clock.now() + (this.#options.budgetMs ?? BUDGET_MS);
    // A sandbox on its way to sleep gets there first (D9), then it is woken.
    for (;;) {
      const route = this.#options.routes.byUid(uid);
      if (route === undefined || route.ended) {
        return null;
      }
      if (route.state === 'running') {
        return route;
      }
      if (route.asleep) {
        await this.#resume(route);
      }
      if (!(await this.#nextChange(uid, route.resourceVersion, end))) {
        return null;
      }
    }
  }

  /** Asks the controller to resume; a failed test means that somebody else has changed it meanwhile. */
  async #resume(route: RouteRecord): Promise<void> {
    const key = { namespace: route.ref.namespace, name: route.ref.name };
    const stored = await this.#options.store.get('Sandbox', key);
    const spec = (stored.spec ?? {}) as Readonly<Record<string, unknown>>;
    if (stored.metadata.uid !== route.uid || spec['paused'] !== true) {
      return;
    }
    const body = [
      { op: 'test', path: '/metadata/uid', value: route.uid },
      { op: 'test', path: '/spec/paused', value: true },
      { op: 'replace', path: '/spec/paused', value: false },
      ...this.#timeouts(spec, route.pauseTimeoutMs),
    ];
    try {
      await this.#options.store.patch('Sandbox', key, { type: 'json', body });
    } catch (error) {
      if (!isCoded(error, 'conflict')) {
        throw error;
      }
    }
  }

  /** A sandbox that pauses by itself starts its countdown anew (ingress-gateway §3.4). */
  #timeouts(spec: Readonly<Record<string, unknown>>, pauseTimeoutMs: number | null): readonly object[] {
    if (spec['pauseTime'] === undefined) {
      return [];
    }
    const now = this.#options.clock.now();
    const pause =
      pauseTimeoutMs === null
        ? { op: 'remove', path: '/spec/pauseTime' }
        : { op: 'replace', path: '/spec/pauseTime', value: rfc3339(now + Math.max(pauseTimeoutMs, FLOOR_MS)) };
    return [
      { op: 'test', path: '/spec/pauseTime', value: spec['pauseTime'] },
      { op: 'add', path: '/spec/shutdownTime', value: rfc3339(now + NEVER_MS) },
      pause,
    ];
  }

  /** Whether the route changed before the time was over; it may have changed already. */
  #nextChange(uid: string, version: string, end: number): Promise<boolean> {
    const { routes, clock } = this.#options;
    return new Promise((resolve) => {
      const finish = (changed: boolean) => {
        clearTimeout(timer);
        stop();
        resolve(changed);
      };
      const look = () => {
        if (routes.byUid(uid)?.resourceVersion !== version) {
          finish(true);
        }
      };
      const timer = setTimeout(() => finish(false), Math.max(0, end - clock.now()));
      const stop = routes.onChange((changed) => changed === uid && look());
      look();
    });
  }
}

function rfc3339(milliseconds: number): string {
  return new Date(milliseconds).toISOString().replace(/\.\d+Z$/, 'Z');
}
