import { refOf, refText } from '../api/object.ts';
import type { Clock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';
import { roleId } from '../identity/spiffe.ts';
import type { ClientStatus } from '../xds/server.ts';
import type { Published } from './plane.ts';

/** How long a withdrawal waits for the gateways, milliseconds (D12). */
const DEADLINE_MS = 5000;

/** What a withdrawal is decided by. */
export interface WithdrawalOptions {
  readonly clock: Clock;
  published(): Published | null;
  clients(): readonly ClientStatus[];
  readonly deadlineMs?: number;
}

/** Tells when no ingress gateway leads to a sandbox any more, so that its address may be given away (D12). */
export class Withdrawals {
  readonly #options: WithdrawalOptions;
  readonly #waiting = new Set<() => void>();
  readonly #native = new WeakMap<Published, ReadonlySet<string>>();

  constructor(options: WithdrawalOptions) {
    this.#options = options;
  }

  /** Something was published, acknowledged, or a client came or went. */
  moved(): void {
    for (const wake of [...this.#waiting]) {
      wake();
    }
  }

  /**
   * Resolves when the published view has no native route of this sandbox and every connected ingress gateway has
   * acknowledged that. Throws `unavailable` when it takes longer than its deadline.
   */
  async wait(uid: string): Promise<void> {
    const { clock, deadlineMs = DEADLINE_MS } = this.#options;
    const deadline = clock.now() + deadlineMs;
    let since: number | null = null;
    while (true) {
      const published = this.#options.published();
      // Counted from a publication without the route; one that is still to come may be without it, too.
      since = published === null || this.#hasRoute(published, uid) ? null : (since ?? published.sequence);
      if (since !== null && this.#isAcknowledged(since)) {
        return;
      }
      const left = deadline - clock.now();
      if (left <= 0) {
        throw new CodedError('unavailable', `the route of ${uid} was not withdrawn within ${deadlineMs} ms`);
      }
      await this.#nextMove(left);
    }
  }

  #isAcknowledged(sequence: number): boolean {
    return this.#options
      .clients()
      .filter(({ spiffeId }) => spiffeId === roleId('ingress'))
      .every(({ settled }) => settled >= sequence);
  }

  #hasRoute(published: Published, uid: string): boolean {
    const sandbox = published.world.sandboxes.find(({ metadata }) => metadata.uid === uid);
    return sandbox !== undefined && this.#nativeOf(published).has(refText(refOf(sandbox)));
  }

  #nativeOf(published: Published): ReadonlySet<string> {
    let native = this.#native.get(published);
    if (native === undefined) {
      native = new Set(published.ingress.flatMap(({ origins }) => origins.map(refText)));
      this.#native.set(published, native);
    }
    return native;
  }

  #nextMove(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      this.#waiting.add(done);
    });
  }
}
