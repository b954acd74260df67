import type { MatchClause, SecurityRule } from '../../api/security-profile.ts';
import { compileRegex } from '../../base/regex.ts';
import { covers, readDomain } from './destination.ts';
import { fullyDecoded, type HttpView, normalisedPath } from './http-view.ts';

/**
 * How a rule looks at a request. `plain` is egress-policy §3.2: the raw path, the last value of a header, the first of
 * a query parameter. `strict` also takes the normalised paths and any value (D8, D13); it is for rules that restrict,
 * so that no spelling of a request slips past one.
 */
export type Reading = 'plain' | 'strict';

/** Whether a rule can end a request against the client's will: only such rules read strictly. */
export function isRestrictive({ actions }: SecurityRule): boolean {
  return actions.block !== undefined || actions.mcpToolPolicy !== undefined;
}

/** The clauses of a rule that match the original request. A rule matches when there is one (§3.2). */
export function matchingClauses(rule: SecurityRule, http: HttpView, reading: Reading): readonly MatchClause[] {
  return rule.match.filter((clause) => clauseMatches(clause, http, reading));
}

/** The populated fields of a clause all have to hold; the members of a list are alternatives but for conditions. */
function clauseMatches(clause: MatchClause, http: HttpView, reading: Reading): boolean {
  const { domains, methods = [], schemes = [], ports = [], paths = [], headers = [], queryParams = [] } = clause;
  const lenient = [normalisedPath(http.path), normalisedPath(fullyDecoded(http.path))];
  const forms = reading === 'plain' ? [http.path] : [http.path, ...lenient];
  return (
    domains.some((domain) => covers(readDomain(domain), http.host)) &&
    (methods.length === 0 || methods.some((method) => method.toUpperCase() === http.method.toUpperCase())) &&
    schemeAdmits(schemes, http.scheme) &&
    portAdmits(ports, http.port) &&
    (paths.length === 0 || paths.some(({ type, value }) => forms.some((form) => test(type, value, form)))) &&
    headers.every(({ name, type, value }) => {
      const sent = http.headers.get(name.toLowerCase()) ?? [];
      return (reading === 'plain' ? sent.slice(-1) : sent).some((text) => test(type ?? 'Exact', value, text));
    }) &&
    queryParams.every(({ name, type, value }) => {
      const sent = (reading === 'plain' ? http.query : http.anyQuery).get(name) ?? [];
      return (reading === 'plain' ? sent.slice(0, 1) : sent).some((text) => test(type ?? 'Exact', value, text));
    })
  );
}

/** No list admits every scheme. */
export function schemeAdmits(schemes: readonly string[] | undefined, scheme: 'http' | 'https'): boolean {
  return schemes === undefined || schemes.length === 0 || schemes.some((one) => one.toLowerCase() === scheme);
}

/** No list admits every port. */
export function portAdmits(ports: readonly number[] | undefined, port: number): boolean {
  return ports === undefined || ports.length === 0 || ports.includes(port);
}

function test(type: 'Exact' | 'Prefix' | 'Regex', operand: string, text: string): boolean {
  switch (type) {
    case 'Exact':
      return text === operand;
    case 'Prefix':
      return text.startsWith(operand);
    case 'Regex':
      return compileRegex(operand).search(text);
  }
}
