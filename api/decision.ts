import type { ObjectRef } from './object.ts';

/** What a sandbox asks to reach: one request, or one connection when there is no HTTP in it. */
export interface DecisionRequest {
  /** Uid of the calling Sandbox. */
  readonly sandbox: string;
  /** Where the connection goes: a captured address, or a name whose address is not known (D4, D23). */
  readonly destination:
    | { readonly kind: 'address'; readonly address: string; readonly port: number }
    | { readonly kind: 'name'; readonly name: string; readonly port: number };
  /** `tcp` is a connection that speaks neither HTTP nor TLS. */
  readonly scheme: 'http' | 'https' | 'tcp';
  /** Server name of the ClientHello; only with `https`. Empty or absent: the client sent none. */
  readonly sni?: string;
  /** The request inside, as sent; absent for `tcp`. */
  readonly http?: {
    readonly method: string;
    /** `:authority` or Host, with the port if the client sent one. */
    readonly authority: string;
    /** Raw path with query. */
    readonly path: string;
    /** In the order sent, names in lower case, without pseudo headers. */
    readonly headers: readonly (readonly [name: string, value: string])[];
    /** Complete body; absent means empty. */
    readonly body?: Uint8Array;
  };
}

/** `rule`, `default`, … of D23; `policy-invalid` is D2, `unknown-sandbox` is an unverified or unknown identity. */
export type L4Reason =
  | 'rule'
  | 'default'
  | 'unselected'
  | 'private-address'
  | 'own-address'
  | 'policy-invalid'
  | 'unresolved';

export interface L4Decision {
  readonly action: 'allow' | 'reject';
  readonly reason: L4Reason;
  /** The rule that decided, or the invalid object for `policy-invalid`; null otherwise. */
  readonly rule: (ObjectRef & { readonly index: number }) | null;
}

/** Why an L7 decision is `deny` (`block` is a block rule's own answer). */
export type DenyReason =
  | 'mcp'
  | 'tls-not-intercepted'
  | 'not-http'
  | 'host-mismatch'
  | 'credential-unavailable'
  | 'credential-destination'
  | 'unenforceable';

export interface MatchedRule {
  readonly profile: ObjectRef;
  readonly rule: string;
  /** In the fixed order of egress-policy §3.3: bypass, block, mcpToolPolicy, headerManipulation, tokenTransformation. */
  readonly actions: readonly string[];
  /** Whether the walk ended here. */
  readonly terminal: boolean;
}

export interface L7Decision {
  readonly action: 'forward' | 'block' | 'deny';
  /** Why, with `deny`; null otherwise. */
  readonly reason: DenyReason | null;
  /** Status and body of a `block` or `deny`; null with `forward`. */
  readonly status: number | null;
  readonly body: string | null;
  readonly contentType: string | null;
  /** Net changes to the request, names in lower case and sorted; a name in `set` replaces all its values. */
  readonly headers: { readonly set: Readonly<Record<string, string>>; readonly remove: readonly string[] };
  /** Credentials that the request will carry, by header; never a value. */
  readonly credentials: readonly {
    readonly header: string;
    readonly source: { readonly kind: 'Secret'; readonly namespace: string; readonly name: string };
    readonly profile: string;
    readonly rule: string;
  }[];
  readonly mcp: {
    readonly method: string | null;
    readonly tool: string | null;
    readonly action: 'allow' | 'deny';
  } | null;
  /** Rules that matched, in order, up to and including the one that ended the walk. */
  readonly matched: readonly MatchedRule[];
}

/** What happens to one request: the body of `explain -o json` (architecture §8) without its `sandbox` text. */
export interface Decision {
  /** Hash name of the effective ordered L7 policy. */
  readonly policySet: string;
  /** null when L4 rejects (D23). */
  readonly tls: 'plain' | 'intercepted' | 'passthrough' | null;
  readonly l4: L4Decision;
  /** null for an L4 reject, for TLS passthrough and for raw TCP that is let through. */
  readonly l7: L7Decision | null;
}

/** {@link Decision} with the part that answers it: Envoy alone, or the external processor. */
export interface ExplainedDecision extends Decision {
  readonly executor: 'envoy' | 'ext_proc';
}
