import type { FieldError } from '../base/errors.ts';
import { errorText } from '../base/errors.ts';
import { compileRegex } from '../base/regex.ts';
import { type Findings, NO_FINDINGS } from './findings.ts';
import {
  domainProblem,
  domainWithoutHosts,
  headerNameProblem,
  headerOfNoRequest,
  headerValueProblem,
  pathOfNoRequest,
  regexOfNoText,
} from './http-rules.ts';
import type {
  ApiKeySettings,
  CredentialRef,
  MatchClause,
  RuleActions,
  SecurityProfileSpec,
  TokenTransformation,
} from './security-profile.ts';
import { selectorErrors } from './selector.ts';
import { parseStaticTemplate } from './static-template.ts';

/** The rules of SecurityProfile that its schema does not hold (egress-policy §3–§6, D2). `spec` fits the schema. */
export function checkSecurityProfile(spec: SecurityProfileSpec): Findings {
  const invalid = selectorErrors(spec.selector, 'spec.selector');
  const omitted: FieldError[] = [];
  const warnings: FieldError[] = [];
  for (const [index, rule] of (spec.rules ?? []).entries()) {
    const path = `spec.rules[${index}]`;
    // Left out, such an alternative of a rule that stops requests would make it weaker than it reads.
    const level = isRestrictive(rule.actions) ? invalid : omitted;
    level.push(...rule.match.flatMap((clause, at) => unmatchable(clause, `${path}.match[${at}]`)));
    warnings.push(...withoutEffect(rule.actions, `${path}.actions`));
    invalid.push(...rule.match.flatMap((clause, at) => clauseErrors(clause, `${path}.match[${at}]`)));
    invalid.push(...actionErrors(rule.actions, `${path}.actions`));
  }
  return { ...NO_FINDINGS, invalid, omitted, warnings };
}

/** Whether the rule can stop a request (docs/egress-semantics.md 10). */
function isRestrictive({ bypass, block, mcpToolPolicy }: RuleActions): boolean {
  return bypass !== true && (block !== undefined || mcpToolPolicy !== undefined);
}

/** What a rule says and, by the specification, does not do (egress-policy §3.3, §4). */
function withoutEffect(actions: RuleActions, path: string): FieldError[] {
  const { bypass, block, mcpToolPolicy } = actions;
  const warnings: FieldError[] = [];
  if (Object.values(actions).every((action) => action === undefined || action === false)) {
    warnings.push({ path, reason: 'the rule does nothing: it has no action' });
  }
  for (const [name, action] of Object.entries({ block, mcpToolPolicy })) {
    if (bypass === true && action !== undefined) {
      const reason = 'has no effect: bypass of the same rule comes first and lets the request through';
      warnings.push({ path: `${path}.${name}`, reason });
    }
  }
  for (const [index, { method, action }] of (mcpToolPolicy?.rules ?? []).entries()) {
    if (action === 'deny' && method !== 'tools/call') {
      const reason = `has no effect: only tools/call is governed, every ${JSON.stringify(method)} passes`;
      warnings.push({ path: `${path}.mcpToolPolicy.rules[${index}].method`, reason });
    }
  }
  return warnings;
}

/**
 * Conditions that hold for no request: what is written there is not carried out.
 */
function unmatchable({ domains, paths = [], schemes = [], headers = [] }: MatchClause, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, domain] of domains.entries()) {
    push(errors, `${path}.domains[${index}]`, domainProblem(domain) === null ? domainWithoutHosts(domain) : null);
  }
  for (const [index, { type, value }] of paths.entries()) {
    push(errors, `${path}.paths[${index}].value`, type === 'Regex' ? regexOfNoText(value) : pathOfNoRequest(value));
  }
  for (const [index, { type, value }] of headers.entries()) {
    const problem = type === 'Regex' ? regexOfNoText(value) : headerOfNoRequest(value, type === 'Prefix');
    push(errors, `${path}.headers[${index}].value`, problem);
  }
  for (const [index, scheme] of schemes.entries()) {
    const isKnown = ['http', 'https'].includes(scheme.toLowerCase());
    const reason = `${JSON.stringify(scheme)} is the scheme of no request; http or https`;
    push(errors, `${path}.schemes[${index}]`, isKnown ? null : reason);
  }
  return errors;
}

function clauseErrors(clause: MatchClause, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, domain] of clause.domains.entries()) {
    const reason = domainProblem(domain);
    if (reason !== null) {
      errors.push({ path: `${path}.domains[${index}]`, reason });
    }
  }
  for (const list of ['paths', 'headers', 'queryParams'] as const) {
    for (const [index, test] of (clause[list] ?? []).entries()) {
      if (test.type === 'Regex') {
        errors.push(...regexErrors(test.value, `${path}.${list}[${index}].value`));
      }
    }
  }
  return errors;
}

