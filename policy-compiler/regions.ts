import { compileRegex } from '../base/regex.ts';
import type { Clause, L7Rule, PathTest, ValueTest } from './l7-policy.ts';
import { headerValues, type MatchInput, testText } from './match.ts';
import { type Domain, domainCovers, underSuffix } from './names.ts';
import { isOddPath, pathOf } from './paths.ts';
import type { Matched } from './walk.ts';

/** What a route of one host asks of a request, beside host, scheme and destination. Empty lists mean anything. */
export interface Condition {
  readonly methods: readonly string[];
  readonly ports: readonly number[];
  /** At most one `Exact`, or one `Prefix` and one `Regex`; all have to hold. */
  readonly paths: readonly PathTest[];
  readonly headers: readonly HeaderTest[];
  /** Only paths that normalising could change (D8). */
  readonly odd: boolean;
}

/** Some value of the header meets the test; with `fails`, some value does not. */
export interface HeaderTest extends ValueTest {
  readonly fails?: true;
}

/** A piece of the request space in which the same rules match; the first piece that holds a request decides it. */
export interface Region {
  readonly condition: Condition;
  /** Rules that match everywhere in it, up to the one that ends the walk. */
  readonly matched: readonly Matched[];
  /** What happens there depends on more than Envoy's route table can see. */
  readonly processor: boolean;
}

export const ANYTHING: Condition = { methods: [], ports: [], paths: [], headers: [], odd: false };

/** Regions of one host; more than this are left to the external processor. */
export const MAX_REGIONS = 48;

/** The hosts of a table entry: one name, all names under a suffix that no longer entry holds, or the rest. */
export type HostPattern = Exclude<Domain, { kind: 'never' }>;

/** Whether the domain covers every host of the pattern; a pattern is never covered partly by another one. */
function covers(domain: Domain, pattern: HostPattern): boolean {
  if (pattern.kind === 'exact') {
    return domainCovers(domain, pattern.name);
  }
  if (pattern.kind === 'suffix' && domain.kind === 'suffix') {
    return domain.suffix === pattern.suffix || underSuffix(pattern.suffix, domain.suffix);
  }
  return domain.kind === 'any';
}

/** The rules that can match a request to these hosts. */
export function rulesFor(rules: readonly L7Rule[], pattern: HostPattern): readonly L7Rule[] {
  return rules.filter(({ clauses }) =>
    clauses.some(({ domains }) => domains.some((domain) => covers(domain, pattern))),
  );
}

interface Atom {
  readonly condition: Condition;
  readonly schemeListed: boolean;
  /** The clause asks for more than a condition can say. */
  readonly partly: boolean;
}

/**
 * Divides the requests to the hosts of a pattern into regions, in first-match order. Every rule is one cut: what
 * matches it comes first, combined with all regions of the later rules, unless the walk ends with it. The last region
 * holds everything. More than {@link MAX_REGIONS} become one that the external processor decides.
 */
export function expandRegions(
  rules: readonly L7Rule[],
  pattern: HostPattern,
  scheme: 'http' | 'https',
): readonly Region[] {
  const relevant = rulesFor(rules, pattern).filter(hasEffect);
  let regions: readonly Region[] = [{ condition: ANYTHING, matched: [], processor: false }];
  for (const rule of relevant.toReversed()) {
    const atoms = atomsOf(rule, pattern, scheme);
    const cut = atoms.length * (endsWalk(rule) ? 1 : regions.length);
    if (cut + regions.length > 4 * MAX_REGIONS) {
      return [ALL_PROCESSOR];
    }
    regions = reachable([...regions.flatMap((region, index) => cutRegion(rule, atoms, region, index)), ...regions]);
    if (regions.length > MAX_REGIONS) {
      return [ALL_PROCESSOR];
    }
  }
  const odd = relevant.some((rule) => rule.strict && rule.clauses.some(({ paths }) => paths.length > 0));
  return odd ? [{ ...ALL_PROCESSOR, condition: { ...ANYTHING, odd: true } }, ...regions] : regions;
}

const ALL_PROCESSOR: Region = { condition: ANYTHING, matched: [], processor: true };

