/**
 * The room `api/` holds the kinds of the product: schema, defaulting, validation across fields and the class of every
 * field, one file a kind; and the plain facts and decisions that the deciding rooms exchange. It knows nothing else.
 */

/** The part of Kubernetes' ObjectMeta that is read here. Times are RFC 3339 UTC with seconds. */
export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly ownerReferences?: readonly OwnerReference[];
  readonly finalizers?: readonly string[];
}

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
  readonly blockOwnerDeletion?: boolean;
}

/** Any object of a store: parsed, not necessarily valid. */
export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMeta;
  readonly spec?: unknown;
  readonly status?: unknown;
  readonly [field: string]: unknown;
}

/** Names one object; `namespace` is empty for cluster-scoped kinds. */
export interface ObjectRef {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** `Kind namespace/name`, or `Kind name` for a cluster-scoped object. */
export function refText(ref: ObjectRef): string {
  return ref.namespace === '' ? `${ref.kind} ${ref.name}` : `${ref.kind} ${ref.namespace}/${ref.name}`;
}

/** The reference of an object. */
export function refOf(object: KubeObject): ObjectRef {
  return { kind: object.kind, namespace: object.metadata.namespace ?? '', name: object.metadata.name };
}
