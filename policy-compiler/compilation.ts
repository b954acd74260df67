import type { DecisionRequest, ExplainedDecision } from '../api/decision.ts';
import type { ObjectRef } from '../api/object.ts';
import type { Evaluation, L7Request } from './evaluate.ts';
import type { McpCall } from './mcp-verdict.ts';
import type { Finding, ResourceJson } from './output.ts';
import type { PolicySet } from './policy-set.ts';
import type { Chain } from './sidecar-chains.ts';

/** What the resources depend on beside policies and facts. */
export interface CompilerSettings {
  readonly trustDomain: string;
  /** `iss` and `aud` that a sandbox token must have. */
  readonly tokenIssuer: string;
  readonly tokenAudience: string;
  /** JSON of the public JWKS. */
  readonly tokenJwks: string;
  /** Path of the UNIX socket on which the gateway accepts tunnels. */
  readonly egressSocket: string;
  /** PEM file of the CA by which the gateway verifies sidecars; its own certificate comes as an SDS secret. */
  readonly gatewayCaFile: string;
  /**
   * TCP DNS resolver of the machine, which the gateway asks about names that it dials; `relay` is the UNIX socket of the
   * relay that asks it for sandboxes. Null: the tunnel has none, and the gateway resolves by the machine's own settings.
   */
  readonly resolver: { readonly address: string; readonly port: number; readonly relay: string } | null;
  /** Roots by which upstreams are verified. */
  readonly originCaFile: string;
}

/** Which sets decide for one sandbox. */
export interface SubjectPlan {
  /** Key of {@link Compilation.sidecarSets}. */
  readonly l4Set: string;
  /** Name of the ordered L7 rules: `policySet` of a decision. */
  readonly policySet: string;
  /** The route configuration `pset-<table>`. */
  readonly table: string;
  /** The egress set: `eset-<egressSet>` and `in-<egressSet>`. */
  readonly egressSet: string;
  /** Names that the sandbox's resolver answers with virtual addresses. */
  readonly names: readonly string[];
  readonly ownAddresses: readonly string[];
  /** The object because of which it is denied entirely (D2), or null. */
  readonly invalid: ObjectRef | null;
}

/** Where the value of an SDS secret `cred:<hash>` comes from. */
export interface CredentialSource {
  readonly namespace: string;
  readonly name: string;
  readonly key: string;
  /** For `parseStaticTemplate`. */
  readonly template: string;
}

/** Everything that one state of the world means. */
export interface Compilation {
  /** Everything that the egress gateway may see; names of secrets, no values. Sorted by type and name. */
  readonly egress: readonly ResourceJson[];
  /** By L4 set: the resources of every sidecar with that set. */
  readonly sidecarSets: ReadonlyMap<string, readonly ResourceJson[]>;
  /** By L4 set: the allow chains, for counting those that a change cuts although they stay (`shadowedChains`, D14). */
  readonly sidecarChains: ReadonlyMap<string, readonly Chain[]>;
  /** By sandbox uid. */
  readonly subjects: ReadonlyMap<string, SubjectPlan>;
  /** By name of the SDS secret. */
  readonly credentials: ReadonlyMap<string, CredentialSource>;
  /** Names whose leaf `leaf:<name>` some listener needs, sorted. */
  readonly leaves: readonly string[];
  /**
   * Names that need a virtual address, whether they have one or not: exact `fqdn` peers and exact `domains` of the
   * policies that select some sandbox, and every name of `hosts` (D4). Lower case, sorted.
   */
  readonly listedNames: readonly string[];
  readonly findings: readonly Finding[];
  /** The L7 intermediate form of a sandbox; null when the sandbox is not known. */
  policySetOf(uid: string): PolicySet | null;
  /** Decides one request of a sandbox; null when the sandbox is not known. For the external processor. */
  evaluate(uid: string, request: L7Request, mcp: McpCall | null): Evaluation | null;
  /** What happens to a request, and which part answers it (D23). Throws `unknown-sandbox`. */
  explain(request: DecisionRequest): ExplainedDecision;
}
