import { canonicalJson } from '../base/canonical.ts';
import type { Dial } from './dial.ts';
import type { L7Rule } from './l7-policy.ts';

/** At most this many different sets of credentials per host: each is a cluster and a route. */
export const MAX_PLANS = 64;

/**
 * Every set of credentials that some request to a host with these rules could come to carry, keyed by its text; the
 * empty set included. null when there are more than {@link MAX_PLANS}: such a host gets no credentials at all.
 */
export function plansOf(rules: readonly L7Rule[]): ReadonlyMap<string, Dial['injections']> | null {
  let plans: Map<string, Dial['injections']> | null = new Map([[canonicalJson([]), []]]);
  for (const rule of rules) {
    plans = plans === null ? null : withRule(plans, rule);
  }
  return plans;
}

function withRule(
  plans: ReadonlyMap<string, Dial['injections']>,
  rule: L7Rule,
): Map<string, Dial['injections']> | null {
  const result = new Map(plans);
  for (const injections of plans.values()) {
    const next = applied(injections, rule);
    result.set(canonicalJson(next), next);
    if (result.size > MAX_PLANS) {
      return null;
    }
  }
  return result;
}

/** The injections after a rule that matched: its header changes replace earlier ones of the same name. */
function applied(injections: Dial['injections'], rule: L7Rule): Dial['injections'] {
  const byHeader = new Map(injections.map((injection) => [injection.header, injection]));
  for (const name of [...rule.remove, ...rule.set.map(([header]) => header)]) {
    byHeader.delete(name);
  }
  if (rule.token !== null && 'credential' in rule.token) {
    for (const header of rule.token.headers) {
      byHeader.set(header, { header, id: rule.token.credential.id });
    }
  }
  return [...byHeader.values()].sort((a, b) => (a.header < b.header ? -1 : 1));
}
