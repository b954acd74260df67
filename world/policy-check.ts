import type { PolicyObject } from '../api/facts.ts';
import { kindNamed } from '../api/kinds.ts';
import type { KubeObject } from '../api/object.ts';
import { validateObject } from '../api/validate.ts';
import { canonicalJson } from '../base/canonical.ts';
import type { FieldError } from '../base/errors.ts';

/** What checking one stored policy gives: its errors, and its defaulted form when there are none. */
export interface PolicyCheck {
  readonly errors: readonly FieldError[];
  readonly defaulted: PolicyObject | null;
}

/** How many forms of one policy are known: the stored one and those that it may fall back to. */
const FORMS = 4;

/**
 * Checks policies against schema and meaning (D2), each content once: a change of the status, which the product writes
 * itself, is the same content and gives the same defaulted object.
 */
export class PolicyChecks {
  readonly #byObject = new WeakMap<KubeObject, PolicyCheck>();
  readonly #byContent = new Map<string, readonly { readonly text: string; readonly check: PolicyCheck }[]>();

  of(object: KubeObject): PolicyCheck {
    const known = this.#byObject.get(object);
    if (known !== undefined) {
      return known;
    }
    // Neither is part of what the policy says, and a version would make equal worlds differ.
    const { status: _status, ...rest } = object;
    const { resourceVersion: _version, ...metadata } = object.metadata;
    const content: KubeObject = { ...rest, metadata };
    const text = canonicalJson(content);
    const uid = object.metadata.uid ?? '';
    const forms = this.#byContent.get(uid) ?? [];
    const form = forms.find((candidate) => candidate.text === text) ?? { text, check: checkPolicy(content) };
    this.#byContent.set(uid, [form, ...forms.filter((other) => other !== form)].slice(0, FORMS));
    this.#byObject.set(object, form.check);
    return form.check;
  }

  /** Forgets the policies that are not among these, by uid. */
  retain(uids: ReadonlySet<string>): void {
    for (const uid of this.#byContent.keys()) {
      if (!uids.has(uid)) {
        this.#byContent.delete(uid);
      }
    }
  }
}

function checkPolicy(object: KubeObject): PolicyCheck {
  const { invalid } = validateObject(object);
  const kind = kindNamed(object.kind);
  const isGood = invalid.length === 0 && kind !== undefined;
  return { errors: invalid, defaulted: isGood ? (kind.defaults(object) as PolicyObject) : null };
}
