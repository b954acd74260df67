import type { PolicyFacts, PolicyRecord } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import type { MatchClause, McpToolPolicy, SecurityRule, TokenTransformation } from '../api/security-profile.ts';
import { parseStaticTemplate } from '../api/static-template.ts';
import { contentHash } from '../base/canonical.ts';
import { type Domain, parseDomain } from './names.ts';

export interface PathTest {
  readonly type: 'Prefix' | 'Exact' | 'Regex';
  readonly value: string;
}

export interface ValueTest extends PathTest {
  /** Header names in lower case, query names as written. */
  readonly name: string;
}

/** One clause of `match`; empty lists mean any (egress-policy §3.2). */
export interface Clause {
  readonly domains: readonly Domain[];
  /** Upper case, sorted. */
  readonly methods: readonly string[];
  /** Lower case. */
  readonly schemes: readonly string[];
  readonly ports: readonly number[];
  readonly paths: readonly PathTest[];
  readonly headers: readonly ValueTest[];
  readonly query: readonly ValueTest[];
}

/** One credential: a key of a Secret rendered through a template. */
export interface Credential {
  /** Name of its SDS secret, `cred:<hash>`. */
  readonly id: string;
  readonly namespace: string;
  readonly name: string;
  readonly key: string;
  /** Literal text and `{{ .Token }}`. */
  readonly template: string;
}

export type Token =
  /** `headers` in lower case, sorted. `available`: the Secret has a usable key. */
  | { readonly headers: readonly string[]; readonly credential: Credential; readonly available: boolean }
  /** A form of the action that is not carried out: what it matches is denied. */
  | { readonly unenforceable: string };

/** A rule of a profile in force (egress-policy §3.3). */
export interface L7Rule {
  readonly profile: ObjectRef;
  readonly name: string;
  readonly clauses: readonly Clause[];
  /** The enabled actions in their fixed order. */
  readonly actions: readonly string[];
  readonly bypass: boolean;
  readonly block: { readonly status: number; readonly body: string | null } | null;
  readonly mcp: McpToolPolicy | null;
  readonly set: readonly (readonly [name: string, value: string])[];
  readonly remove: readonly string[];
  readonly token: Token | null;
  /** It blocks or has an MCP policy, so its clauses are read strictly (docs/egress-semantics.md 15). */
  readonly strict: boolean;
  /** Strict, and no `bypass` comes first: it can stop a request. */
  readonly restrictive: boolean;
}

/** Data key that a Secret must have (crds §11.4). */
export const SECRET_KEY = 'apiKey';

/**
 * Reads a profile in force. `namespace` is the caller's: a Global profile without one reads its Secrets there (§6.4).
 * No credential is available yet: see {@link withSecrets}.
 */
export function compileProfile(record: PolicyRecord, namespace: string): readonly L7Rule[] {
  const spec = record.inForce?.spec;
  const rules = spec !== undefined && 'rules' in spec ? (spec.rules ?? []) : [];
  return rules.map((rule) => compileRule(rule, record.ref, record.ref.namespace || namespace));
}

/** Whether each rule's credential can be had, in the order of the rules; false for rules without one. */
export function availability(rules: readonly L7Rule[], secretKeys: PolicyFacts['secretKeys']): readonly boolean[] {
  return rules.map(({ token }) => {
    if (token === null || 'unenforceable' in token) {
      return false;
    }
    const { namespace, name, key } = token.credential;
    return secretKeys[`${namespace}/${name}`]?.includes(key) === true;
  });
}

/** The rules with what {@link availability} found. */
export function withSecrets(rules: readonly L7Rule[], available: readonly boolean[]): readonly L7Rule[] {
  return rules.map((rule, index) =>
    rule.token !== null && 'credential' in rule.token && available[index] === true
      ? { ...rule, token: { ...rule.token, available: true } }
      : rule,
  );
}

