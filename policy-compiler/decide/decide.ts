/**
 * `policy-compiler/decide/` is the plain, slow, readable meaning of a policy set (D28): every Envoy table, ext_proc
 * answer and `explain` is compared with it. It is written from the specification and from docs/egress-semantics.md and
 * imports only `api/` and `base/`, so that no mistake of the compiler can be its own.
 */

import type { Decision, DecisionRequest, DenyReason, L7Decision } from '../../api/decision.ts';
import type { PolicyFacts } from '../../api/facts.ts';
import { contentHash } from '../../base/canonical.ts';
import { CodedError } from '../../base/errors.ts';
import { type Circumstances, walk } from './actions.ts';
import * as answers from './answers.ts';
import { type Destination, knownName, listedNames, readDestination } from './destination.ts';
import { type HttpView, readHttp } from './http-view.ts';
import { decideL4, rejectInvalid } from './l4.ts';
import { invalidObject, type SelectedProfile, selectedPolicies, selectedProfiles } from './selection.ts';
import { canonicalServerName, decideTls, refusesRawTcp } from './tls.ts';

/**
 * What happens to one request, or to one connection that carries none.
 *
 * Throws `unknown-sandbox` when no sandbox has the uid, `invalid-request` for a destination that cannot be read and
 * for scheme `http` or `https` without the request inside.
 */
export function decide(facts: PolicyFacts, request: DecisionRequest): Decision {
  const sandbox = facts.sandboxes.find(({ uid }) => uid === request.sandbox);
  if (sandbox === undefined) {
    throw new CodedError('unknown-sandbox', `sandbox: there is none with the uid ${JSON.stringify(request.sandbox)}`);
  }
  const policies = selectedPolicies(facts, sandbox);
  const profiles = selectedProfiles(facts, sandbox);
  const destination = readDestination(facts, listedNames(facts, policies, profiles), request);
  const policySet = `pset-${contentHash(profiles)}`;

  const invalid = invalidObject(facts, sandbox);
  const l4 = invalid === null ? decideL4(facts, sandbox, policies, destination) : rejectInvalid(invalid);
  if (l4.action === 'reject') {
    return { policySet, tls: null, l4, l7: null };
  }
  return { policySet, l4, ...decideInside(profiles, destination, request, { facts, sandbox, destination }) };
}

/** TLS and what is inside it (D1), for a connection that L4 allows. */
function decideInside(
  profiles: readonly SelectedProfile[],
  destination: Destination,
  request: DecisionRequest,
  known: Omit<Circumstances, 'http'>,
): Pick<Decision, 'tls' | 'l7'> {
  if (request.scheme === 'tcp') {
    return { tls: 'plain', l7: refusesRawTcp(profiles, destination) ? answers.close('not-http') : null };
  }
  const sni = request.scheme === 'https' ? (request.sni ?? '') : '';
  const tls = request.scheme === 'https' ? decideTls(profiles, destination, sni) : 'plain';
  if (tls === 'refused') {
    return { tls: 'passthrough', l7: answers.close('tls-not-intercepted') };
  }
  if (tls === 'passthrough') {
    return { tls, l7: null };
  }
  if (request.http === undefined) {
    throw new CodedError('invalid-request', `http: is required with scheme ${request.scheme}`);
  }
  const http = readHttp(request.http, request.scheme, destination.port);
  const l7 = hostIsTrue(http, destination, tls === 'intercepted' ? canonicalServerName(sni) : null)
    ? walk(profiles, { ...known, http })
    : denyWithoutRule('host-mismatch');
  return { tls, l7 };
}

/**
 * Whether the Host says what the connection says: the server name of intercepted TLS (egress-policy §10.6), and the
 * name, for a connection to one (docs/architecture.md); then a written port has to be the connection's. A Host that is
 * no host says nothing and is not let through anywhere.
 */
function hostIsTrue(http: HttpView, destination: Destination, serverName: string | null): boolean {
  const names = [serverName, knownName(destination)].filter((name) => name !== null);
  const portIsTrue = http.hostPort === null || http.hostPort === String(destination.port);
  return !http.isMalformed && names.every((name) => name === http.host && portIsTrue);
}

function denyWithoutRule(reason: DenyReason): L7Decision {
  return answers.deny(answers.NOTHING_SEEN, reason, answers.jsonAnswer(403, 'denied', reason, null));
}
