import type { DeltaRequest } from './messages.ts';
import { nackDetail, suspects } from './nack.ts';
import { type Below, Ledger } from './ordering.ts';
import type { Doubts, StreamEvents, StreamOptions } from './stream-events.ts';
import { Subscription, type SubscriptionStep } from './subscription.ts';
import type { Flight, TypeState } from './type-state.ts';
import { CLUSTER } from './types.ts';
import type { EncodedResource, ResourceKey, ResourceView } from './view.ts';

/** The largest response, in bytes of resources, unless a single resource is larger. */
const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;

/** No version: what the client holds under a name has to be sent again. */
const DOUBTFUL = '';

/**
 * One client's delta stream: requests in, responses out, no I/O. At most one response a type is under way, so a slow
 * client costs one response a type and is later brought to the latest view, not through every view between.
 */
export class ClientStream {
  readonly #ledger = new Ledger();
  readonly #events: StreamEvents;
  readonly #options: StreamOptions;
  #view: ResourceView | null = null;
  #sequence = 0;
  #settled: number | null = null;
  #nonces = 0;
  readonly #unserved = new Set<string>();

  constructor(events: StreamEvents, options: StreamOptions) {
    this.#events = events;
    this.#options = options;
  }

  /** Takes up a new view; before the first one, nothing is answered. */
  update(view: ResourceView, sequence: number): void {
    this.#sequence = sequence;
    const earlier = this.#view;
    if (view !== earlier) {
      this.#view = view;
      this.#ledger.clearWaiters();
      for (const state of this.#ledger.states()) {
        if (state.opened) {
          const changed = earlier === null ? null : view.changedSince?.(earlier, state.rules.typeUrl);
          this.#refresh(state, view, changed ?? null);
        }
      }
    }
    this.pump();
  }

  /**
   * Names that may be applied in another version than the client would report on its next stream: members of a batch
   * that it refused, or may have refused, and that has not been traced to its end.
   */
  doubts(): Doubts {
    const found = new Map<string, Set<string>>();
    for (const { rules, accepted, flight } of this.#ledger.states()) {
      const names = [...accepted].filter(([, { version }]) => version === DOUBTFUL).map(([name]) => name);
      const sent = flight?.resources ?? [];
      names.push(...(sent.length > 1 ? sent.map(({ name }) => name) : []));
      if (names.length > 0) {
        found.set(rules.typeUrl, new Set(names));
      }
    }
    return found;
  }

  /** Takes in one request: an ACK or NACK, a change of subscriptions, or both. */
  receive(request: DeltaRequest): void {
    const typeUrl = request.typeUrl ?? '';
    const state = this.#ledger.state(typeUrl);
    if (state === undefined) {
      if (this.#unserved.size < 100 && !this.#unserved.has(typeUrl)) {
        this.#unserved.add(typeUrl);
        this.#events.notice('the client asks for a type that is not served', { typeUrl: typeUrl.slice(0, 200) });
      }
      return;
    }
    // An answer to anything but the response under way says nothing about it; its changes of names count all the same.
    if (state.flight !== null && request.responseNonce === state.flight.nonce) {
      const { flight } = state;
      state.flight = null;
      if (request.errorDetail === undefined || request.errorDetail === null) {
        this.#acknowledge(state, flight);
      } else {
        this.#refuse(state, flight, request.errorDetail.message ?? '');
      }
    }
    this.#subscribe(state, request);
    this.pump();
  }

  /** Sends what can be sent now, type by type, make before break. */
  pump(): void {
    const view = this.#view;
    if (view === null) {
      return;
    }
    let wake = Number.POSITIVE_INFINITY;
    for (const state of this.#ledger.states()) {
      if (state.opened && state.flight === null) {
        wake = Math.min(wake, this.#pumpType(view, state));
      }
    }
    if (wake < Number.POSITIVE_INFINITY) {
      this.#events.wakeAfter(wake);
    }
    if (this.#settled !== this.#sequence && this.#isSettled(view)) {
      this.#settled = this.#sequence;
      this.#events.settled(this.#sequence);
    }
  }

  /** Returns after how many milliseconds a removal comes due; infinity when none waits. */
  #pumpType(view: ResourceView, state: TypeState): number {
    const upserts = this.#nextUpserts(view, state);
    const { names, wake } = this.#nextRemovals(view, state);
    if (names.length > 0 && (state.removalsNext || upserts.length === 0)) {
      state.removalsNext = false;
      this.#send(state, [], names);
    } else if (upserts.length > 0) {
      state.removalsNext = true;
      this.#send(state, upserts, []);
    } else if (state.answerDue && ![...state.held.values()].some((key) => !this.#ledger.isStuck(view, key))) {
      this.#send(state, [], []);
    }
    return wake;
  }

  #nextUpserts(view: ResourceView, state: TypeState): EncodedResource[] {
    const below: Below = new Map();
    while (state.suspects.length > 0) {
      const group = this.#sendable(view, state, state.suspects.shift()!, below, Number.POSITIVE_INFINITY);
      if (group.length > 0) {
        return group;
      }
    }
    return this.#sendable(view, state, state.pending, below, state.rules.batch ? MAX_RESPONSE_BYTES : 0);
  }