/** Whether the meaning of the profile depends on the caller's namespace. */
export function dependsOnCaller(record: PolicyRecord): boolean {
  const spec = record.inForce?.spec;
  const rules = spec !== undefined && 'rules' in spec ? (spec.rules ?? []) : [];
  return record.ref.namespace === '' && rules.some(({ actions }) => actions.tokenTransformation !== undefined);
}

function compileRule(rule: SecurityRule, profile: ObjectRef, namespace: string): L7Rule {
  const { bypass = false, block, mcpToolPolicy, headerManipulation, tokenTransformation } = rule.actions;
  const token = tokenTransformation?.disabled === true ? undefined : tokenTransformation;
  const actions = [
    ...(bypass ? ['bypass'] : []),
    ...(block === undefined ? [] : ['block']),
    ...(mcpToolPolicy === undefined ? [] : ['mcpToolPolicy']),
    ...(headerManipulation === undefined ? [] : ['headerManipulation']),
    ...(token === undefined ? [] : ['tokenTransformation']),
  ];
  return {
    profile,
    name: rule.name,
    clauses: rule.match.map(compileClause),
    actions,
    bypass,
    block: block === undefined ? null : { status: block.statusCode || 403, body: block.body ?? null },
    mcp: mcpToolPolicy ?? null,
    set: (headerManipulation?.set ?? []).map(({ name, value }) => [name.toLowerCase(), value] as const),
    remove: (headerManipulation?.remove ?? []).map((name) => name.toLowerCase()),
    token: token === undefined ? null : compileToken(token, namespace),
    strict: block !== undefined || mcpToolPolicy !== undefined,
    restrictive: !bypass && (block !== undefined || mcpToolPolicy !== undefined),
  };
}

function compileClause(clause: MatchClause): Clause {
  const upper = (clause.methods ?? []).map((method) => method.toUpperCase());
  return {
    domains: clause.domains.map(parseDomain),
    methods: [...new Set(upper)].sort(),
    schemes: [...new Set((clause.schemes ?? []).map((scheme) => scheme.toLowerCase()))].sort(),
    ports: [...new Set(clause.ports ?? [])].sort((a, b) => a - b),
    paths: (clause.paths ?? []).map(({ type, value }) => ({ type, value })),
    headers: (clause.headers ?? []).map(({ name, type = 'Exact', value }) => ({
      name: name.toLowerCase(),
      type,
      value,
    })),
    query: (clause.queryParams ?? []).map(({ name, type = 'Exact', value }) => ({ name, type, value })),
  };
}

function compileToken(token: TokenTransformation, namespace: string): Token {
  const { credentialRef, apiKey, type = 'ApiKey', failStrategy = 'Block' } = token;
  const flat = credentialRef.kind === 'Secret' ? credentialRef.name : undefined;
  const name = credentialRef.secret?.name ?? flat;
  if (type !== 'ApiKey' || failStrategy !== 'Block' || name === undefined || apiKey === undefined) {
    return { unenforceable: 'only type ApiKey with a Secret and failStrategy Block is carried out' };
  }
  const current = apiKey.targetHeaders !== undefined;
  const headers = current ? apiKey.targetHeaders?.names : [apiKey.targetHeader ?? 'authorization'];
  const template = current ? apiKey.value?.template : (apiKey.valueTemplate ?? '{{ .Token }}');
  const parts = template === undefined ? null : parseStaticTemplate(template);
  if (headers === undefined || parts === null || apiKey.when !== undefined) {
    return { unenforceable: 'only fixed target headers and a template of text and {{ .Token }} are carried out' };
  }
  const from = credentialRef.secret?.namespace ?? credentialRef.namespace ?? namespace;
  const text = parts.map((part) => ('literal' in part ? part.literal : '{{ .Token }}')).join('');
  const source = { namespace: from, name, key: SECRET_KEY, template: text };
  return {
    headers: [...new Set(headers.map((header) => header.toLowerCase()))].sort(),
    credential: { id: `cred:${contentHash(source)}`, ...source },
    available: false,
  };
}
