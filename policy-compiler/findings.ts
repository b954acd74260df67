import type { PolicyFacts, PolicyRecord } from '../api/facts.ts';
import { type ObjectRef, refText } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import { sameItems } from '../base/items.ts';
import type { L4Policy } from './l4-policy.ts';
import { namePieces, standingOf } from './l4-set.ts';
import type { L7Rule } from './l7-policy.ts';
import type { Finding } from './output.ts';
import type { Plan, Planner } from './plan.ts';
import { MAX_PLANS, plansOf } from './plans.ts';

type Problem = Omit<Finding, 'ref' | 'status'>;

/** What was concluded about a policy, and the problems from which it was: lists and objects that stay the same. */
interface Known {
  readonly from: readonly unknown[];
  readonly findings: readonly Finding[];
}

/** Makes the findings; those of a policy whose problems are the same stay the same objects. */
export class FindingsMemo {
  readonly #known = new WeakMap<PolicyRecord, Known>();
  readonly #texts = new WeakMap<PolicyRecord, string>();

  /** Everything that the control plane tells the owners of policies: one finding per object and type, sorted. */
  of(
    facts: PolicyFacts,
    planner: Planner,
    plans: readonly { readonly plan: Plan; readonly namespaces: ReadonlySet<string> }[],
  ): readonly Finding[] {
    const blamed = Map.groupBy(
      plans.flatMap(({ plan }) => planProblems(plan)),
      ({ ref }) => refText(ref),
    );
    const callers = [...new Set(plans.flatMap(({ namespaces }) => [...namespaces]))].sort();
    return facts.policies
      .filter(({ inForce }) => inForce !== null)
      .map((record) => ({ record, text: this.#textOf(record) }))
      .sort((a, b) => compareText(a.text, b.text))
      .flatMap(({ record, text }) => {
        const own = isTraffic(record)
          ? [omittedPeers(planner.traffic(record).value)]
          : profileProblems(record, planner, callers);
        return this.#conclude(record, own, blamed.get(text) ?? NO_BLAME);
      });
  }

  #textOf(record: PolicyRecord): string {
    const text = this.#texts.get(record) ?? refText(record.ref);
    this.#texts.set(record, text);
    return text;
  }

  #conclude(record: PolicyRecord, own: readonly (readonly Problem[])[], blamed: readonly Blamed[]): readonly Finding[] {
    const from = [...own, ...blamed];
    const known = this.#known.get(record);
    if (known !== undefined && sameItems(known.from, from)) {
      return known.findings;
    }
    const all = [...own.flat(), ...blamed.map(({ problem }) => problem)];
    const types: readonly Finding['type'][] = isTraffic(record) ? ['Enforceable'] : ['Enforceable', 'ResolvedRefs'];
    const findings = types.map((type) => conclusion(record.ref, type, all));
    this.#known.set(record, { from, findings });
    return findings;
  }
}

const NO_BLAME: readonly Blamed[] = [];

function isTraffic({ ref }: PolicyRecord): boolean {
  return ref.kind.endsWith('TrafficPolicy');
}

function conclusion(ref: ObjectRef, type: Finding['type'], problems: readonly Problem[]): Finding {
  const own = problems.filter((problem) => problem.type === type);
  const first = own[0];
  if (first === undefined) {
    return { ref, type, status: 'True', reason: type, message: '' };
  }
  const messages = [...new Set(own.map(({ message }) => message))].sort();
  return { ref, type, status: 'False', reason: first.reason, message: messages.join('; ') };
}

const omitted = new WeakMap<L4Policy, readonly Problem[]>();

/** D2: what is left out is said. */
function omittedPeers(policy: L4Policy): readonly Problem[] {
  let problems = omitted.get(policy);
  if (problems === undefined) {
    problems = policy.omitted.map((text) => ({
      type: 'Enforceable',
      reason: 'PeersOmitted',
      message: `${text}; it is left out, and the direction counts as governed`,
    }));
    omitted.set(policy, problems);
  }
  return problems;
}

type Add = (ref: ObjectRef, problem: Problem) => void;

interface Blamed {
  readonly ref: ObjectRef;
  readonly problem: Problem;
}

const known = new WeakMap<Plan, readonly Blamed[]>();

/** What is wrong with policies only because of how they meet in one plan. */
function planProblems(plan: Plan): readonly Blamed[] {
  let problems = known.get(plan);
  if (problems === undefined) {
    const found: Blamed[] = [];
    const add: Add = (ref, problem) => found.push({ ref, problem });
    unresolvedNames(plan, add);
    tooManyCredentials(plan, add);
    problems = found;
    known.set(plan, problems);
  }
  return problems;
}

/** D4: an allow of addresses does not admit a name whose address is not known. */
function unresolvedNames({ l4 }: Plan, add: Add): void {
  for (const { name, host } of l4.names) {
    if (!namePieces(l4, name).some(({ decision }) => decision.reason === 'unresolved')) {
      continue;
    }
    for (const rule of l4.rules.filter((candidate) => standingOf(candidate, name, host).kind === 'unresolved')) {
      const where = `spec.egress.rules[${rule.index}]`;
      const message = `${where} allows addresses, which does not admit the name ${name}; list it as fqdn`;
      add(rule.ref, { type: 'Enforceable', reason: 'Unresolved', message });
    }
  }
}

function tooManyCredentials({ l7 }: Plan, add: Add): void {
  const withToken = l7.rules.filter(({ token }) => token !== null && 'credential' in token);
  if (withToken.length <= 6 || plansOf(withToken) !== null) {
    return;
  }
  for (const rule of withToken) {
    const message = `the rules of one sandbox combine credentials in more than ${MAX_PLANS} ways`;
    add(rule.profile, { type: 'Enforceable', reason: 'TooManyCredentials', message });
  }
}

/** What the rules of a profile say of themselves, and the Secrets that they lack. */
interface RulesProblems {
  readonly own: readonly Problem[];
  readonly missing: readonly Problem[];
}

const ofRules = new WeakMap<readonly L7Rule[], RulesProblems>();

function problemsOf(rules: readonly L7Rule[]): RulesProblems {
  let problems = ofRules.get(rules);
  if (problems === undefined) {
    problems = { own: rules.flatMap(ruleProblems), missing: rules.flatMap(missingSecret) };
    ofRules.set(rules, problems);
  }
  return problems;
}

/** A Global profile is read once for each namespace of its callers, as far as that makes a difference. */
function profileProblems(
  record: PolicyRecord,
  planner: Planner,
  callers: readonly string[],
): readonly (readonly Problem[])[] {
  const namespaces = record.ref.namespace === '' ? callers : [record.ref.namespace];
  const readings = [...new Set(namespaces.map((namespace) => planner.profile(record, namespace).value))];
  const first = readings[0] ?? planner.profile(record, '').value;
  return [problemsOf(first).own, ...readings.map((rules) => problemsOf(rules).missing)];
}

function missingSecret({ name, token }: L7Rule): Problem[] {
  if (token === null || 'unenforceable' in token || token.available) {
    return [];
  }
  const { credential } = token;
  const message = `rule ${name}: Secret ${credential.namespace}/${credential.name} has no usable key ${credential.key}`;
  return [{ type: 'ResolvedRefs', reason: 'SecretNotFound', message }];
}

function ruleProblems({ name, clauses, token }: L7Rule): Problem[] {
  const problems: Problem[] = [];
  if (token !== null && 'unenforceable' in token) {
    const message = `rule ${name}: ${token.unenforceable}; what it matches is denied`;
    problems.push({ type: 'Enforceable', reason: 'NotCarriedOut', message });
  }
  const https = clauses.filter(({ schemes }) => schemes.length === 0 || schemes.includes('https'));
  const wild = https.flatMap(({ domains }) =>
    domains.flatMap((domain) =>
      domain.kind === 'any' ? ['*'] : domain.kind === 'suffix' ? [`*.${domain.suffix}`] : [],
    ),
  );
  if (wild.length > 0) {
    const list = [...new Set(wild)].sort().join(', ');
    const message = `rule ${name}: TLS to names under ${list} is not intercepted; list a name exactly to have its TLS read`;
    problems.push({ type: 'Enforceable', reason: 'TLSNotIntercepted', message });
  }
  if (clauses.some(({ domains }) => domains.some(({ kind }) => kind === 'never'))) {
    const message = `rule ${name}: a domain with * elsewhere than as its first label matches no host`;
    problems.push({ type: 'Enforceable', reason: 'NeverMatches', message });
  }
  return problems;
}