  /** The first resources among `names` that may be sent, up to `limit` bytes; the others that must wait are held. */
  #sendable(
    view: ResourceView,
    state: TypeState,
    names: Iterable<string>,
    below: Below,
    limit: number,
  ): EncodedResource[] {
    const chosen: EncodedResource[] = [];
    let bytes = 0;
    for (const name of names) {
      const resource = view.get(state.rules.typeUrl, name);
      if (resource === undefined || !state.needs(name, resource)) {
        state.pending.delete(name);
        continue;
      }
      const blocker = this.#ledger.blocker(view, state, resource, below);
      if (blocker !== null) {
        this.#ledger.hold(state, name, blocker);
        continue;
      }
      if (chosen.length > 0 && bytes + resource.bytes.length > limit) {
        break;
      }
      chosen.push(resource);
      bytes += resource.bytes.length;
      if (bytes >= limit) {
        break;
      }
    }
    return chosen;
  }

  #nextRemovals(view: ResourceView, state: TypeState): { names: string[]; wake: number } {
    const names: string[] = [];
    let wake = Number.POSITIVE_INFINITY;
    const now = this.#options.clock.now();
    const unknownRank = state.leaving.size > 0 ? this.#ledger.unknownRank(view) : -1;
    for (const name of state.leaving) {
      if (state.accepted.has(name) && !this.#ledger.mayLeave(state, name, unknownRank)) {
        state.leavingSince.delete(name);
        continue;
      }
      if (state.accepted.has(name) && state.rules.lingers) {
        const since = state.leavingSince.get(name) ?? now;
        state.leavingSince.set(name, since);
        const left = since + this.#options.removalDelayMs - now;
        if (left > 0) {
          wake = Math.min(wake, left);
          continue;
        }
      }
      names.push(name);
    }
    return { names, wake };
  }

  #send(state: TypeState, resources: readonly EncodedResource[], removed: readonly string[]): void {
    this.#nonces += 1;
    const nonce = String(this.#nonces);
    state.flight = { nonce, resources, removed: new Set(removed) };
    state.answerDue = false;
    for (const { name, requires } of resources) {
      state.pending.delete(name);
      state.forced.delete(name);
      this.#ledger.retain(requires);
    }
    for (const name of removed) {
      state.forced.delete(name);
    }
    this.#events.send({
      typeUrl: state.rules.typeUrl,
      nonce,
      resources: resources.map(({ typeUrl, name, version, bytes }) => ({
        name,
        version,
        resource: { typeUrl, value: bytes },
      })),
      removedResources: removed,
    });
    if (state.rules.typeUrl === CLUSTER && this.#view !== null) {
      this.#ledger.forceEndpoints(this.#view, resources);
    }
  }

  #acknowledge(state: TypeState, flight: Flight): void {
    for (const { name, version, requires } of flight.resources) {
      if (state.subscription.covers(name)) {
        this.#ledger.accept(state, name, { version, requires, unknown: false });
      }
      this.#ledger.release(requires);
      this.#touch(state, name);
    }
    for (const name of flight.removed) {
      this.#ledger.drop(state, name);
      if (state.subscription.names.has(name)) {
        state.absent.add(name);
      }
      this.#touch(state, name);
    }
  }

  /**
   * A rejected response of several is sent again in parts until the culprit is alone: Envoy may have applied all, some
   * or none of it, and does not always say which it blames.
   */
  #refuse(state: TypeState, flight: Flight, message: string): void {
    for (const { requires } of flight.resources) {
      this.#ledger.release(requires);
    }
    const [first, ...others] = flight.resources;
    if (first === undefined) {
      this.#events.notice('the client refused a response without resources', { type: state.rules.label });
      this.#acknowledge(state, flight);
    } else if (others.length === 0) {
      this.#quarantine(state, first, message);
    } else {
      for (const { name, requires } of flight.resources) {
        this.#doubt(state, name, requires);
      }
      const names = flight.resources.map(({ name }) => name);
      state.suspects.unshift(...suspects(message, names));
    }
  }

  /** The client may hold the version of a rejected response or the one before it: it holds something, unknown which. */
  #doubt(state: TypeState, name: string, requires: readonly ResourceKey[]): void {
    if (state.subscription.covers(name)) {
      const before = state.accepted.get(name);
      const both = [...(before?.requires ?? []), ...requires];
      this.#ledger.accept(state, name, { version: DOUBTFUL, requires: both, unknown: before?.unknown ?? false });
    }
    this.#touch(state, name);
  }

  #quarantine(state: TypeState, resource: EncodedResource, message: string): void {
    const { typeUrl, name, version, origins, sensitive } = resource;
    state.forced.delete(name);
    state.rejected.set(name, version);
    this.#touch(state, name);
    // Nobody waits for a refused resource below another: let those that did be looked at again.
    this.#ledger.wake(state, name);
    this.#events.rejected({ typeUrl, name, version, origins, detail: nackDetail(message, sensitive) });
  }

  #subscribe(state: TypeState, request: DeltaRequest): void {
    const change = {
      subscribe: request.resourceNamesSubscribe ?? [],
      unsubscribe: request.resourceNamesUnsubscribe ?? [],
    };
    if (!state.opened) {
      this.#open(state, Subscription.open(change, state.rules.wildcard), request.initialResourceVersions ?? {});
      return;
    }
    const step = state.subscription.change(change);
    state.subscription = step.subscription;
    for (const name of step.renewed) {
      state.absent.delete(name);
      state.forced.add(name);
      this.#touch(state, name);
    }
    for (const name of step.dropped) {
      this.#lose(state, name);
    }
    if (step.wildcardEnded) {
      for (const name of [...state.accepted.keys(), ...state.pending, ...state.held.keys()]) {
        if (!state.subscription.covers(name)) {
          this.#lose(state, name);
        }
      }
    }
  }

  /** The first request of a type: what the client holds from an earlier stream counts as acknowledged. */
  #open(state: TypeState, step: SubscriptionStep, versions: Readonly<Record<string, string>>): void {
    state.opened = true;
    state.subscription = step.subscription;
    const known = new Map(Object.entries(versions));
    state.answerDue = state.subscription.wildcard && known.size === 0;
    for (const name of this.#options.doubts?.get(state.rules.typeUrl) ?? []) {
      known.set(name, DOUBTFUL);
    }
    for (const [name, version] of known) {
      if (state.subscription.covers(name)) {
        this.#ledger.accept(state, name, { version, requires: [], unknown: true });
      }
    }
    if (this.#view !== null) {
      this.#refresh(state, this.#view, null);
    }
  }

  /** `changed`: the names whose resource is another one than in the view before; null: all may be. */
  #refresh(state: TypeState, view: ResourceView, changed: readonly string[] | null): void {
    if (this.#ledger.hasUnknown(state)) {
      for (const name of changed ?? state.accepted.keys()) {
        const held = state.accepted.get(name);
        const resource = view.get(state.rules.typeUrl, name);
        if (held?.unknown === true && resource?.version === held.version) {
          this.#ledger.accept(state, name, { version: held.version, requires: resource.requires, unknown: false });
        }
      }
    }
    for (const name of changed === null ? state.refresh(view) : state.refreshSome(view, changed)) {
      this.#events.cleared({ typeUrl: state.rules.typeUrl, name });
    }
  }

  #touch(state: TypeState, name: string): void {
    if (this.#view !== null && state.touch(this.#view, name)) {
      this.#events.cleared({ typeUrl: state.rules.typeUrl, name });
    }
  }

  /** The client has dropped its copy; were it to ask again, it would get the resource again, refused before or not. */
  #lose(state: TypeState, name: string): void {
    this.#ledger.drop(state, name);
    state.forced.delete(name);
    state.absent.delete(name);
    if (state.rejected.delete(name)) {
      this.#events.cleared({ typeUrl: state.rules.typeUrl, name });
    }
    this.#touch(state, name);
    // What waited for it may now come first, and the client will ask for it again.
    this.#ledger.wake(state, name);
  }

  /**
   * Whether everything of the view that can reach the client has been acknowledged. What it refused, what waits for
   * that, and removals that linger are not waited for; types that it will ask for as a whole are.
   */
  #isSettled(view: ResourceView): boolean {
    for (const state of this.#ledger.states()) {
      if (!state.opened) {
        if (state.rules.wildcard && !isEmpty(view.names(state.rules.typeUrl))) {
          return false;
        }
      } else if (state.flight !== null || state.pending.size > 0) {
        return false;
      } else {
        for (const blocker of state.held.values()) {
          if (!this.#ledger.isStuck(view, blocker)) {
            return false;
          }
        }
      }
    }
    return true;
  }
}

function isEmpty(items: Iterable<string>): boolean {
  for (const _ of items) {
    return false;
  }
  return true;
}
