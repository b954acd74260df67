import type { PolicyFacts } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import type { Compilation } from '../policy-compiler/compilation.ts';
import { createSelecting, KnownSelections } from '../policy-compiler/select.ts';
import { findSandbox } from './explain.ts';

/** The answer of `explain` without a URL: what applies to a sandbox, in the order in which it is evaluated (D23). */
export interface EffectivePolicy {
  readonly sandbox: string;
  readonly policySet: string;
  /** The object because of which the sandbox is denied entirely (D2), or null. */
  readonly invalid: ObjectRef | null;
  /** Whether a connection that no rule matches is denied. */
  readonly defaultDeny: boolean;
  readonly l4: readonly (ObjectRef & { readonly priority: number; readonly rules: readonly unknown[] })[];
  readonly l7: readonly { readonly profile: ObjectRef; readonly rule: string; readonly actions: readonly string[] }[];
}

/** Throws `not-found` for an unknown sandbox. */
export function effectivePolicy(facts: PolicyFacts, compilation: Compilation, sandbox: string): EffectivePolicy {
  const found = findSandbox(facts, sandbox);
  const selection = createSelecting(facts, new KnownSelections()).select(found);
  const set = compilation.policySetOf(found.uid);
  const l4 = selection.l4.flatMap(({ record }) => {
    const spec = record.inForce?.spec;
    const egress = spec !== undefined && 'egress' in spec ? spec.egress : undefined;
    return egress === undefined ? [] : [{ ...record.ref, priority: spec?.priority ?? 1000, rules: egress.rules ?? [] }];
  });
  return {
    sandbox: `${found.namespace}/${found.name}`,
    policySet: compilation.subjects.get(found.uid)?.policySet ?? '',
    invalid: selection.invalid?.ref ?? null,
    defaultDeny: l4.some(({ rules }) => rules.some(isGoverning)),
    l4,
    l7: (set?.rules ?? []).map(({ profile, name, actions }) => ({ profile, rule: name, actions })),
  };
}

/** A rule without peers is skipped and establishes no default deny (egress-policy §1.4). */
function isGoverning(rule: unknown): boolean {
  const to = rule !== null && typeof rule === 'object' ? (rule as { readonly to?: readonly unknown[] }).to : undefined;
  return Array.isArray(to) && to.length > 0;
}
