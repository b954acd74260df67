import type { KubeObject, ObjectMeta } from '../api/object.ts';
import { CodedError, type FieldError } from '../base/errors.ts';
import { applyPatch, isMap, type JsonMap, mapOf, settle } from './json.ts';
import type { KindInfo, KindLookup, Patch } from './object-store.ts';

/**
 * The state machine of one object: pure functions from the stored object and a request to the next object. The next
 * object is the stored one itself when nothing changed; its resource version is given when it is committed.
 */

const NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** The part of metadata that the store alone writes. */
const SYSTEM_FIELDS = ['uid', 'resourceVersion', 'generation', 'creationTimestamp', 'deletionTimestamp'] as const;

/** What a manifest cannot set: the store's own fields and what Kubernetes' tools leave in an exported object. */
const NOT_IN_FORM: ReadonlySet<string> = new Set([
  ...SYSTEM_FIELDS,
  'finalizers',
  'managedFields',
  'selfLink',
  'deletionGracePeriodSeconds',
]);

/** RFC 3339 UTC with seconds. */
export function timestamp(milliseconds: number): string {
  return `${new Date(milliseconds).toISOString().slice(0, 19)}Z`;
}

/** The kind's description; throws `invalid` for a kind that is not known. */
export function infoOf(kinds: KindLookup, kind: unknown): KindInfo {
  const info = typeof kind === 'string' ? kinds(kind) : undefined;
  if (info === undefined) {
    throw invalid([{ path: 'kind', reason: `unknown kind ${JSON.stringify(kind)}` }]);
  }
  return info;
}

/**
 * Checks what makes an object an object (apiVersion, kind, a name that can be a file's name) and nothing else;
 * an absent namespace of a namespaced kind becomes `default`. Throws `invalid` with fields.
 */
export function identified(input: unknown, kinds: KindLookup): KubeObject {
  if (!isMap(input)) {
    throw new CodedError('invalid', 'an object must be a map');
  }
  const info = infoOf(kinds, input['kind']);
  const metadata = isMap(input['metadata']) ? input['metadata'] : {};
  const errors: FieldError[] = [];
  const check = (path: string, good: boolean, reason: string): void => {
    if (!good) {
      errors.push({ path, reason });
    }
  };
  const version = input['apiVersion'];
  check('apiVersion', typeof version === 'string' && version !== '', 'required');
  if (info.apiVersion !== undefined && typeof version === 'string' && version !== '') {
    check('apiVersion', version === info.apiVersion, `${String(input['kind'])} has ${info.apiVersion}`);
  }
  const { name, namespace } = metadata;
  check('metadata.name', typeof name === 'string' && name !== '', 'required');
  if (typeof name === 'string' && name !== '') {
    check('metadata.name', NAME.test(name), 'must be lower-case letters, digits, "-" and ".", at most 253');
  }
  const absent = namespace === undefined || namespace === null || namespace === '';
  if (info.namespaced && !absent) {
    const good = typeof namespace === 'string' && NAMESPACE.test(namespace);
    check('metadata.namespace', good, 'must be lower-case letters, digits and "-", at most 63');
  }
  check('metadata.namespace', info.namespaced || absent, `${String(input['kind'])} has no namespace`);
  if (errors.length > 0) {
    throw invalid(errors);
  }
  const { namespace: _, ...rest } = metadata;
  const placed = info.namespaced ? { ...rest, namespace: absent ? 'default' : namespace } : rest;
  return { ...input, metadata: placed } as unknown as KubeObject;
}

function invalid(fields: readonly FieldError[]): CodedError {
  return new CodedError('invalid', fields.map((field) => `${field.path}: ${field.reason}`).join('; '), { fields });
}

/** A new object of a request: the store's own fields are set, a status is dropped where the kind has the subresource. */
export function created(input: KubeObject, info: KindInfo, uid: string, now: number): KubeObject {
  const metadata = {
    ...without(input.metadata, SYSTEM_FIELDS),
    uid,
    generation: 1,
    creationTimestamp: timestamp(now),
  };
  const { status, ...rest } = input;
  const kept = info.hasStatus ? rest : { ...rest, ...(status === undefined ? {} : { status }) };
  const object = settle(undefined, { ...kept, metadata }) as KubeObject;
  finalizersOf(object, true);
  return object;
}

/** The stored object with everything but its status taken from the request. */
export function replaced(stored: KubeObject, input: KubeObject, info: KindInfo): KubeObject {
  requireSame(stored, input);
  const { metadata } = input;
  const system = Object.fromEntries(SYSTEM_FIELDS.map((field) => [field, stored.metadata[field]]));
  const { status, ...rest } = input;
  const state = info.hasStatus ? stored.status : status;
  const next = settle(stored, {
    ...rest,
    metadata: { ...metadata, ...system },
    ...(state === undefined ? {} : { status: state }),
  }) as KubeObject;
  const added = finalizersOf(next, true).filter((name) => !finalizersOf(stored).includes(name));
  if (stored.metadata.deletionTimestamp !== undefined && added.length > 0) {
    throw invalid([{ path: 'metadata.finalizers', reason: 'cannot be added while the object is being deleted' }]);
  }
  return raised(stored, next, info);
}

/** The stored object after a patch; a change of the status is ignored where the kind has the subresource. */
export function patched(stored: KubeObject, patch: Patch, info: KindInfo, kinds: KindLookup): KubeObject {
  const next = identified(applyPatch(stored, patch), kinds);
  return replaced(stored, next, info);
}

