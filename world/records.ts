import type { PolicyObject, PolicyRecord } from '../api/facts.ts';
import { type KubeObject, refOf, refText } from '../api/object.ts';
import { canonicalJson, compareText } from '../base/canonical.ts';
import { sameItems } from '../base/items.ts';
import { KeptByKey } from './keep.ts';
import type { LastGood } from './last-good.ts';
import { type PolicyCheck, PolicyChecks } from './policy-check.ts';
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

/** The records of all policies and the raw specs of those that have no form in force (D2). */
export interface PolicyRecords {
  readonly records: readonly PolicyRecord[];
  readonly invalidSpecs: Readonly<Record<string, unknown>>;
}

interface PolicyText {
  readonly object: KubeObject;
  readonly text: string;
  /** Why an Envoy refused the stored generation; null when none did. */
  readonly refused: string | null;
}

/** Good forms that are remembered of one policy: the present one, and the one before, should it be refused. */
const REMEMBERED = 2;

/**
 * Chooses the form of each policy that is in force: the stored one when it is valid and no Envoy refused it, else the
 * last good one of the same uid, else none (D2). It remembers good forms itself, so that a form that was in force stays
 * so even before it was persisted. Records of unchanged policies stay the same objects, and so does the whole list.
 */
export class PolicyForms {
  readonly #checks = new PolicyChecks();
  readonly #remembered = new Map<string, readonly LastGood[]>();
  readonly #records = new KeptByKey<PolicyRecord>(sameRecord);
  readonly #texts = new WeakMap<KubeObject, PolicyText>();
  #chosen: PolicyRecords = { records: [], invalidSpecs: {} };

  /** `kept` are the persisted last good forms, by uid. */
  choose(objects: readonly KubeObject[], kept: ReadonlyMap<string, LastGood>): PolicyRecords {
    this.#records.turn();
    const sorted = objects.map((object) => this.#read(object)).sort((a, b) => compareText(a.text, b.text));
    const invalidSpecs: Record<string, unknown> = {};
    const records = sorted.map(({ text, refused, object }) => {
      const uid = object.metadata.uid ?? '';
      this.#remember(object, refused);
      const inputs = [object, kept.get(uid), this.#remembered.get(uid)];
      const record = this.#records.get(text, inputs, () => this.#record(object, refused, kept.get(uid)));
      if (record.inForce === null) {
        invalidSpecs[text] = object.spec ?? null;
      }
      return record;
    });
    this.#forget(objects);
    const { records: before, invalidSpecs: invalidBefore } = this.#chosen;
    this.#chosen = {
      records: sameItems(before, records) ? before : records,
      invalidSpecs: canonicalJson(invalidBefore) === canonicalJson(invalidSpecs) ? invalidBefore : invalidSpecs,
    };
    return this.#chosen;
  }

  /** What is read of each object at every change of any: once an object. */
  #read(object: KubeObject): PolicyText {
    const known = this.#texts.get(object);
    const read = known ?? { text: refText(refOf(object)), refused: rejection(object), object };
    this.#texts.set(object, read);
    return read;
  }

  #record(object: KubeObject, refused: string | null, kept: LastGood | undefined): PolicyRecord {
    const { generation = 0, creationTimestamp = '' } = object.metadata;
    const base = { ref: refOf(object), created: creationTimestamp, generation };
    const checked = this.#checks.of(object);
    if (checked.defaulted !== null && refused === null) {
      return { ...base, inForce: checked.defaulted, errors: [] };
    }
    const errors = checked.defaulted === null ? checked.errors : [{ path: 'spec', reason: refused ?? '' }];
    return { ...base, inForce: this.#lastGood(object, kept), errors };
  }

  /** The newer of the kept and the remembered forms, never the stored generation itself. */
  #lastGood(object: KubeObject, kept: LastGood | undefined): PolicyObject | null {
    const { uid = '', generation = 0 } = object.metadata;
    const forms = [kept, ...(this.#remembered.get(uid) ?? [])]
      .filter((form) => form !== undefined)
      .filter((form) => form.generation < generation)
      .sort((a, b) => b.generation - a.generation);
    for (const form of forms) {
      const checked: PolicyCheck = this.#checks.of({ ...object, spec: form.spec });
      if (checked.defaulted !== null) {
        return checked.defaulted;
      }
    }
    return null;
  }

  #remember(object: KubeObject, refused: string | null): void {
    const { uid = '', generation = 0 } = object.metadata;
    const known = this.#remembered.get(uid) ?? [];
    const isKnown = known.some((form) => form.generation === generation);
    if (uid === '' || isKnown === (refused === null)) {
      return;
    }
    if (refused !== null) {
      // The form before it was in force until this one came.
      const earlier = known.filter((form) => form.generation !== generation);
      this.#remembered.set(uid, earlier);
    } else if (this.#checks.of(object).defaulted !== null) {
      this.#remembered.set(uid, [{ uid, generation, spec: object.spec }, ...known].slice(0, REMEMBERED));
    }
  }

  #forget(objects: readonly KubeObject[]): void {
    const present = new Set(objects.map((object) => object.metadata.uid ?? ''));
    this.#checks.retain(present);
    for (const uid of this.#remembered.keys()) {
      if (!present.has(uid)) {
        this.#remembered.delete(uid);
      }
    }
  }
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

function sameRecord(a: PolicyRecord, b: PolicyRecord): boolean {
  return (
    a.inForce === b.inForce &&
    a.generation === b.generation &&
    a.created === b.created &&
    canonicalJson([a.ref, a.errors]) === canonicalJson([b.ref, b.errors])
  );
}
