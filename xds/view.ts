/**
 * The room `xds/` speaks the xDS protocol: delta ADS over mutual TLS, views by certificate, subscriptions, ordering,
 * ACK and NACK. It does not know what a policy is.
 */
import type { ObjectRef } from '../api/object.ts';

export interface ResourceKey {
  readonly typeUrl: string;
  readonly name: string;
}

/** One encoded resource. `version` is the hash of `bytes`: equal content is never sent twice, by any replica (D30). */
export interface EncodedResource extends ResourceKey {
  readonly version: string;
  readonly bytes: Uint8Array;
  /** Secrets and ingress scopes: their NACK detail is dropped, dumps show `[redacted]` (D7). */
  readonly sensitive: boolean;
  /** The objects it was made from, so that a NACK can be traced to its cause. */
  readonly origins: readonly ObjectRef[];
  /**
   * Resources that this client must have acknowledged before this one is sent, e.g. a scope requires its route table,
   * a table its clusters. Removal goes the other way round: a resource leaves only after everything that requires it.
   *
   * A cluster or listener may require secrets, endpoints and tables: Envoy asks for those later and warms it meanwhile,
   * so it does not wait for them, but whatever requires it does. A scope's table needs another scope that keeps it
   * subscribed (`!pin-<table>`) and that does not require it, or the scope waits for ever; the scope waits for that pin
   * too. A requirement that is not in the
   * view is never met.
   */
  readonly requires: readonly ResourceKey[];
}

/** What one kind of caller may see: an immutable mapping from names to resources. */
export interface ResourceView {
  /** Names of one type, sorted. */
  names(typeUrl: string): Iterable<string>;
  get(typeUrl: string, name: string): EncodedResource | undefined;
  /**
   * Names of one type under which this view and an earlier one have different objects, one of them possibly nothing;
   * null when that is not known. Then, and without this method, everything is compared.
   */
  changedSince?(earlier: ResourceView, typeUrl: string): readonly string[] | null;
}

/** The verified caller of a stream (D6): made from the client certificate alone, never from node fields. */
export interface Caller {
  /** `spiffe://<trust domain>/role/<role>` or `spiffe://<trust domain>/ns/<ns>/sandbox/<uid>`. */
  readonly spiffeId: string;
}

/**
 * Maps callers to views; swapped as a whole by `publish`. A name outside the view is answered as removed, except that
 * nothing is said about a route table: Envoy ignores its removal, and an answer would keep a starting listener waiting.
 */
export interface ViewSource {
  /**
   * undefined: the caller has no view, and its stream is refused. null: it has one that is not ready yet; its stream
   * keeps what it has, and says nothing before the first view, until a later publication gives one.
   */
  viewOf(caller: Caller): ResourceView | null | undefined;
}

/** How one connected client stands with one resource that it refused. */
export interface Rejection extends ResourceKey {
  readonly version: string;
  readonly spiffeId: string;
  /** Envoy's reason with resource content removed; null for a sensitive resource. */
  readonly detail: string | null;
  readonly origins: readonly ObjectRef[];
}

/** What the control plane learns from its clients. */
export interface XdsObserver {
  rejected(rejection: Rejection): void;
  /** A rejected resource has changed, or has left the client's view or subscription: that rejection is over. */
  cleared?(spiffeId: string, key: ResourceKey): void;
  /**
   * A caller has acknowledged, on all of its streams, everything of the publication with this sequence number that can
   * reach it. What it rejected, and what requires that, is not waited for. Later numbers include earlier ones.
   */
  settled(spiffeId: string, sequence: number): void;
  /** A caller's first stream has been accepted. */
  connected(spiffeId: string): void;
  /** A caller's last stream has ended; its rejections are void. */
  disconnected(spiffeId: string): void;
}
