/** One decision as `sandgate logs` prints it: what was asked, what was answered, by which policy and executor. */
export interface DecisionRecord {
  readonly time: string;
  readonly direction: 'egress' | 'ingress' | 'connection';
  readonly sandbox: string;
  readonly action: string;
  readonly method: string;
  readonly authority: string;
  /** Without the query, which may carry secrets. */
  readonly path: string;
  readonly status: number;
  readonly policy: string;
  readonly rule: string;
  readonly reason: string;
  readonly executor: 'envoy' | 'ext_proc';
  readonly destination: string;
  readonly durationMs: number;
}

type Listener = (record: DecisionRecord) => void;

/** The latest decisions of each sandbox, bounded in both directions; older ones are dropped. */
export class DecisionLog {
  readonly #bySandbox = new Map<string, DecisionRecord[]>();
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #perSandbox: number;
  readonly #sandboxes: number;

  constructor(perSandbox = 500, sandboxes = 2000) {
    this.#perSandbox = perSandbox;
    this.#sandboxes = sandboxes;
  }

  /** Adds a decision of a sandbox, given by its uid. */
  add(uid: string, record: DecisionRecord): void {
    const list = this.#bySandbox.get(uid) ?? [];
    // Re-inserted, so that the map's first key is the sandbox that has been quiet for longest.
    this.#bySandbox.delete(uid);
    this.#bySandbox.set(uid, list);
    list.push(record);
    if (list.length > this.#perSandbox) {
      list.splice(0, list.length - this.#perSandbox);
    }
    const oldest = this.#bySandbox.keys().next().value;
    if (this.#bySandbox.size > this.#sandboxes && oldest !== undefined) {
      this.#bySandbox.delete(oldest);
    }
    for (const listener of this.#listeners.get(uid) ?? []) {
      listener(record);
    }
  }

  /** Decisions of a sandbox, oldest first. */
  of(uid: string): readonly DecisionRecord[] {
    return this.#bySandbox.get(uid) ?? [];
  }

  /** Calls `listener` for every later decision of a sandbox; returns how to stop. */
  follow(uid: string, listener: Listener): () => void {
    const set = this.#listeners.get(uid) ?? new Set<Listener>();
    set.add(listener);
    this.#listeners.set(uid, set);
    return () => {
      set.delete(listener);
      if (set.size === 0) {
        this.#listeners.delete(uid);
      }
    };
  }
}
