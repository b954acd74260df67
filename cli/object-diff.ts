import type { KubeObject, ObjectRef } from '../api/object.ts';
import { isMap, memberPath } from '../api/schema-check.ts';
import { canonicalJson } from '../base/canonical.ts';
import { type Applied, ownPart } from './apply-object.ts';
import { HIDDEN } from './documents.ts';
import { hideSecrets } from './get.ts';

/** One field that changes; a side on which it is absent is left out, a secret value is `[redacted]`. */
export interface FieldChange {
  readonly path: string;
  readonly before?: unknown;
  readonly after?: unknown;
}

/** What becomes of one object. */
export interface ObjectChange extends ObjectRef {
  readonly change: Applied;
  /** Empty for an object that is created or stays as it is. */
  readonly fields: readonly FieldChange[];
}

type Path = readonly (string | number)[];

/** The fields of what a person writes in which two forms of an object differ, in the order of the object. */
export function fieldChanges(before: KubeObject, after: KubeObject): readonly FieldChange[] {
  const [old, now] = [hideSecrets(before, false), hideSecrets(after, false)];
  return differing(ownPart(before), ownPart(after), []).map((path) => ({
    path: path.reduce<string>(
      (text, step) => (typeof step === 'number' ? `${text}[${step}]` : memberPath(text, step)),
      '',
    ),
    ...side('before', valueAt(before, path), valueAt(old, path)),
    ...side('after', valueAt(after, path), valueAt(now, path)),
  }));
}

/** The fields that differ, as deep as both sides are alike. */
function differing(before: unknown, after: unknown, at: Path): Path[] {
  if (canonicalJson(before ?? null) === canonicalJson(after ?? null)) {
    return [];
  }
  if (isMap(before) && isMap(after)) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return keys.flatMap((key) => differing(before[key], after[key], [...at, key]));
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    const longer = before.length > after.length ? before : after;
    return longer.flatMap((_, index) => differing(before[index], after[index], [...at, index]));
  }
  return [at];
}

function side(name: 'before' | 'after', value: unknown, shown: unknown): Partial<FieldChange> {
  return value === undefined ? {} : { [name]: shown };
}

/** The value at a path; below what is hidden everything is. */
function valueAt(object: unknown, path: Path): unknown {
  return path.reduce<unknown>((value, step) => {
    if (value === HIDDEN) {
      return HIDDEN;
    }
    return value !== null && typeof value === 'object' && Object.hasOwn(value, step)
      ? (value as Record<string | number, unknown>)[step]
      : undefined;
  }, object);
}
