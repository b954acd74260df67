import type { LabelSelector } from '../../api/common.ts';
import { labelSelector } from '../../api/common.ts';
import type { PolicyFacts, PolicyRecord, SandboxFacts } from '../../api/facts.ts';
import type { ObjectRef } from '../../api/object.ts';
import { refText } from '../../api/object.ts';
import { checkSchema, isMap, structural } from '../../api/schema-check.ts';
import type { SecurityProfileSpec, SecurityRule } from '../../api/security-profile.ts';
import { selectorErrors } from '../../api/selector.ts';
import type { TrafficPolicySpec, TrafficRule } from '../../api/traffic-policy.ts';
import { compareText } from '../../base/canonical.ts';

/** A TrafficPolicy or GlobalTrafficPolicy that selects the caller and configures egress. */
export interface SelectedPolicy {
  readonly ref: ObjectRef;
  readonly rules: readonly TrafficRule[];
}

/** A SecurityProfile or GlobalSecurityProfile that selects the caller. */
export interface SelectedProfile {
  readonly ref: ObjectRef;
  readonly rules: readonly SecurityRule[];
}

const DEFAULT_PRIORITY = 1000;

/** The L4 policies of a sandbox in the order of egress-policy §1.3: priority, creation, namespace, name. */
export function selectedPolicies(facts: PolicyFacts, sandbox: SandboxFacts): readonly SelectedPolicy[] {
  const records = selected(facts, sandbox, ['TrafficPolicy', 'GlobalTrafficPolicy']);
  records.sort(
    (a, b) =>
      priority(a) - priority(b) ||
      compareText(a.created, b.created) ||
      compareText(a.ref.namespace, b.ref.namespace) ||
      compareText(a.ref.name, b.ref.name),
  );
  return records.flatMap(({ ref, inForce }) => {
    const spec = inForce!.spec as TrafficPolicySpec;
    return spec.egress === undefined ? [] : [{ ref, rules: spec.egress.rules ?? [] }];
  });
}

/** The L7 profiles of a sandbox in the order of egress-policy §1.3: priority, creation, name, namespace. */
export function selectedProfiles(facts: PolicyFacts, sandbox: SandboxFacts): readonly SelectedProfile[] {
  const records = selected(facts, sandbox, ['SecurityProfile', 'GlobalSecurityProfile']);
  records.sort(
    (a, b) =>
      priority(a) - priority(b) ||
      compareText(a.created, b.created) ||
      compareText(a.ref.name, b.ref.name) ||
      compareText(a.ref.namespace, b.ref.namespace),
  );
  return records.map(({ ref, inForce }) => ({ ref, rules: (inForce!.spec as SecurityProfileSpec).rules ?? [] }));
}

/**
 * The object for which a sandbox is denied everything (D2): one that was never good and whose selector selects the
 * sandbox, or cannot be read. The first by kind, namespace and name; null when there is none.
 */
export function invalidObject(facts: PolicyFacts, sandbox: SandboxFacts): ObjectRef | null {
  const invalid = facts.policies
    .filter(({ ref, inForce }) => inForce === null && inScope(ref, sandbox))
    .filter(({ ref }) => {
      const selector = readSelector(facts.invalidSpecs[refText(ref)]);
      return selector === null || selects(selector, sandbox.labels);
    })
    .map(({ ref }) => ref);
  invalid.sort(
    (a, b) => compareText(a.kind, b.kind) || compareText(a.namespace, b.namespace) || compareText(a.name, b.name),
  );
  return invalid[0] ?? null;
}

/** Whether a selector selects a set of labels (crds B8): all its parts have to hold, so an empty one selects all. */
export function selects(selector: LabelSelector, labels: Readonly<Record<string, string>>): boolean {
  const label = (key: string) => (Object.hasOwn(labels, key) ? labels[key]! : null);
  const labelsHold = Object.entries(selector.matchLabels ?? {}).every(([key, value]) => label(key) === value);
  const expressionsHold = (selector.matchExpressions ?? []).every(({ key, operator, values = [] }) => {
    const value = label(key);
    switch (operator) {
      case 'In':
        return value !== null && values.includes(value);
      case 'NotIn':
        return value === null || !values.includes(value);
      case 'Exists':
        return value !== null;
      case 'DoesNotExist':
        return value === null;
      default:
        throw new RangeError(`selector operator ${operator} is not one that a valid object has`);
    }
  });
  return labelsHold && expressionsHold;
}

/** Records in force of these kinds that select the sandbox, in no order. */
function selected(facts: PolicyFacts, sandbox: SandboxFacts, kinds: readonly string[]): PolicyRecord[] {
  return facts.policies.filter(
    ({ ref, inForce }) =>
      kinds.includes(ref.kind) &&
      inScope(ref, sandbox) &&
      inForce?.spec !== undefined &&
      selects(inForce.spec.selector, sandbox.labels),
  );
}

/** A namespaced object only ever selects in its own namespace (egress-policy §1.2). */
function inScope(ref: ObjectRef, sandbox: SandboxFacts): boolean {
  return ref.kind.startsWith('Global') || ref.namespace === sandbox.namespace;
}

function priority({ inForce }: PolicyRecord): number {
  return inForce!.spec!.priority ?? DEFAULT_PRIORITY;
}

const SELECTOR = structural(labelSelector(''));

/** The selector of a raw spec, or null when it is missing, has an unknown member or a bad key, operator or value. */
function readSelector(spec: unknown): LabelSelector | null {
  const raw = isMap(spec) ? spec['selector'] : undefined;
  if (!isMap(raw) || checkSchema(SELECTOR, raw).length > 0) {
    return null;
  }
  const selector = raw as LabelSelector;
  return selectorErrors(selector, '').length > 0 ? null : selector;
}
