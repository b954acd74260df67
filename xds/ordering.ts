import { type Accepted, TypeState } from './type-state.ts';
import { CLUSTER, ENDPOINTS, LISTENER, ROUTES, rulesOf, SCOPE, TYPES } from './types.ts';
import type { EncodedResource, ResourceKey, ResourceView } from './view.ts';

/** A scope of this name keeps the table after it subscribed (docs/architecture.md, Egress gateway). */
const PIN = '!pin-';

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
  /** For each type, names whose held version is of unknown content. */
  readonly #unknown = new Map<TypeState, Set<string>>();
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

  /** The client holds this now. Wakes what waited for it. */
  accept(state: TypeState, name: string, held: Accepted): void {
    this.#forget(state, name);
    state.accepted.set(name, held);
    state.absent.delete(name);
    this.retain(held.requires);
    if (held.unknown) {
      this.#unknown.set(state, (this.#unknown.get(state) ?? new Set<string>()).add(name));
    }
    this.wake(state, name);
  }

  /** Whether the client holds versions of unknown content. */
  hasUnknown(state: TypeState): boolean {
    return (this.#unknown.get(state)?.size ?? 0) > 0;
  }

  /** The client holds the name no longer. */
  drop(state: TypeState, name: string): void {
    this.#forget(state, name);
    state.accepted.delete(name);
    state.leavingSince.delete(name);
  }

  #forget(state: TypeState, name: string): void {
    const held = state.accepted.get(name);
    if (held !== undefined) {
      this.release(held.requires);
      this.#unknown.get(state)?.delete(name);
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
      const blocker = this.#blockerOf(view, state, key, below) ?? this.#pinBlocker(view, state, resource, key, below);
      if (blocker !== null) {
        return blocker;
      }
    }
    return null;
  }

  #blockerOf(view: ResourceView, state: TypeState, key: ResourceKey, below: Below): ResourceKey | null {
    const other = this.#states.get(key.typeUrl);
    if (other !== undefined && comesAfter(state, other, key.name)) {
      return null;
    }
    const wanted = view.get(key.typeUrl, key.name);
    if (wanted === undefined || other?.heldVersion(key.name) !== wanted.version) {
      return key;
    }
    return this.#missingBelow(view, wanted, below);
  }

  /**
   * A scope also requires the pin of its table. Without it a client that has just left the table drops it, while its
   * unsubscription is still on the way and the table counts as acknowledged.
   */
  #pinBlocker(
    view: ResourceView,
    state: TypeState,
    resource: EncodedResource,
    key: ResourceKey,
    below: Below,
  ): ResourceKey | null {
    const pin = PIN + key.name;
    if (state.rules.typeUrl !== SCOPE || key.typeUrl !== ROUTES || resource.name === pin) {
      return null;
    }
    return view.get(SCOPE, pin) === undefined
      ? null
      : this.#blockerOf(view, state, { typeUrl: SCOPE, name: pin }, below);
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
      const missing = other.heldVersion(key.name) !== undefined ? this.#missingBelow(view, wanted, below) : key;
      if (missing !== null) {
        below.set(resource, missing);
        return missing;
      }
    }
    return null;
  }

  /**
   * A changed cluster with dynamic endpoints warms until they come, asks for nothing, and blocks all later clusters
   * meanwhile; so they are due again after every cluster that was sent, whatever version the client has.
   */
  forceEndpoints(view: ResourceView, clusters: readonly EncodedResource[]): void {
    const state = this.#states.get(ENDPOINTS);
    for (const { name, requires } of clusters) {
      const named = requires.filter(({ typeUrl }) => typeUrl === ENDPOINTS).map((key) => key.name);
      for (const endpoints of new Set([name, ...named])) {
        if (state !== undefined && view.get(ENDPOINTS, endpoints) !== undefined) {
          state.forced.add(endpoints);
          state.touch(view, endpoints);
        }
      }
    }
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
   * The highest rank at which the client holds a version of unknown content that is still to be replaced. Whatever is of
   * a lower rank may be referred to from there; -1 when there is none.
   */
  unknownRank(view: ResourceView): number {
    let highest = -1;
    for (const [{ rules }, names] of this.#unknown) {
      if (rules.rank > highest && [...names].some((name) => view.get(rules.typeUrl, name) !== undefined)) {
        highest = rules.rank;
      }
    }
    return highest;
  }

  /** Whether nothing that the client holds, or may have applied, refers to a resource. */
  mayLeave(state: TypeState, name: string, unknownRank: number): boolean {
    const { typeUrl, rank } = state.rules;
    if (rank < unknownRank || this.#references.has(keyText({ typeUrl, name }))) {
      return false;
    }
    const isPin = typeUrl === SCOPE && name.startsWith(PIN);
    return !isPin || !this.#references.has(keyText({ typeUrl: ROUTES, name: name.slice(PIN.length) }));
  }
}

/**
 * Whether the requirement can only be met later: Envoy asks for secrets, endpoints and tables after it has the cluster
 * or listener that names them, and warms that one meanwhile. Nor is a refused one waited for: what uses it goes on with
 * the earlier version, or does without.
 */
function comesAfter(state: TypeState, other: TypeState, name: string): boolean {
  const warms = state.rules.typeUrl === CLUSTER || state.rules.typeUrl === LISTENER;
  return warms && !other.rules.wildcard && (!other.subscription.covers(name) || other.rejected.has(name));
}

function keyText({ typeUrl, name }: ResourceKey): string {
  return `${rulesOf(typeUrl)?.label ?? typeUrl}\0${name}`;
}