function regexErrors(source: string, path: string): FieldError[] {
  try {
    compileRegex(source);
    return [];
  } catch (error) {
    return [{ path, reason: errorText(error) }];
  }
}

function actionErrors(actions: RuleActions, path: string): FieldError[] {
  return [
    ...(actions.headerManipulation === undefined
      ? []
      : manipulationErrors(actions.headerManipulation, `${path}.headerManipulation`)),
    ...(actions.tokenTransformation === undefined
      ? []
      : transformationErrors(actions.tokenTransformation, `${path}.tokenTransformation`)),
  ];
}

function manipulationErrors(manipulation: NonNullable<RuleActions['headerManipulation']>, path: string): FieldError[] {
  const { set = [], remove = [] } = manipulation;
  const errors: FieldError[] = [];
  if (set.length === 0 && remove.length === 0) {
    errors.push({ path, reason: 'must have a header in set or in remove' });
  }
  const seen = new Map(set.map(({ name }, index) => [name, `${path}.set[${index}]`]));
  for (const [index, { name, value }] of set.entries()) {
    push(errors, `${path}.set[${index}].name`, headerNameProblem(name, 'set'));
    push(errors, `${path}.set[${index}].value`, headerValueProblem(value));
  }
  for (const [index, name] of remove.entries()) {
    const at = `${path}.remove[${index}]`;
    push(errors, at, headerNameProblem(name, 'remove'));
    const first = seen.get(name);
    push(errors, at, first === undefined ? null : `${name} is already in ${first}; each header once`);
    seen.set(name, at);
  }
  return errors;
}

function push(errors: FieldError[], path: string, reason: string | null): void {
  if (reason !== null) {
    errors.push({ path, reason });
  }
}

function transformationErrors(transformation: TokenTransformation, path: string): FieldError[] {
  const errors = referenceErrors(transformation.credentialRef, `${path}.credentialRef`);
  if (transformation.type === 'AliyunSTS') {
    return errors;
  }
  return transformation.apiKey === undefined
    ? [...errors, { path: `${path}.apiKey`, reason: 'is required with type ApiKey' }]
    : [...errors, ...apiKeyErrors(transformation.apiKey, `${path}.apiKey`)];
}

/** Exactly one way to name the credential (egress-policy §6.1). */
function referenceErrors(ref: CredentialRef, path: string): FieldError[] {
  const flat = ref.kind !== undefined || ref.name !== undefined || ref.namespace !== undefined;
  const ways = [ref.secret !== undefined, ref.credentialProvider !== undefined, flat].filter(Boolean).length;
  if (ways !== 1) {
    return [{ path, reason: 'exactly one of secret, credentialProvider, or the deprecated kind and name must be set' }];
  }
  const missing = flat ? (['kind', 'name'] as const).filter((field) => ref[field] === undefined) : [];
  return missing.map((field) => ({
    path: `${path}.${field}`,
    reason: 'is required in the deprecated form; better use secret',
  }));
}

function apiKeyErrors(apiKey: ApiKeySettings, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const { targetHeaders, value, targetHeader, valueTemplate } = apiKey;
  if (targetHeaders === undefined) {
    push(errors, `${path}.targetHeader`, targetHeader === undefined ? null : targetProblem(targetHeader));
    push(errors, `${path}.valueTemplate`, valueTemplate === undefined ? 'is required without targetHeaders' : null);
    push(errors, `${path}.valueTemplate`, templateProblem(valueTemplate));
    return errors;
  }
  if (Number(targetHeaders.names !== undefined) + Number(targetHeaders.cel !== undefined) !== 1) {
    errors.push({ path: `${path}.targetHeaders`, reason: 'exactly one of names and cel must be set' });
  }
  const seen = new Set<string>();
  for (const [index, name] of (targetHeaders.names ?? []).entries()) {
    const at = `${path}.targetHeaders.names[${index}]`;
    push(errors, at, targetProblem(name));
    push(errors, at, seen.has(name.toLowerCase()) ? `${name} is named twice` : null);
    seen.add(name.toLowerCase());
  }
  if (value === undefined) {
    errors.push({ path: `${path}.value`, reason: 'is required with targetHeaders' });
  } else if (Object.keys(value).length !== 1) {
    errors.push({ path: `${path}.value`, reason: 'exactly one of value, cel and template must be set' });
  } else {
    push(errors, `${path}.value.template`, templateProblem(value.template));
    push(errors, `${path}.value.value`, value.value === undefined ? null : headerValueProblem(value.value));
  }
  return errors;
}

function targetProblem(name: string): string | null {
  return name === '' ? 'must not be empty' : headerNameProblem(name, 'set');
}

function templateProblem(template: string | undefined): string | null {
  if (template === undefined) {
    return null;
  }
  return parseStaticTemplate(template) === null
    ? 'only literal text and {{ .Token }} are carried out yet, no other placeholder, function or trim marker'
    : headerValueProblem(template.replaceAll(/\{\{[^}]*\}\}/g, ''));
}
