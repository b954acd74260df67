import type { PolicyObject, PolicyRecord } from '../api/facts.ts';
import { type KubeObject, refOf, refText } from '../api/object.ts';
import type { FieldError } from '../base/errors.ts';
import type { LastGood } from './last-good.ts';
import { member } from './sandboxes.ts';

/** Kinds whose objects are policies. */
export const POLICY_KINDS = [
  'TrafficPolicy',
  'GlobalTrafficPolicy',
  'SecurityProfile',
  'GlobalSecurityProfile',
] as const;

/** Reason of condition `Programmed` when an Envoy refused what an object was compiled to. */
export const ENVOY_REJECTED = 'EnvoyRejected';

/** What checking one stored policy gives: its errors, and its defaulted form when there are none. */
export type PolicyCheck = (object: KubeObject) => {
  readonly errors: readonly FieldError[];
  readonly defaulted: PolicyObject | null;
};

/** The records of all policies and the raw specs of those that have no form in force (D2). */
export interface PolicyRecords {
  readonly records: readonly PolicyRecord[];
  readonly invalidSpecs: Readonly<Record<string, unknown>>;
}

/**
 * Chooses the form of each policy that is in force: the stored one when it is valid and no Envoy refused it, else the
 * last good one of the same uid, else none (D2). `remembered` is the process's own memory of good forms, by uid: it is
 * read and kept up to date here, so that a form that was in force stays so even before it was persisted.
 */
export function policyRecords(
  objects: readonly KubeObject[],
  kept: ReadonlyMap<string, LastGood>,
  remembered: Map<string, LastGood>,
  check: PolicyCheck,
): PolicyRecords {
  const sorted = objects
    .map((object) => ({ text: refText(refOf(object)), object }))
    .sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0));
  const invalidSpecs: Record<string, unknown> = {};
  const records = sorted.map(({ text, object }) => {
    const record = recordOf(object, kept, remembered, check);
    if (record.inForce === null) {
      invalidSpecs[text] = object.spec ?? null;
    }
    return record;
  });
  forget(remembered, objects);
  return { records, invalidSpecs };
}

function recordOf(
  object: KubeObject,
  kept: ReadonlyMap<string, LastGood>,
  remembered: Map<string, LastGood>,
  check: PolicyCheck,
): PolicyRecord {
  const { uid = '', generation = 0, creationTimestamp = '' } = object.metadata;
  const base = { ref: refOf(object), created: creationTimestamp, generation };
  const checked = check(object);
  const refused = rejection(object);
  if (checked.defaulted !== null && refused === null) {
    remembered.set(uid, { uid, generation, spec: object.spec });
    return { ...base, inForce: checked.defaulted, errors: [] };
  }
  const errors = refused === null ? checked.errors : [{ path: 'spec', reason: refused }];
  return { ...base, inForce: lastGoodForm(object, kept, remembered, check), errors };
}

/** The newer of the kept and the remembered form, never the stored generation itself. */
function lastGoodForm(
  object: KubeObject,
  kept: ReadonlyMap<string, LastGood>,
  remembered: Map<string, LastGood>,
  check: PolicyCheck,
): PolicyObject | null {
  const { uid = '', generation = 0 } = object.metadata;
  const forms = [kept.get(uid), remembered.get(uid)]
    .filter((form) => form !== undefined)
    .filter((form) => form.generation < generation)
    .sort((a, b) => b.generation - a.generation);
  for (const form of forms) {
    const checked = check({ ...object, spec: form.spec });
    if (checked.defaulted !== null) {
      return checked.defaulted;
    }
  }
  return null;
}

/** Why an Envoy refused the stored generation, from the object's own conditions; null when none did. */
export function rejection(object: KubeObject): string | null {
  const conditions = member(object.status, 'conditions');
  if (!Array.isArray(conditions)) {
    return null;
  }
  for (const condition of conditions) {
    const isRejection =
      member(condition, 'type') === 'Programmed' &&
      member(condition, 'reason') === ENVOY_REJECTED &&
      member(condition, 'observedGeneration') === object.metadata.generation;
    if (isRejection) {
      return `refused by Envoy: ${String(member(condition, 'message'))}`;
    }
  }
  return null;
}

function forget(remembered: Map<string, LastGood>, objects: readonly KubeObject[]): void {
  const present = new Set(objects.map((object) => object.metadata.uid ?? ''));
  for (const uid of remembered.keys()) {
    if (!present.has(uid)) {
      remembered.delete(uid);
    }
  }
}
