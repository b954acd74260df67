import type { L7Decision, MatchedRule } from '../../api/decision.ts';
import type { PolicyFacts, SandboxFacts } from '../../api/facts.ts';
import { refText } from '../../api/object.ts';
import type { MatchClause, SecurityRule, TokenTransformation } from '../../api/security-profile.ts';
import { compareText } from '../../base/canonical.ts';
import * as answers from './answers.ts';
import { type Destination, knownName } from './destination.ts';
import type { HttpView } from './http-view.ts';
import { isRestrictive, matchingClauses } from './match.ts';
import { decideMcp } from './mcp.ts';
import type { SelectedProfile } from './selection.ts';

type Credential = L7Decision['credentials'][number];

/** The pending net effect on one header (§3.3 point 6): the last write wins. */
type HeaderChange =
  | { readonly kind: 'set'; readonly value: string }
  | { readonly kind: 'remove' }
  | { readonly kind: 'credential'; readonly credential: Credential; readonly unit: Unit };

/** What the actions of one rule need to know. */
export interface Circumstances {
  readonly facts: PolicyFacts;
  readonly sandbox: SandboxFacts;
  readonly destination: Destination;
  readonly http: HttpView;
}

/** A rule that matches the original request, with the actions that run, in the order of §3.3. */
interface Unit {
  readonly profile: SelectedProfile;
  readonly rule: SecurityRule;
  readonly clauses: readonly MatchClause[];
  readonly actions: readonly string[];
}

/** Walks all matching rules of all profiles in order (egress-policy §3.3). */
export function walk(profiles: readonly SelectedProfile[], circumstances: Circumstances): L7Decision {
  const { http } = circumstances;
  const changes = new Map<string, HeaderChange>();
  const matched: MatchedRule[] = [];
  let mcp: L7Decision['mcp'] = null;
  for (const unit of matchingUnits(profiles, http)) {
    const { rule, actions } = unit;
    const author = { profile: unit.profile.ref, rule: rule.name };
    const before = [...matched];
    const ended = () => ({ matched: [...before, { ...author, actions, terminal: true }], mcp });
    matched.push({ ...author, actions, terminal: false });
    for (const action of actions) {
      switch (action) {
        case 'bypass':
          return finish(changes, ended(), circumstances);
        case 'block':
          return answers.block(ended(), blockAnswer(rule, author));
        case 'mcpToolPolicy': {
          if (http.method === 'CONNECT') {
            return answers.deny(ended(), 'mcp', answers.CONNECT_WITHOUT_BODY);
          }
          mcp = decideMcp(rule.actions.mcpToolPolicy!, http);
          if (mcp.action === 'deny') {
            return answers.deny(ended(), 'mcp', mcpAnswer(rule, author));
          }
          break;
        }
        case 'headerManipulation':
          manipulate(changes, rule);
          break;
        case 'tokenTransformation':
          if (!transform(changes, unit, circumstances)) {
            return answers.deny(ended(), 'credential-unavailable', answers.CREDENTIAL_UNAVAILABLE);
          }
      }
    }
  }
  return finish(changes, { matched, mcp }, circumstances);
}

/** All matching rules, found before any action runs: no change to the request makes or unmakes a match. */
function matchingUnits(profiles: readonly SelectedProfile[], http: HttpView): readonly Unit[] {
  return profiles.flatMap((profile) =>
    profile.rules.flatMap((rule) => {
      const plain = matchingClauses(rule, http, 'plain');
      const clauses = isRestrictive(rule) ? matchingClauses(rule, http, 'strict') : plain;
      return clauses.length === 0 ? [] : [{ profile, rule, clauses, actions: actionsOf(rule, plain.length > 0) }];
    }),
  );
}

/** The fixed order of §3.3. A bypass lets through, so it takes part only where the rule also matches plainly (D8). */
function actionsOf({ actions }: SecurityRule, matchesPlainly: boolean): readonly string[] {
  const { bypass, block, mcpToolPolicy, headerManipulation, tokenTransformation } = actions;
  return [
    ...(bypass === true && matchesPlainly ? ['bypass'] : []),
    ...(block !== undefined ? ['block'] : []),
    ...(mcpToolPolicy !== undefined ? ['mcpToolPolicy'] : []),
    ...(headerManipulation !== undefined ? ['headerManipulation'] : []),
    ...(tokenTransformation !== undefined && tokenTransformation.disabled !== true ? ['tokenTransformation'] : []),
  ];
}

