import type { EnvoyJson } from '../proto/resource.ts';
import { ALL_PORTS, type Ports } from './l4-policy.ts';
import type { PathTest } from './l7-policy.ts';
import { STATE_PORT } from './output.ts';
import { ODD_PATH } from './paths.ts';
import { portPattern } from './port-pattern.ts';
import { type Condition, type HeaderTest, searchPattern } from './regions.ts';

export type RouteMatchJson = EnvoyJson['envoy.config.route.v3.RouteMatch'];
type StringMatcherJson = EnvoyJson['envoy.type.matcher.v3.StringMatcher'];
type HeaderMatcherJson = EnvoyJson['envoy.config.route.v3.HeaderMatcher'];

export function headerMatch(name: string, stringMatch: StringMatcherJson): HeaderMatcherJson {
  return { name, stringMatch };
}

export function filterState(
  key: string,
  stringMatch: StringMatcherJson,
): EnvoyJson['envoy.type.matcher.v3.FilterStateMatcher'] {
  return { key, stringMatch };
}

function regex(source: string): StringMatcherJson {
  return { safeRegex: { regex: source } };
}

/**
 * A condition as a route match. The path is matched without its query; a prefix beside a regular expression becomes a
 * test of `:path`, where it means the same. `arrival` is how the request came; `ports` limits the original port.
 */
export function conditionMatch(condition: Condition, arrival: RouteMatchJson, ports: Ports | null): RouteMatchJson {
  const { headers = [], filterState: states = [] } = arrival;
  const filterStates = [...states, ...portStates(condition.ports, ports)];
  const main = mainPath(condition);
  const prefix = condition.paths.find((test) => test !== main);
  return {
    ...pathMatch(main, condition.odd),
    headers: [
      ...headers,
      ...(condition.methods.length === 0 ? [] : [headerMatch(':method', methods(condition.methods))]),
      ...(prefix === undefined ? [] : [headerMatch(':path', { prefix: prefix.value })]),
      ...condition.headers.map((test) => headerMatch(test.name, valueMatch(test))),
    ],
    ...(filterStates.length === 0 ? {} : { filterState: filterStates }),
  };
}

function mainPath(condition: Condition): PathTest | undefined {
  return condition.paths.find(({ type }) => type === 'Regex') ?? condition.paths[0];
}

function pathMatch(test: PathTest | undefined, odd: boolean): RouteMatchJson {
  if (odd) {
    return { safeRegex: { regex: searchPattern(ODD_PATH) } };
  }
  switch (test?.type) {
    case 'Exact':
      return { path: test.value };
    case 'Regex':
      return { safeRegex: { regex: searchPattern(test.value) } };
    default:
      return { prefix: test?.value ?? '' };
  }
}

function methods(list: readonly string[]): StringMatcherJson {
  return list.length === 1 ? { exact: list[0]!, ignoreCase: true } : regex(`(?i)(?:${list.join('|')})`);
}

function valueMatch(test: HeaderTest): StringMatcherJson {
  if (test.fails === true) {
    return regex(complement(test.value, test.type === 'Prefix'));
  }
  switch (test.type) {
    case 'Exact':
      return { exact: test.value };
    case 'Prefix':
      return { prefix: test.value };
    case 'Regex':
      return regex(searchPattern(test.value));
  }
}

/** RE2 source for every ASCII text that is not this one or, with `prefix`, does not begin with it. */
export function complement(text: string, prefix: boolean): string {
  const pattern = [...text].reduceRight((rest, char, index) => {
    const literal = char.replace(/[\\^$.|?*+()[\]{}]/g, '\\$&');
    const other = `[^${char.replace(/[\\\]^-]/g, '\\$&')}].*`;
    const further = index === text.length - 1 ? (prefix ? '' : `|${literal}.+`) : `|${literal}${rest}`;
    return `(?:${other}${further})?`;
  }, '');
  return `(?s)${pattern}`;
}

function portStates(ports: readonly number[], limit: Ports | null): NonNullable<RouteMatchJson['filterState']> {
  const within = limit === null || (limit.from <= 1 && limit.to === ALL_PORTS.to) ? [] : [limit];
  const exact = ports.map((port) => ({ from: port, to: port }));
  return [exact, within]
    .filter((ranges) => ranges.length > 0)
    .map((ranges) => filterState(STATE_PORT, regexOrExact(ranges)));
}

function regexOrExact(ranges: readonly Ports[]): StringMatcherJson {
  const [only] = ranges;
  return ranges.length === 1 && only!.from === only!.to ? { exact: String(only!.from) } : regex(portPattern(ranges));
}