function hasEffect(rule: L7Rule): boolean {
  return rule.actions.length > 0;
}

/** Whether nothing after this rule matters, so that it needs no combination with later rules. */
function endsWalk(rule: L7Rule): boolean {
  const failing = rule.token !== null && ('unenforceable' in rule.token || !rule.token.available);
  return rule.bypass || rule.block !== null || rule.mcp !== null || failing;
}

function cutRegion(rule: L7Rule, atoms: readonly Atom[], region: Region, index: number): Region[] {
  const final = endsWalk(rule);
  if (final && index > 0) {
    return [];
  }
  return atoms.flatMap(({ condition, schemeListed, partly }) => {
    const both = final ? { condition, partly: false } : conjunction(condition, region.condition);
    if (both === null) {
      return [];
    }
    const bodyNeeded = rule.mcp !== null && !rule.bypass && rule.block === null;
    return [
      {
        condition: both.condition,
        matched: [{ rule, schemeListed, bypass: rule.bypass }, ...(final ? [] : region.matched)],
        processor: partly || both.partly || bodyNeeded || (!final && region.processor),
      },
    ];
  });
}

/** The clauses of a rule for this host and scheme, one per path; those that list the scheme come first. */
function atomsOf(rule: L7Rule, pattern: HostPattern, scheme: string): readonly Atom[] {
  const clauses = rule.clauses.filter(
    ({ domains, schemes }) =>
      domains.some((domain) => covers(domain, pattern)) && (schemes.length === 0 || schemes.includes(scheme)),
  );
  const listed = clauses.filter(({ schemes }) => schemes.includes(scheme));
  const others = clauses.filter(({ schemes }) => !schemes.includes(scheme));
  return [...listed, ...others].flatMap((clause) =>
    clauseAtoms(clause, scheme).flatMap((atom) => byLastValue(rule, atom)),
  );
}

/**
 * Envoy tests every value of a repeated header, as a strict rule does. Another rule looks at the last value alone: where
 * some value of the header fails the test, the external processor decides which one was last.
 */
function byLastValue(rule: L7Rule, atom: Atom): readonly Atom[] {
  const { headers } = atom.condition;
  if (headers.length === 0 || (rule.strict && !rule.bypass)) {
    return [atom];
  }
  if (
    rule.strict ||
    atom.partly ||
    headers.some(({ type, value }) => type === 'Regex' || value.length > MAX_COMPLEMENT)
  ) {
    return [{ ...atom, partly: true }];
  }
  const mixed = headers.map((test): Atom => {
    const condition = { ...atom.condition, headers: [...headers, { ...test, fails: true } as const] };
    return { ...atom, condition, partly: true };
  });
  return [...mixed, atom];
}

/** Longer values make no complement: its expression grows with the value. */
const MAX_COMPLEMENT = 128;

function clauseAtoms(clause: Clause, scheme: string): readonly Atom[] {
  const paths: readonly (PathTest | null)[] = clause.paths.length === 0 ? [null] : clause.paths.filter(canHold);
  return paths.map((path) => ({
    condition: {
      methods: clause.methods,
      ports: clause.ports,
      paths: path === null || !isExpressible(path) ? [] : [path],
      headers: clause.headers.filter(isExpressible),
      odd: false,
    },
    schemeListed: clause.schemes.includes(scheme),
    partly: clause.query.length > 0 || (path !== null && !isExpressible(path)) || !clause.headers.every(isExpressible),
  }));
}

/** A path never holds a `?`, so a literal with one never matches. */
function canHold(path: PathTest): boolean {
  return path.type === 'Regex' || !path.value.includes('?');
}

/** Envoy matches the whole text: a search becomes this. */
export function searchPattern(source: string): string {
  return `(?s).*(?:${source}).*`;
}

const expressible = new Map<string, boolean>();

/** Whether Envoy's matchers can make this test: ASCII, and a regular expression that stays one inside a group. */
function isExpressible(test: PathTest): boolean {
  const key = `${test.type} ${test.value}`;
  let known = expressible.get(key);
  if (known === undefined) {
    known = /^[\x20-\x7e]*$/.test(test.value) && (test.type !== 'Regex' || compiles(searchPattern(test.value)));
    expressible.set(key, known);
  }
  return known;
}