const DEFAULT_STATUS = 403;

function blockAnswer({ actions }: SecurityRule, author: answers.Author) {
  const { statusCode = DEFAULT_STATUS, body } = actions.block!;
  return body === undefined
    ? answers.jsonAnswer(statusCode, 'blocked', 'block', author)
    : answers.policyAnswer(statusCode, body);
}

/** §3.4: an empty `denyResponse.body` counts as none. */
function mcpAnswer({ actions }: SecurityRule, author: answers.Author) {
  const { statusCode = DEFAULT_STATUS, body = '' } = actions.mcpToolPolicy!.denyResponse ?? {};
  return body === '' ? answers.jsonAnswer(statusCode, 'denied', 'mcp', author) : answers.policyAnswer(statusCode, body);
}

function manipulate(changes: Map<string, HeaderChange>, { actions }: SecurityRule): void {
  const { set = [], remove = [] } = actions.headerManipulation!;
  for (const { name, value } of set) {
    changes.set(name.toLowerCase(), { kind: 'set', value });
  }
  for (const name of remove) {
    changes.set(name.toLowerCase(), { kind: 'remove' });
  }
}

/** Writes the credential into its headers; false when there is none to write (§3.4, §6.2). */
function transform(changes: Map<string, HeaderChange>, unit: Unit, { facts, sandbox }: Circumstances): boolean {
  const { profile, rule } = unit;
  const transformation = rule.actions.tokenTransformation!;
  const source = secretOf(transformation, profile, sandbox);
  const id = `${source.namespace}/${source.name}`;
  const keys = Object.hasOwn(facts.secretKeys, id) ? facts.secretKeys[id]! : [];
  if (!keys.includes('apiKey')) {
    return false;
  }
  const { targetHeaders, targetHeader = 'authorization' } = transformation.apiKey!;
  for (const name of targetHeaders === undefined ? [targetHeader] : targetHeaders.names!) {
    const header = name.toLowerCase();
    const credential: Credential = { header, source, profile: refText(profile.ref), rule: rule.name };
    changes.set(header, { kind: 'credential', credential, unit });
  }
  return true;
}

/**
 * Whether a credential may leave with this request: only to the name itself, in cleartext only where a matching clause
 * of its rule says http (D4, docs/architecture.md), and never with TRACE, which asks for it back.
 */
function mayLeave({ clauses }: Unit, { destination, http }: Circumstances): boolean {
  const cleartextIsMeant = clauses.some(({ schemes = [] }) => schemes.some((one) => one.toLowerCase() === 'http'));
  const comesBack = http.method.toUpperCase() === 'TRACE';
  return !comesBack && knownName(destination) === http.host && (http.scheme === 'https' || cleartextIsMeant);
}

/** §6.4: the namespace of the reference, else the profile's, else (a Global profile) the caller's. */
function secretOf({ credentialRef }: TokenTransformation, profile: SelectedProfile, sandbox: SandboxFacts) {
  const { name, namespace } = credentialRef.secret ?? { name: credentialRef.name!, namespace: credentialRef.namespace };
  const home = profile.ref.namespace === '' ? sandbox.namespace : profile.ref.namespace;
  return { kind: 'Secret', namespace: namespace ?? home, name } as const;
}

/** The end of a walk that lets the request through, unless it would carry a credential where it must not go. */
function finish(
  changes: ReadonlyMap<string, HeaderChange>,
  seen: answers.Seen,
  circumstances: Circumstances,
): L7Decision {
  const sorted = [...changes].sort(([a], [b]) => compareText(a, b));
  const set: Record<string, string> = {};
  const remove: string[] = [];
  const credentials: Credential[] = [];
  for (const [name, change] of sorted) {
    if (change.kind === 'set') {
      set[name] = change.value;
    } else if (change.kind === 'remove') {
      remove.push(name);
    } else if (mayLeave(change.unit, circumstances)) {
      credentials.push(change.credential);
    } else {
      const author = { profile: change.unit.profile.ref, rule: change.unit.rule.name };
      const answer = answers.jsonAnswer(403, 'denied', 'credential-destination', author);
      return answers.deny(seen, 'credential-destination', answer);
    }
  }
  if (circumstances.http.method === 'CONNECT') {
    // A tunnel inside the tunnel would carry what no policy sees.
    return answers.deny(seen, 'unenforceable', answers.jsonAnswer(403, 'denied', 'unenforceable', null));
  }
  return answers.forward(seen, { set, remove }, credentials);
}
