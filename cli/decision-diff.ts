import { type ObjectRef, refText } from '../api/object.ts';
import { canonicalJson, compareText } from '../base/canonical.ts';
import { type EffectivePolicy, effectivePolicy } from '../control-plane/effective-policy.ts';
import type { Published } from '../control-plane/plane.ts';
import { type ListChange, listChange } from './list-diff.ts';

/** What decides: the manifests of one moment, compiled. */
export type DecidingPlane = Pick<Published, 'compilation' | 'world'>;

/** A connection rule where it stands in its policy. */
export interface L4Entry {
  readonly policy: ObjectRef;
  readonly priority: number;
  readonly index: number;
  readonly rule: unknown;
}

/** A request rule of a profile, as it is written there. */
export interface L7Entry {
  readonly profile: ObjectRef;
  readonly rule: string;
  readonly actions: readonly string[];
  readonly spec: unknown;
}

interface Change<T> {
  readonly before: T;
  readonly after: T;
}

/** How the effective policy of one sandbox changes. */
export interface DecisionChange {
  /** `namespace/name`. */
  readonly sandbox: string;
  /** Whether the sandbox is not there yet: all of its rules are then `added`. */
  readonly isNew: boolean;
  readonly policySet: Change<string | null>;
  /** Whether a connection that no rule matches is denied; false for a sandbox that is not there. */
  readonly defaultDeny: Change<boolean>;
  /** The object because of which everything is denied (D2). */
  readonly invalid: Change<ObjectRef | null>;
  readonly l4: ListChange<L4Entry>;
  readonly l7: ListChange<L7Entry>;
}

/** What is compared of one sandbox. */
interface Effective {
  readonly policy: EffectivePolicy;
  readonly l4: readonly L4Entry[];
  readonly l7: readonly L7Entry[];
}

/** The sandboxes whose effective policy changes, by name. A sandbox with no policy before and after is none of them. */
export function decisionChanges(before: DecidingPlane, after: DecidingPlane): readonly DecisionChange[] {
  const names = ({ world }: DecidingPlane) =>
    world.facts.sandboxes.map(({ namespace, name }) => `${namespace}/${name}`);
  const known = new Set(names(before));
  return names(after)
    .sort(compareText)
    .map((name) => changeOf(name, known.has(name) ? effective(before, name) : null, effective(after, name)))
    .filter(isChange);
}

function effective({ world, compilation }: DecidingPlane, sandbox: string): Effective {
  const policy = effectivePolicy(world.facts, compilation, sandbox);
  return {
    policy,
    l4: policy.l4.flatMap(({ priority, rules, kind, namespace, name }) =>
      rules.map((rule, index) => ({ policy: { kind, namespace, name }, priority, index, rule })),
    ),
    l7: policy.l7.map((entry) => ({ ...entry, spec: ruleOf(world, entry.profile, entry.rule) })),
  };
}

/** The rule of a profile's form in force. */
function ruleOf(world: DecidingPlane['world'], profile: ObjectRef, name: string): unknown {
  const text = refText(profile);
  const spec = world.facts.policies.find(({ ref }) => refText(ref) === text)?.inForce?.spec;
  return spec !== undefined && 'rules' in spec ? spec.rules?.find((rule) => rule.name === name) : undefined;
}

function changeOf(sandbox: string, before: Effective | null, after: Effective): DecisionChange {
  return {
    sandbox,
    isNew: before === null,
    policySet: { before: before?.policy.policySet ?? null, after: after.policy.policySet },
    defaultDeny: { before: before?.policy.defaultDeny ?? false, after: after.policy.defaultDeny },
    invalid: { before: before?.policy.invalid ?? null, after: after.policy.invalid },
    l4: listChange(before?.l4 ?? [], after.l4, {
      content: ({ policy, priority, rule }) => canonicalJson([policy, priority, rule]),
      identity: ({ policy, index }) => `${refText(policy)} ${index}`,
    }),
    l7: listChange(before?.l7 ?? [], after.l7, {
      content: canonicalJson,
      identity: ({ profile, rule }) => `${refText(profile)} ${rule}`,
    }),
  };
}

function isChange({ defaultDeny, invalid, l4, l7 }: DecisionChange): boolean {
  const moves = ({ added, removed, changed, reordered }: ListChange<object>) =>
    reordered || added.length + removed.length + changed.length > 0;
  return (
    defaultDeny.before !== defaultDeny.after ||
    canonicalJson(invalid.before) !== canonicalJson(invalid.after) ||
    moves(l4) ||
    moves(l7)
  );
}