function compiles(source: string): boolean {
  try {
    compileRegex(source);
    return true;
  } catch {
    return false;
  }
}

/** Both conditions at once; null when no request meets both. `partly`: the result asks for less than both. */
export function conjunction(a: Condition, b: Condition): { condition: Condition; partly: boolean } | null {
  const methods = intersection(a.methods, b.methods);
  const ports = intersection(a.ports, b.ports);
  const paths = pathConjunction([...a.paths, ...b.paths]);
  if (methods === null || ports === null || paths === null) {
    return null;
  }
  const headers = new Map([...a.headers, ...b.headers].map((test) => [headerKey(test), test]));
  return {
    condition: { methods, ports, paths: paths.paths, headers: [...headers.values()], odd: a.odd || b.odd },
    partly: paths.partly,
  };
}

/** Lists where empty means anything; null when they have nothing in common. */
function intersection<T>(a: readonly T[], b: readonly T[]): readonly T[] | null {
  if (a.length === 0 || b.length === 0) {
    return a.length === 0 ? b : a;
  }
  const common = a.filter((item) => b.includes(item));
  return common.length === 0 ? null : common;
}

function pathConjunction(tests: readonly PathTest[]): { paths: readonly PathTest[]; partly: boolean } | null {
  const exact = tests.find(({ type }) => type === 'Exact');
  if (exact !== undefined) {
    return tests.every((test) => testText(test, exact.value)) ? { paths: [exact], partly: false } : null;
  }
  const prefixes = tests.filter(({ type }) => type === 'Prefix').sort((a, b) => b.value.length - a.value.length);
  const longest = prefixes[0];
  if (longest !== undefined && !prefixes.every(({ value }) => longest.value.startsWith(value))) {
    return null;
  }
  const regexes = [...new Map(tests.filter(({ type }) => type === 'Regex').map((test) => [test.value, test])).values()];
  const paths = [...(longest === undefined ? [] : [longest]), ...regexes.slice(0, 1)];
  return { paths, partly: regexes.length > 1 };
}

/** Leaves out regions that an earlier one holds entirely. */
function reachable(regions: readonly Region[]): readonly Region[] {
  const kept: Region[] = [];
  for (const region of regions) {
    if (!kept.some((earlier) => implies(region.condition, earlier.condition))) {
      kept.push(region);
    }
  }
  return kept;
}

/** Whether everything that meets `a` meets `b`. */
function implies(a: Condition, b: Condition): boolean {
  return (
    (!b.odd || a.odd) &&
    within(a.methods, b.methods) &&
    within(a.ports, b.ports) &&
    b.paths.every((test) => a.paths.some((own) => pathImplies(own, test))) &&
    b.headers.every((test) => a.headers.some((own) => headerKey(own) === headerKey(test)))
  );
}

function headerKey({ name, type, value, fails }: HeaderTest): string {
  return `${name} ${type} ${fails === true} ${value}`;
}

function within<T>(a: readonly T[], b: readonly T[]): boolean {
  return b.length === 0 || (a.length > 0 && a.every((item) => b.includes(item)));
}

function pathImplies(own: PathTest, test: PathTest): boolean {
  if (own.type === test.type && own.value === test.value) {
    return true;
  }
  return own.type === 'Exact'
    ? testText(test, own.value)
    : own.type === 'Prefix' && test.type === 'Prefix' && own.value.startsWith(test.value);
}

/** Whether a request of the host meets a condition; the same test that Envoy makes. */
export function conditionHolds(condition: Condition, input: MatchInput): boolean {
  const path = pathOf(input.target);
  return (
    (!condition.odd || isOddPath(path)) &&
    (condition.methods.length === 0 || condition.methods.includes(input.method.toUpperCase())) &&
    (condition.ports.length === 0 || condition.ports.includes(input.port)) &&
    condition.paths.every((test) => testText(test, path)) &&
    condition.headers.every((test) =>
      headerValues(test.name, input).some((value) => testText(test, value) !== (test.fails === true)),
    )
  );
}