/** The stored object after a patch of which only the status counts. */
export function statusPatched(stored: KubeObject, patch: Patch, info: KindInfo): KubeObject {
  if (!info.hasStatus) {
    throw new CodedError('invalid', `${stored.kind} has no status`);
  }
  const patched = applyPatch(stored, patch);
  if (!isMap(patched) || !isMap(patched['metadata'])) {
    throw new CodedError('invalid', 'the patch removes the object');
  }
  requireSame(stored, patched as unknown as KubeObject);
  const { status: _, ...rest } = stored;
  const status = patched['status'];
  return settle(stored, { ...rest, ...(status === undefined ? {} : { status }) }) as KubeObject;
}

/** The object of a manifest: the form a person wrote, with what the store keeps of the object. */
export function edited(stored: KubeObject, form: KubeObject, info: KindInfo): KubeObject {
  const kept = mapOf(Object.entries(stored.metadata).filter(([key]) => NOT_IN_FORM.has(key)));
  const state = info.hasStatus && stored.status !== undefined ? { status: stored.status } : {};
  const next = settle(stored, { ...form, metadata: { ...form.metadata, ...kept }, ...state }) as KubeObject;
  return raised(stored, next, info);
}

/** The stored object marked as being deleted. */
export function doomed(stored: KubeObject, now: number): KubeObject {
  return stored.metadata.deletionTimestamp !== undefined
    ? stored
    : (settle(stored, {
        ...stored,
        metadata: { ...stored.metadata, deletionTimestamp: timestamp(now) },
      }) as KubeObject);
}

/** The object under a resource version. */
export function stamped(object: KubeObject, version: number): KubeObject {
  const metadata = { ...object.metadata, resourceVersion: String(version) };
  return settle(object, { ...object, metadata }) as KubeObject;
}

/** What a manifest says of an object: without status (where it is a subresource) and without the store's own fields. */
export function formOf(object: KubeObject, info: KindInfo): KubeObject {
  const { status, metadata, ...rest } = object;
  const kept = mapOf(Object.entries(metadata).filter(([key]) => !NOT_IN_FORM.has(key)));
  const state = info.hasStatus || status === undefined ? {} : { status };
  return { ...rest, metadata: kept, ...state } as unknown as KubeObject;
}

/** Whether two versions of an object have the same form; parts are compared by identity, which {@link settle} gives. */
export function sameForm(a: KubeObject, b: KubeObject, info: KindInfo): boolean {
  return sameMembers(a, b, ['metadata', ...(info.hasStatus ? ['status'] : [])]) && sameMeta(a.metadata, b.metadata);
}

function sameMeta(a: ObjectMeta, b: ObjectMeta): boolean {
  return sameMembers(a as unknown as JsonMap, b as unknown as JsonMap, [...NOT_IN_FORM]);
}

function sameMembers(a: JsonMap, b: JsonMap, except: readonly string[]): boolean {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  for (const key of except) {
    keys.delete(key);
  }
  return [...keys].every((key) => a[key] === b[key]);
}

/** The generation goes up when anything outside metadata and status changed. */
function raised(stored: KubeObject, next: KubeObject, info: KindInfo): KubeObject {
  if (next === stored || sameMembers(stored, next, ['metadata', ...(info.hasStatus ? ['status'] : [])])) {
    return next;
  }
  const metadata = { ...next.metadata, generation: (stored.metadata.generation ?? 0) + 1 };
  return settle(next, { ...next, metadata }) as KubeObject;
}

function requireSame(stored: KubeObject, next: KubeObject): void {
  const errors: FieldError[] = [];
  if (next.kind !== stored.kind) {
    errors.push({ path: 'kind', reason: 'cannot be changed' });
  }
  for (const field of ['name', 'namespace'] as const) {
    if (next.metadata[field] !== stored.metadata[field]) {
      errors.push({ path: `metadata.${field}`, reason: 'cannot be changed' });
    }
  }
  if (errors.length > 0) {
    throw invalid(errors);
  }
  for (const field of ['uid', 'resourceVersion'] as const) {
    const wanted = next.metadata[field];
    if (wanted !== undefined && wanted !== '' && wanted !== stored.metadata[field]) {
      throw conflict(stored, `${field} ${stored.metadata[field]} is stored, ${String(wanted)} was expected`);
    }
  }
}

/** A `conflict` that names the object. */
export function conflict(object: KubeObject, reason: string): CodedError {
  const { namespace, name } = object.metadata;
  return new CodedError(
    'conflict',
    `${object.kind} ${namespace === undefined ? '' : `${namespace}/`}${name}: ${reason}`,
  );
}

/** The finalizers of an object, those that are text; with `strict` anything else is `invalid`. */
export function finalizersOf(object: KubeObject, strict = false): readonly string[] {
  const list: unknown = object.metadata.finalizers ?? [];
  const good = Array.isArray(list) && list.every((item) => typeof item === 'string' && item !== '');
  if (!good && strict) {
    throw invalid([{ path: 'metadata.finalizers', reason: 'must be a list of texts' }]);
  }
  return Array.isArray(list) ? list.filter((item) => typeof item === 'string' && item !== '') : [];
}

/** The uids that own an object: the controller's alone when there is one, otherwise all; malformed entries are skipped. */
export function ownersOf(object: KubeObject): readonly string[] {
  const list: unknown = object.metadata.ownerReferences;
  const refs = Array.isArray(list) ? list.filter((ref) => isMap(ref) && typeof ref['uid'] === 'string') : [];
  const controller = refs.find((ref) => ref.controller === true);
  return controller === undefined ? refs.map((ref) => ref.uid) : [controller.uid];
}

function without(map: object, fields: readonly string[]): JsonMap {
  return mapOf(Object.entries(map).filter(([key]) => !fields.includes(key)));
}
