/** What one request changes about a subscription. */
export interface SubscriptionChange {
  readonly subscribe: readonly string[];
  readonly unsubscribe: readonly string[];
}

/** The outcome of a change: the new value, and what has to be done about it. */
export interface SubscriptionStep {
  readonly subscription: Subscription;
  /**
   * Names that must be answered even when their version is known: asked for (again), or unsubscribed by name while a
   * wildcard still covers them (the client then asks whether they go on to exist).
   */
  readonly renewed: readonly string[];
  /** Names that were asked for one by one and are covered no longer: the client has dropped them. */
  readonly dropped: readonly string[];
  /** The wildcard ended: whatever only it covered is dropped. */
  readonly wildcardEnded: boolean;
}

const ALL = '*';

/**
 * What a client of delta xDS is subscribed to, for one type on one stream: an immutable value. The clauses are those of
 * the xDS protocol, "How the client specifies what resources to return".
 */
export class Subscription {
  readonly wildcard: boolean;
  /** Names asked for one by one. */
  readonly names: ReadonlySet<string>;

  private constructor(wildcard: boolean, names: ReadonlySet<string>) {
    this.wildcard = wildcard;
    this.names = names;
  }

  /**
   * The subscription after the first request of a type on a stream. Only here does an empty list mean everything
   * ("legacy" wildcard), and only for types that have it.
   */
  static open(change: SubscriptionChange, legacyWildcard: boolean): SubscriptionStep {
    const empty = change.subscribe.length === 0 && change.unsubscribe.length === 0;
    return new Subscription(empty && legacyWildcard, new Set()).change(change);
  }

  /** Whether a name is subscribed to. */
  covers(name: string): boolean {
    return this.wildcard || this.names.has(name);
  }

  /**
   * Applies a later request. Subscriptions come before unsubscriptions. A name does not end a wildcard, only
   * unsubscribing from `*` does, and a later empty request changes nothing.
   */
  change({ subscribe, unsubscribe }: SubscriptionChange): SubscriptionStep {
    if (subscribe.length === 0 && unsubscribe.length === 0) {
      return { subscription: this, renewed: [], dropped: [], wildcardEnded: false };
    }
    let wildcard = this.wildcard || subscribe.includes(ALL);
    const names = new Set(this.names);
    const renewed = new Set<string>();
    for (const name of subscribe) {
      if (name !== ALL) {
        names.add(name);
        renewed.add(name);
      }
    }
    if (unsubscribe.includes(ALL)) {
      wildcard = false;
    }
    const dropped: string[] = [];
    for (const name of unsubscribe) {
      const known = names.delete(name);
      renewed.delete(name);
      if (known && wildcard) {
        renewed.add(name);
      } else if (known) {
        dropped.push(name);
      }
    }
    const subscription = new Subscription(wildcard, names);
    return { subscription, renewed: [...renewed], dropped, wildcardEnded: this.wildcard && !wildcard };
  }
}

/** Covers nothing: the state before the first request. */
export const NOTHING = Subscription.open({ subscribe: [], unsubscribe: [] }, false).subscription;
