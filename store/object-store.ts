/**
 * The room `store/` keeps objects: a directory of manifests, a socket client to the process that owns the directory,
 * and later the Kubernetes API server, all behind {@link ObjectStore} and one conformance suite. It knows no policy
 * and no Envoy.
 */
import type { KubeObject } from '../api/object.ts';

/** Names a kind's collection, e.g. `Sandbox`. The registry of `api/kinds.ts` knows group, plural and scope. */
export type KindName = string;

/** What a store must know of a kind. */
export interface KindInfo {
  readonly namespaced: boolean;
  /** With a status subresource, `status` is written by `patchStatus` only. */
  readonly hasStatus: boolean;
  /** When given, objects must carry exactly this group and version. */
  readonly apiVersion?: string;
}

/** The kinds that a store keeps; anything else is refused. */
export type KindLookup = (kind: KindName) => KindInfo | undefined;

export interface ObjectKey {
  /** Empty for cluster-scoped kinds. */
  readonly namespace: string;
  readonly name: string;
}

export type WatchEvent =
  | { readonly type: 'added' | 'modified' | 'deleted'; readonly object: KubeObject }
  /** Everything up to this version has been seen; `initial` marks the end of the first list. */
  | { readonly type: 'bookmark'; readonly resourceVersion: string; readonly initial: boolean };

export interface ListResult {
  readonly items: readonly KubeObject[];
  readonly resourceVersion: string;
}

export interface WatchOptions {
  readonly namespace?: string;
  /**
   * Continue after this version; absent: first every present object as `added`, then an `initial` bookmark. A version
   * of which the history is gone ends the iteration with `expired`.
   */
  readonly resourceVersion?: string;
  readonly signal?: AbortSignal;
}

/** A change to a part of an object. */
export type Patch =
  /** RFC 7396. */
  | { readonly type: 'merge'; readonly body: unknown }
  /** RFC 6902; a failed `test` is a `conflict`. */
  | { readonly type: 'json'; readonly body: readonly object[] };

/**
 * Objects with Kubernetes' semantics: optimistic resource versions, generation raised by spec changes only, a status
 * subresource, finalizers that hold a deletion, watches without gaps. Objects are returned as stored: parsed, perhaps
 * invalid against their schema; callers parse each on its own, so that a bad one never breaks a list (crds §0.3).
 *
 * Errors are `CodedError`s: `not-found`, `already-exists`, `conflict` (a stale resource version or failed test),
 * `invalid` (a malformed object, with fields), `expired` (a watch version too old: list again), `unavailable`.
 * Returned objects are immutable.
 */
export interface ObjectStore {
  list(kind: KindName, options?: { readonly namespace?: string }): Promise<ListResult>;
  /** Throws `not-found`. */
  get(kind: KindName, key: ObjectKey): Promise<KubeObject>;
  create(object: KubeObject): Promise<KubeObject>;
  /** Replaces all but status. With `metadata.resourceVersion` set it must be the stored one. */
  replace(object: KubeObject): Promise<KubeObject>;
  patch(kind: KindName, key: ObjectKey, patch: Patch): Promise<KubeObject>;
  patchStatus(kind: KindName, key: ObjectKey, patch: Patch): Promise<KubeObject>;
  /** Sets `deletionTimestamp` while finalizers remain; removes the object, and what it owns, otherwise. */
  delete(kind: KindName, key: ObjectKey, options?: { readonly uid?: string }): Promise<void>;
  watch(kind: KindName, options?: WatchOptions): AsyncIterable<WatchEvent>;
  close(): Promise<void>;
}
