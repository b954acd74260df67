import { compileRegex, type Regex } from '../base/regex.ts';
import type { Clause, L7Rule, PathTest, ValueTest } from './l7-policy.ts';
import { domainCovers } from './names.ts';
import { isOddPath, lenientForms, pathOf } from './paths.ts';

/** A request as the rules see it: always the original one (egress-policy §3.1, §3.3). */
export interface MatchInput {
  readonly scheme: 'http' | 'https';
  readonly method: string;
  /** `:authority` or Host as sent. */
  readonly authority: string;
  /** `hostOf` of it. */
  readonly host: string;
  /** Port of the original destination. */
  readonly port: number;
  /** Raw path with query. */
  readonly target: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
}

const compiled = new Map<string, Regex>();

/** Compiled once per source; the set of sources is bounded by the policies, and emptied when it grows beyond them. */
function regexOf(source: string): Regex {
  const known = compiled.get(source);
  if (known !== undefined) {
    return known;
  }
  if (compiled.size > 20_000) {
    compiled.clear();
  }
  const regex = compileRegex(source);
  compiled.set(source, regex);
  return regex;
}

/** Applies one test to a text: byte equality, byte prefix, or RE2 search (egress-policy §3.2). */
export function testText(test: PathTest, text: string): boolean {
  switch (test.type) {
    case 'Exact':
      return text === test.value;
    case 'Prefix':
      return text.startsWith(test.value);
    case 'Regex':
      return regexOf(test.value).search(text);
  }
}

/** How clauses are read: `strict` takes what any server could make of the request, `plain` what most do. */
export type Reading = 'strict' | 'plain';

/** A rule reads one way: strictly if it can stop a request (docs/egress-semantics.md 15). */
export function readingOf(rule: L7Rule): Reading {
  return rule.strict ? 'strict' : 'plain';
}

/**
 * Whether some clause of the rule matches. With `schemeListed` only clauses that list the request's scheme count: that
 * is what sending a credential over plain HTTP needs.
 */
export function ruleMatches(rule: L7Rule, input: MatchInput, reading = readingOf(rule), schemeListed = false): boolean {
  return rule.clauses.some(
    (clause) => (!schemeListed || clause.schemes.includes(input.scheme)) && clauseMatches(clause, reading, input),
  );
}

function clauseMatches(clause: Clause, reading: Reading, input: MatchInput): boolean {
  return (
    clause.domains.some((domain) => domainCovers(domain, input.host)) &&
    within(clause.methods, input.method.toUpperCase()) &&
    within(clause.schemes, input.scheme) &&
    within(clause.ports, input.port) &&
    pathsMatch(clause.paths, reading, pathOf(input.target)) &&
    clause.headers.every((test) => headerMatches(test, reading, input)) &&
    (clause.query.length === 0 || queryMatches(clause.query, reading, input.target))
  );
}

function within<T>(list: readonly T[], value: T): boolean {
  return list.length === 0 || list.includes(value);
}

/** Strictly, the normalised forms of an odd path count too: decoded once, and to the end (D8). */
function pathsMatch(tests: readonly PathTest[], reading: Reading, path: string): boolean {
  if (tests.length === 0 || tests.some((test) => testText(test, path))) {
    return true;
  }
  if (reading === 'plain' || !isOddPath(path)) {
    return false;
  }
  const forms = lenientForms(path);
  return tests.some((test) => forms.some((form) => testText(test, form)));
}

/** The values of a header; `host` is the authority where no such header was sent. */
export function headerValues(name: string, input: MatchInput): readonly string[] {
  const values = input.headers.filter(([sent]) => sent === name).map(([, value]) => value);
  return name === 'host' && values.length === 0 ? [input.authority] : values;
}

/** Strictly any value of a repeated header counts (D13 for vector 78), plainly the last one (egress-policy §3.1). */
function headerMatches(test: ValueTest, reading: Reading, input: MatchInput): boolean {
  const values = headerValues(test.name, input);
  return (reading === 'strict' ? values : values.slice(-1)).some((value) => testText(test, value));
}

/**
 * Form-decoded query (egress-policy §3.1). Plainly the first value of a name is tested, and pairs with a bad escape or
 * `;` are dropped; strictly any value, in each way that servers read such pairs.
 */
function queryMatches(tests: readonly ValueTest[], reading: Reading, target: string): boolean {
  const text = target.slice(pathOf(target).length + 1);
  const query = reading === 'strict' ? [...pairsOf(text.split('&')), ...pairsOf(text.split(/[&;]/))] : plainPairs(text);
  return tests.every((test) => {
    const values = query.filter(([name]) => name === test.name).map(([, value]) => value);
    return (reading === 'strict' ? values : values.slice(0, 1)).some((value) => testText(test, value));
  });
}

type Pair = readonly [name: string, value: string];

function plainPairs(text: string): readonly Pair[] {
  return pairsOf(text.split('&').filter((part) => !part.includes(';') && !/%(?![0-9a-fA-F]{2})/.test(part)));
}

function pairsOf(parts: readonly string[]): readonly Pair[] {
  return parts
    .filter((part) => part !== '')
    .map((part) => {
      const equals = part.indexOf('=');
      const [name, value] = equals < 0 ? [part, ''] : [part.slice(0, equals), part.slice(equals + 1)];
      return [formDecode(name), formDecode(value)];
    });
}

/** Leaves a broken escape as it stands. */
function formDecode(text: string): string {
  const bytes = Buffer.from(text.replaceAll('+', ' '), 'utf8').toString('latin1');
  const raw = bytes.replaceAll(/%([0-9a-fA-F]{2})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 16)),
  );
  return Buffer.from(raw, 'latin1').toString('utf8');
}
