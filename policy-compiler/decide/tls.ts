import type { MatchClause, SecurityRule } from '../../api/security-profile.ts';
import { covers, type Destination, knownName, readDomain, withoutDot } from './destination.ts';
import { isRestrictive, portAdmits, schemeAdmits } from './match.ts';
import type { SelectedProfile } from './selection.ts';

interface RuleClause {
  readonly rule: SecurityRule;
  readonly clause: MatchClause;
}

/**
 * What happens to a TLS connection (D1): its inside is opened and decided, it is refused because a rule could apply to
 * an inside that nobody sees, or it passes as it is.
 */
export function decideTls(
  profiles: readonly SelectedProfile[],
  destination: Destination,
  sni: string,
): 'intercepted' | 'refused' | 'passthrough' {
  const clauses = allClauses(profiles).filter(
    ({ clause }) => schemeAdmits(clause.schemes, 'https') && portAdmits(clause.ports, destination.port),
  );
  const serverName = canonicalServerName(sni);
  if (serverName !== '' && clauses.some(({ clause }) => listsExactly(clause, serverName))) {
    return 'intercepted';
  }
  // The server behind a name can be asked for with any server name, so the name counts as well.
  const names = [serverName, knownName(destination) ?? ''].filter((name) => name !== '');
  const hidden = clauses.some(({ rule, clause }) =>
    clause.domains.map(readDomain).some((domain) => {
      if (domain.kind === 'any') {
        return canRefuse(rule);
      }
      return names.some((name) => covers(domain, name));
    }),
  );
  const unnamed = serverName === '' && clauses.some(({ rule }) => canRefuse(rule));
  return hidden || unnamed ? 'refused' : 'passthrough';
}

/** Whether a connection that speaks neither HTTP nor TLS is refused, because a rule about HTTP could apply to it. */
export function refusesRawTcp(profiles: readonly SelectedProfile[], destination: Destination): boolean {
  const clauses = allClauses(profiles).filter(({ clause }) => portAdmits(clause.ports, destination.port));
  const name = knownName(destination);
  const listed = clauses.some(
    ({ clause }) => name !== null && schemeAdmits(clause.schemes, 'http') && listsExactly(clause, name),
  );
  const restricted = clauses.some(
    ({ rule, clause }) => canRefuse(rule) && clause.domains.some((domain) => readDomain(domain).kind !== 'exact'),
  );
  return listed || restricted;
}

/** A server name as it is compared: lower case, one trailing dot removed. */
export function canonicalServerName(sni: string): string {
  return withoutDot(sni.toLowerCase());
}

/** Whether a rule would refuse a request in clear: a bypass comes before its block (§3.3). */
function canRefuse(rule: SecurityRule): boolean {
  return isRestrictive(rule) && rule.actions.bypass !== true;
}

function listsExactly(clause: MatchClause, name: string): boolean {
  return clause.domains.map(readDomain).some((domain) => domain.kind === 'exact' && domain.name === name);
}

function allClauses(profiles: readonly SelectedProfile[]): readonly RuleClause[] {
  return profiles.flatMap(({ rules }) => rules.flatMap((rule) => rule.match.map((clause) => ({ rule, clause }))));
}
