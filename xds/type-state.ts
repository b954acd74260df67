import { NOTHING, type Subscription } from './subscription.ts';
import type { TypeRules } from './types.ts';
import type { EncodedResource, ResourceKey, ResourceView } from './view.ts';

/** A resource as the client has acknowledged it. */
export interface Accepted {
  readonly version: string;
  /** What that version refers to, as far as it is known. */
  readonly requires: readonly ResourceKey[];
  /** Whether it may refer to more: it comes from before this stream and is not the view's version. */
  readonly unknown: boolean;
}

/** The one response of a type that waits for its ACK. */
export interface Flight {
  readonly nonce: string;
  readonly resources: readonly EncodedResource[];
  readonly removed: ReadonlySet<string>;
}

/** Everything known about one type on one stream. Other types are {@link Ledger}'s business. */
export class TypeState {
  readonly rules: TypeRules;
  subscription: Subscription = NOTHING;
  /** Whether the client has asked for this type at all. */
  opened = false;
  flight: Flight | null = null;
  /** The first wildcard request is answered even when there is nothing to say, or Envoy never gets ready. */
  answerDue = false;
  /** Removals and upserts take turns, so that neither starves the other. */
  removalsNext = false;
  readonly accepted = new Map<string, Accepted>();
  /** Versions that the client refused; each is offered once on a stream. */
  readonly rejected = new Map<string, string>();
  /** To be sent whatever version is known. */
  readonly forced = new Set<string>();
  /** Names outside the view that the client has been told about. */
  readonly absent = new Set<string>();
  /** To be sent as soon as what they require is there. */
  readonly pending = new Set<string>();
  /** To be answered as removed. */
  readonly leaving = new Set<string>();
  /** Since when a name could have left, in the clock's milliseconds. */
  readonly leavingSince = new Map<string, number>();
  /** Pending names that wait, with the first requirement that is missing. They are not in `pending`. */
  readonly held = new Map<string, ResourceKey>();
  /** Groups of a rejected batch, sent apart to find the culprit. */
  suspects: string[][] = [];

  constructor(rules: TypeRules) {
    this.rules = rules;
  }

  /** Whether the view's version of a name has to be sent. */
  needs(name: string, resource: EncodedResource): boolean {
    if (!this.subscription.covers(name) || this.rejected.get(name) === resource.version) {
      return false;
    }
    return this.forced.has(name) || this.accepted.get(name)?.version !== resource.version;
  }

  /** The version that the client holds and goes on to hold, as far as it has been told. */
  heldVersion(name: string): string | undefined {
    return this.flight?.removed.has(name) ? undefined : this.accepted.get(name)?.version;
  }

  /** Works out anew what has to be said about one name; returns whether an earlier rejection of it is over. */
  touch(view: ResourceView, name: string): boolean {
    this.pending.delete(name);
    this.held.delete(name);
    this.leaving.delete(name);
    const resource = view.get(this.rules.typeUrl, name);
    if (!this.subscription.covers(name)) {
      return false;
    }
    if (resource === undefined) {
      this.#touchAbsent(name);
      return this.rejected.delete(name);
    }
    this.absent.delete(name);
    this.leavingSince.delete(name);
    const refused = this.rejected.get(name);
    if (refused !== undefined && refused !== resource.version) {
      this.rejected.delete(name);
    }
    if (this.needs(name, resource)) {
      this.pending.add(name);
    }
    return refused !== undefined && refused !== resource.version;
  }

  #touchAbsent(name: string): void {
    if (!this.rules.removable) {
      this.forced.delete(name);
      return;
    }
    const asked = this.subscription.names.has(name) || this.forced.has(name);
    if (this.accepted.has(name) || (asked && !this.absent.has(name))) {
      this.leaving.add(name);
    }
  }

  /** {@link touch} for every name that is covered or held by the client; returns names whose rejection is over. */
  refresh(view: ResourceView): string[] {
    this.pending.clear();
    this.held.clear();
    this.leaving.clear();
    const over: string[] = [];
    const visit = (name: string): void => {
      if (this.touch(view, name)) {
        over.push(name);
      }
    };
    const covered = this.subscription.wildcard ? view.names(this.rules.typeUrl) : this.subscription.names;
    for (const name of covered) {
      visit(name);
    }
    const rest = this.subscription.wildcard
      ? [this.accepted.keys(), this.subscription.names, this.rejected.keys()]
      : [];
    for (const names of rest) {
      for (const name of [...names]) {
        if (view.get(this.rules.typeUrl, name) === undefined) {
          visit(name);
        }
      }
    }
    for (const name of this.leavingSince.keys()) {
      if (!this.leaving.has(name)) {
        this.leavingSince.delete(name);
      }
    }
    return over;
  }
  /**
   * What {@link refresh} does, when under all other names the view has the same objects as the one before: of those only
   * what is held is looked at again, since what it waits for may have changed.
   */
  refreshSome(view: ResourceView, changed: Iterable<string>): string[] {
    for (const name of this.held.keys()) {
      this.pending.add(name);
    }
    this.held.clear();
    return [...changed].filter((name) => this.touch(view, name));
  }
}
