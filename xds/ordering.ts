import { TypeState } from './type-state.ts';
import { CLUSTER, LISTENER, rulesOf, TYPES } from './types.ts';
import type { EncodedResource, ResourceKey, ResourceView } from './view.ts';

/** Remembers, within one round, what is missing below a resource. */
export type Below = Map<EncodedResource, ResourceKey | null>;

/**
 * What one client holds, across types, and what may therefore be sent or removed next: make before break, decided by
 * acknowledgements and not by the order of sending.
 */
export class Ledger {
  readonly #states: ReadonlyMap<string, TypeState> = new Map(
    TYPES.map((rules) => [rules.typeUrl, new TypeState(rules)]),
  );
  /** How many versions that the client holds, or may hold, refer to a resource. */
  readonly #references = new Map<string, number>();
  /** For each type, how many held versions are of unknown content. */
  readonly #unknown = new Map<TypeState, number>();
  readonly #waiters = new Map<string, Map<TypeState, Set<string>>>();

  /** The types in the order of sending. */
  states(): Iterable<TypeState> {
    return this.#states.values();
  }

  state(typeUrl: string): TypeState | undefined {
    return this.#states.get(typeUrl);
  }

  /** Counts references of a version that has been sent and may be in use from now on. */
  retain(requires: readonly ResourceKey[]): void {
    for (const key of requires) {
      const id = keyText(key);
      this.#references.set(id, (this.#references.get(id) ?? 0) + 1);
    }
  }

  /** Takes back {@link retain}. */
  release(requires: readonly ResourceKey[]): void {
    for (const key of requires) {
      const id = keyText(key);
      const count = (this.#references.get(id) ?? 0) - 1;
      if (count > 0) {
        this.#references.set(id, count);
      } else {
        this.#references.delete(id);
      }
    }
  }

  /** The client holds this version now; `requires` null: of unknown content. Wakes what waited for it. */
  accept(state: TypeState, name: string, version: string, requires: readonly ResourceKey[] | null): void {
    this.#forget(state, name);
    state.accepted.set(name, { version, requires });
    state.absent.delete(name);
    if (requires === null) {
      this.#unknown.set(state, (this.#unknown.get(state) ?? 0) + 1);
    } else {
      this.retain(requires);
    }
    this.wake(state, name);
  }

  /** Whether the client holds versions of unknown content. */
  hasUnknown(state: TypeState): boolean {
    return (this.#unknown.get(state) ?? 0) > 0;
  }

  /** The client holds the name no longer. */
  drop(state: TypeState, name: string): void {
    this.#forget(state, name);
    state.accepted.delete(name);
    state.leavingSince.delete(name);
  }

  #forget(state: TypeState, name: string): void {
    const held = state.accepted.get(name);
    if (held === undefined) {
      return;
    }
    if (held.requires === null) {
      this.#unknown.set(state, (this.#unknown.get(state) ?? 0) - 1);
    } else {
      this.release(held.requires);
    }
  }

  /** Lets everything that waits for a name be looked at again. */
  wake(state: TypeState, name: string): void {
    const id = keyText({ typeUrl: state.rules.typeUrl, name });
    for (const [waiting, names] of this.#waiters.get(id) ?? []) {
      for (const held of names) {
        const blocker = waiting.held.get(held);
        if (blocker !== undefined && keyText(blocker) === id) {
          waiting.held.delete(held);
          waiting.pending.add(held);
        }
      }
    }
    this.#waiters.delete(id);
  }

  /** Moves a pending name aside until `blocker` is there. */
  hold(state: TypeState, name: string, blocker: ResourceKey): void {
    state.pending.delete(name);
    state.held.set(name, blocker);
    const id = keyText(blocker);
    const byState = this.#waiters.get(id) ?? new Map<TypeState, Set<string>>();
    byState.set(state, (byState.get(state) ?? new Set<string>()).add(name));
    this.#waiters.set(id, byState);
  }

  /** Forgets who waits; for a new view, which works all of it out again. */
  clearWaiters(): void {
    this.#waiters.clear();
  }

  /**
   * The first requirement for which a resource has to wait, or null. A requirement is met when the client has
   * acknowledged the view's version of it, and holds in any version what that one refers to in turn, so that a table
   * is not used while the listener behind it still waits for a certificate.
   */
  blocker(view: ResourceView, state: TypeState, resource: EncodedResource, below: Below): ResourceKey | null {
    if (!state.rules.gated) {
      return null;
    }
    for (const key of resource.requires) {
      const other = this.#states.get(key.typeUrl);
      if (other !== undefined && comesAfter(state, other, key.name)) {
        continue;
      }
      const wanted = view.get(key.typeUrl, key.name);
      if (wanted === undefined || other?.accepted.get(key.name)?.version !== wanted.version) {
        return key;
      }
      const deeper = this.#missingBelow(view, wanted, below);
      if (deeper !== null) {
        return deeper;
      }
    }
    return null;
  }

  /** Something below that the client lacks and that is still to come; a refused or unknown one is not waited for. */
  #missingBelow(view: ResourceView, resource: EncodedResource, below: Below): ResourceKey | null {
    const known = below.get(resource);
    if (known !== undefined) {
      return known;
    }
    below.set(resource, null);
    for (const key of resource.requires) {
      const other = this.#states.get(key.typeUrl);
      const wanted = view.get(key.typeUrl, key.name);
      if (other === undefined || wanted === undefined || other.rejected.has(key.name)) {
        continue;
      }
      const missing = other.accepted.has(key.name) ? this.#missingBelow(view, wanted, below) : key;
      if (missing !== null) {
        below.set(resource, missing);
        return missing;
      }
    }
    return null;
  }

  /**
   * Whether a held name can never be sent as things stand: what it waits for, directly or in turn, is refused, or is
   * not in the view.
   */
  isStuck(view: ResourceView, blocker: ResourceKey): boolean {
    let at: ResourceKey | undefined = blocker;
    for (let depth = 0; at !== undefined && depth < TYPES.length * 2; depth += 1) {
      const state = this.#states.get(at.typeUrl);
      const wanted = view.get(at.typeUrl, at.name);
      if (state === undefined || wanted === undefined || state.rejected.get(at.name) === wanted.version) {
        return true;
      }
      at = state.held.get(at.name);
    }
    return at !== undefined;
  }

  /**
   * Whether a resource may leave: nothing that the client holds, or may have applied, refers to it. A held version of
   * unknown content may refer to anything of a lower rank.
   */
  mayLeave(state: TypeState, name: string): boolean {
    if (this.#references.has(keyText({ typeUrl: state.rules.typeUrl, name }))) {
      return false;
    }
    for (const [other, count] of this.#unknown) {
      if (count > 0 && other.rules.rank > state.rules.rank) {
        return false;
      }
    }
    return true;
  }
}

/**
 * Whether the requirement can only be met later: Envoy asks for secrets, endpoints and tables after it has the cluster
 * or listener that names them, and warms that one meanwhile.
 */
function comesAfter(state: TypeState, other: TypeState, name: string): boolean {
  const warms = state.rules.typeUrl === CLUSTER || state.rules.typeUrl === LISTENER;
  return warms && !other.rules.wildcard && !other.subscription.covers(name);
}

function keyText({ typeUrl, name }: ResourceKey): string {
  return `${rulesOf(typeUrl)?.label ?? typeUrl}\0${name}`;
}
