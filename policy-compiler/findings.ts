import type { PolicyFacts, PolicyRecord } from '../api/facts.ts';
import { type ObjectRef, refText } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import type { L4Policy } from './l4-policy.ts';
import { namePieces, standingOf } from './l4-set.ts';
import type { L7Rule } from './l7-policy.ts';
import type { Finding } from './output.ts';
import type { Plan, Planner } from './plan.ts';
import { MAX_PLANS, plansOf } from './plans.ts';

type Problem = Omit<Finding, 'ref' | 'status'>;

/** Everything that the control plane tells the owners of policies: one finding per object and type, sorted. */
export function findingsOf(
  facts: PolicyFacts,
  planner: Planner,
  plans: readonly { readonly plan: Plan; readonly namespaces: ReadonlySet<string> }[],
): readonly Finding[] {
  const problems = new Map<string, Problem[]>();
  const add = (ref: ObjectRef, problem: Problem) => {
    problems.set(refText(ref), [...(problems.get(refText(ref)) ?? []), problem]);
  };
  for (const { plan } of plans) {
    for (const { ref, problem } of planProblems(plan)) {
      add(ref, problem);
    }
  }
  const callers = new Set(plans.flatMap(({ namespaces }) => [...namespaces]));
  const findings = facts.policies
    .filter(({ inForce }) => inForce !== null)
    .flatMap((record) => {
      const isTraffic = record.ref.kind.endsWith('TrafficPolicy');
      const own = isTraffic ? omittedPeers(planner.traffic(record).value) : profileProblems(record, planner, callers);
      const all = [...own, ...(problems.get(refText(record.ref)) ?? [])];
      return isTraffic
        ? [conclusion(record.ref, 'Enforceable', all)]
        : [conclusion(record.ref, 'Enforceable', all), conclusion(record.ref, 'ResolvedRefs', all)];
    });
  return findings.sort((a, b) => compareText(refText(a.ref), refText(b.ref)) || compareText(a.type, b.type));
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

/** D2: what is left out is said. */
function omittedPeers(policy: L4Policy): Problem[] {
  return policy.omitted.map((text) => ({
    type: 'Enforceable',
    reason: 'PeersOmitted',
    message: `${text}; it is left out, and the direction counts as governed`,
  }));
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

function profileProblems(record: PolicyRecord, planner: Planner, callers: ReadonlySet<string>): Problem[] {
  const namespaces = record.ref.namespace === '' ? [...callers].sort() : [record.ref.namespace];
  const readings = namespaces.map((namespace) => planner.profile(record, namespace).value);
  const first = readings[0] ?? planner.profile(record, '').value;
  const missing = readings.flatMap((rules) => rules.flatMap(missingSecret));
  return [...first.flatMap(ruleProblems), ...missing];
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
