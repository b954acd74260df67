import jsonPatch from 'fast-json-patch';
import { CodedError, errorText } from '../base/errors.ts';
import type { Patch } from './object-store.ts';

/** Deeper values are refused, so that no walk over an object can exhaust the stack. */
const MAX_DEPTH = 128;

export type JsonMap = Readonly<Record<string, unknown>>;

/** Whether the value is a map: neither null nor an array. */
export function isMap(value: unknown): value is JsonMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A map from entries that keeps a member named `__proto__` a plain member. */
export function mapOf(entries: Iterable<readonly [string, unknown]>): JsonMap {
  return Object.fromEntries(entries);
}

/**
 * The frozen form of `next` in which every part that equals the same part of `previous` *is* that part. So an
 * unchanged value is recognised by identity, and the versions of an object in a watch history share their memory.
 * `previous` must come from an earlier call. Members that are undefined are dropped. Throws `invalid` for what JSON
 * cannot say, with the path of the value.
 */
export function settle(previous: unknown, next: unknown, path = '', depth = 0): unknown {
  if (next === previous && next !== undefined) {
    return previous;
  }
  if (next === null || typeof next === 'string' || typeof next === 'boolean') {
    return next;
  }
  if (typeof next === 'number' && Number.isFinite(next)) {
    return next;
  }
  if (typeof next !== 'object') {
    throw notJson(path, `a ${typeof next} is not a JSON value`);
  }
  if (depth >= MAX_DEPTH) {
    throw notJson(path, `nested deeper than ${MAX_DEPTH}`);
  }
  return Array.isArray(next) ? settleList(previous, next, path, depth) : settleMap(previous, next, path, depth);
}

function settleList(previous: unknown, next: readonly unknown[], path: string, depth: number): unknown {
  const before = Array.isArray(previous) ? previous : undefined;
  let same = before?.length === next.length;
  const list = next.map((item, index) => {
    const settled = settle(before?.[index], item, `${path}[${index}]`, depth + 1);
    same &&= settled === before?.[index];
    return settled;
  });
  return same ? previous : Object.freeze(list);
}

function settleMap(previous: unknown, next: object, path: string, depth: number): unknown {
  const prototype = Object.getPrototypeOf(next);
  if (prototype !== Object.prototype && prototype !== null) {
    throw notJson(path, 'not a plain map');
  }
  const before = isMap(previous) ? previous : undefined;
  const entries: [string, unknown][] = [];
  let same = before !== undefined;
  for (const [key, value] of Object.entries(next)) {
    if (value !== undefined) {
      const old = before !== undefined && Object.hasOwn(before, key) ? before[key] : undefined;
      const settled = settle(old, value, path === '' ? key : `${path}.${key}`, depth + 1);
      same &&= settled === old;
      entries.push([key, settled]);
    }
  }
  return same && Object.keys(before!).length === entries.length ? previous : Object.freeze(mapOf(entries));
}

function notJson(path: string, reason: string): CodedError {
  return new CodedError('invalid', `${path === '' ? 'object' : path}: ${reason}`, { fields: [{ path, reason }] });
}

/** Whether two JSON values are equal, whatever the order of their members. */
export function equalJson(a: unknown, b: unknown): boolean {
  if (a === b) {
    return true;
  }
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, index) => equalJson(item, b[index]));
  }
  if (!isMap(a) || !isMap(b)) {
    return false;
  }
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && equalJson(a[key], b[key]))
  );
}

/** RFC 7396: members of the patch replace those of the target, null removes, maps are merged. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isMap(patch)) {
    return patch;
  }
  const merged = new Map(isMap(target) ? Object.entries(target) : []);
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) {
      merged.delete(key);
    } else if (value !== undefined) {
      merged.set(key, mergePatch(merged.get(key), value));
    }
  }
  return mapOf(merged);
}

/** Applies a patch to a value, which stays as it is. Throws `conflict` for a failed `test`, otherwise `invalid`. */
export function applyPatch(target: unknown, patch: Patch): unknown {
  if (patch?.type === 'merge') {
    if (!isMap(patch.body)) {
      throw new CodedError('invalid', 'the body of a merge patch must be a map');
    }
    return mergePatch(target, patch.body);
  }
  if (patch?.type !== 'json' || !Array.isArray(patch.body)) {
    throw new CodedError('invalid', 'a patch is {type: "merge", body: {…}} or {type: "json", body: […]}');
  }
  try {
    return jsonPatch.applyPatch(structuredClone(target), structuredClone(patch.body), true, true).newDocument;
  } catch (error) {
    const name = error instanceof Error ? error.name : '';
    // The library's messages end with the whole document, which may hold a secret: only the name is passed on.
    if (name === 'TEST_OPERATION_FAILED') {
      throw new CodedError('conflict', 'a test of the JSON patch failed');
    }
    const reason = name === 'TypeError' ? errorText(error).split('\n')[0] : name;
    throw new CodedError('invalid', `the JSON patch cannot be applied: ${reason}`);
  }
}
