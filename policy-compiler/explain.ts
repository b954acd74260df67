import type { DecisionRequest, DenyReason, ExplainedDecision, L4Decision, L7Decision } from '../api/decision.ts';
import { canonicalAddress } from '../base/addresses.ts';
import { CodedError } from '../base/errors.ts';
import { denial } from './denials.ts';
import { deniesRaw, tlsVerdict } from './egress-set.ts';
import { answerDecision, evaluate, isPlainAuthority, type L7Request } from './evaluate.ts';
import { hostTables, regionFor, tableFor } from './host-table.ts';
import { decideAddress, decideName } from './l4-set.ts';
import type { McpCall } from './mcp-verdict.ts';
import { canonicalName, hostOf } from './names.ts';
import type { Plan } from './plan.ts';
import type { Destination, DialName, PolicySet } from './policy-set.ts';

/** Scans the body of a request for an MCP message; `extproc/` has the scanner. */
export type McpScan = (body: Uint8Array, headers: readonly (readonly [name: string, value: string])[]) => McpCall;

/**
 * What happens to a request of a sandbox with this plan, from the same form as the tables (D23). `own` are the
 * sandbox's addresses. Throws `invalid-address`, and `mcp-scan` when a body has to be read and there is no scanner.
 */
export function explain(
  plan: Plan,
  own: readonly string[],
  request: DecisionRequest,
  scan: McpScan | null,
): ExplainedDecision {
  const { l4, name } = connection(plan, own, request);
  const base = { policySet: `pset-${plan.l7.hash}`, l4 };
  if (l4.action === 'reject') {
    return { ...base, tls: null, l7: null, executor: 'envoy' };
  }
  const { port } = request.destination;
  switch (request.scheme) {
    case 'tcp': {
      const denied = deniesRaw(plan.egress, name?.name ?? null, port);
      return { ...base, tls: 'plain', l7: denied ? refused('not-http') : null, executor: 'envoy' };
    }
    case 'http':
      return { ...base, tls: 'plain', ...requestPart(plan.l7, name, request, scan) };
    case 'https':
      return { ...base, ...tlsPart(plan, name, request, scan) };
  }
}

type RequestPart = Pick<ExplainedDecision, 'l7' | 'executor'>;

function connection(
  plan: Plan,
  own: readonly string[],
  { destination }: DecisionRequest,
): { readonly l4: L4Decision; readonly name: DialName | null } {
  if (destination.kind === 'name') {
    const name = canonicalName(destination.name);
    const l4 = decideName(plan.l4, name, destination.port).decision;
    return { l4, name: plan.l7.names.get(name) ?? null };
  }
  const address = canonicalAddress(destination.address);
  if (address === null) {
    throw new CodedError('invalid-address', `${JSON.stringify(destination.address)} is no IP address`);
  }
  const l4 = decideAddress(plan.l4, own, address, destination.port);
  return { l4, name: plan.l7.virtuals.get(address) ?? null };
}

function tlsPart(
  plan: Plan,
  name: DialName | null,
  request: DecisionRequest,
  scan: McpScan | null,
): Pick<ExplainedDecision, 'tls'> & RequestPart {
  const sni = canonicalName(request.sni ?? '');
  const { port } = request.destination;
  switch (tlsVerdict(plan.egress, sni, name?.name ?? null, port)) {
    case 'denied':
      return { tls: 'passthrough', l7: refused('tls-not-intercepted'), executor: 'envoy' };
    case 'passthrough':
      return { tls: 'passthrough', l7: null, executor: 'envoy' };
    case 'intercepted': {
      const authority = request.http?.authority.toLowerCase() ?? sni;
      if (hostOf(authority) !== sni || ![sni, `${sni}:${port}`].includes(withoutDot(authority))) {
        return { tls: 'intercepted', l7: answerDecision(denial('host-mismatch', null), [], null), executor: 'envoy' };
      }
      return { tls: 'intercepted', ...requestPart(plan.l7, name, request, scan) };
    }
  }
}

function withoutDot(authority: string): string {
  return authority.replace(/\.(:[0-9]*)?$/, '$1');
}

function requestPart(
  set: PolicySet,
  name: DialName | null,
  { scheme, http, destination: { port } }: DecisionRequest,
  scan: McpScan | null,
): RequestPart {
  if (http === undefined || scheme === 'tcp') {
    return { l7: null, executor: 'envoy' };
  }
  const destination: Destination = name === null ? { kind: 'address' } : { kind: 'virtual', name };
  const { method, authority, path, headers, body } = http;
  const request: L7Request = { scheme, method, authority, target: path, headers, port, destination };
  const first = evaluate(set, request, null);
  const decided = first.needsBody ? evaluate(set, request, scanned(body, headers, scan)) : first;
  if (decided.needsBody) {
    throw new CodedError('mcp-scan', 'the body was given and still asked for');
  }
  return { l7: decided.decision, executor: executorOf(set, request) };
}

function scanned(
  body: Uint8Array | undefined,
  headers: readonly (readonly [string, string])[],
  scan: McpScan | null,
): McpCall {
  if (body === undefined || body.length === 0) {
    return { kind: 'empty' };
  }
  if (scan === null) {
    throw new CodedError('mcp-scan', 'a body cannot be judged here: no scanner was given');
  }
  return scan(body, headers);
}

/** Which part answers: the external processor where the region of the table says so. */
function executorOf(set: PolicySet, request: L7Request): 'envoy' | 'ext_proc' {
  const { authority, destination, method } = request;
  const host = hostOf(authority);
  const misled = destination.kind === 'virtual' && destination.name?.name !== host;
  if (set.invalid !== null || misled || !isPlainAuthority(authority) || method === 'CONNECT') {
    return 'envoy';
  }
  const table = tableFor(hostTables(set), host);
  const region = regionFor(table, destination.kind === 'virtual', { ...request, host });
  return region?.processor === true ? 'ext_proc' : 'envoy';
}

/** A connection that is closed before there is a request: no status, no body (docs/egress-semantics.md 11, 12). */
function refused(reason: DenyReason): L7Decision {
  return answerDecision({ status: null, body: null, contentType: null, reason }, [], null);
}
