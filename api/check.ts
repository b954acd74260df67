import type { FieldError } from '../base/errors.ts';
import { refusedFields } from './field-classes.ts';
import { type Findings, NO_FINDINGS } from './findings.ts';
import { metadataErrors } from './metadata.ts';
import type { KubeObject } from './object.ts';
import type { PodSpec } from './pod.ts';
import type { SandboxSpec } from './sandbox.ts';
import { checkSandbox, templateErrors } from './sandbox-check.ts';
import { checkSchema, isMap, type StructuralSchema, withDefaults } from './schema-check.ts';
import type { SecurityProfileSpec } from './security-profile.ts';
import { checkSecurityProfile } from './security-profile-check.ts';
import type { TrafficPolicySpec } from './traffic-policy.ts';
import { checkTrafficPolicy } from './traffic-policy-check.ts';

/** What checking needs of a kind. */
export interface CheckedKind {
  readonly kind: string;
  readonly apiVersion: string;
  readonly namespaced: boolean;
  readonly schema: StructuralSchema;
}

/**
 * Everything that is wrong with an object of a known kind, in the two levels of D2. Nothing is thrown, whatever the
 * object is. The status is not looked at: it is written by the product and cannot make an object invalid.
 */
export function checkObject(kind: CheckedKind, object: KubeObject): Findings {
  const invalid: FieldError[] = [];
  if (object.apiVersion !== kind.apiVersion) {
    invalid.push({ path: 'apiVersion', reason: `must be ${kind.apiVersion} for ${kind.kind}` });
  }
  invalid.push(...metadataErrors(object.metadata, kind));
  const { status: _status, apiVersion: _version, kind: _kind, metadata: _metadata, ...content } = object;
  const shape = contentSchema(kind.schema);
  const defaulted = withDefaults(shape, content) as { readonly spec?: unknown };
  const malformed = checkSchema(shape, defaulted);
  if (malformed.length > 0) {
    return { ...NO_FINDINGS, invalid: [...invalid, ...malformed] };
  }
  const found = checkMeaning(kind.kind, defaulted, isMap(object.metadata) ? object : null);
  return {
    ...found,
    invalid: [...invalid, ...refusedFields(kind.kind, defaulted.spec), ...found.invalid],
  };
}

const CONTENT = new WeakMap<StructuralSchema, StructuralSchema>();

/** The schema without what is checked apart. */
function contentSchema(schema: StructuralSchema): StructuralSchema {
  const known = CONTENT.get(schema);
  if (known !== undefined) {
    return known;
  }
  const apart = ['apiVersion', 'kind', 'metadata', 'status'];
  const content: StructuralSchema = {
    ...schema,
    required: (schema.required ?? []).filter((name) => !apart.includes(name)),
    properties: Object.fromEntries(Object.entries(schema.properties ?? {}).filter(([name]) => !apart.includes(name))),
  };
  CONTENT.set(schema, content);
  return content;
}

function checkMeaning(kind: string, content: { readonly spec?: unknown }, object: KubeObject | null): Findings {
  const { spec } = content;
  switch (kind) {
    case 'TrafficPolicy':
    case 'GlobalTrafficPolicy':
      return spec === undefined ? NO_FINDINGS : checkTrafficPolicy(spec as TrafficPolicySpec);
    case 'SecurityProfile':
    case 'GlobalSecurityProfile':
      return spec === undefined ? NO_FINDINGS : checkSecurityProfile(spec as SecurityProfileSpec);
    case 'Sandbox':
      return object === null ? NO_FINDINGS : checkSandbox(spec as SandboxSpec, object.metadata);
    case 'Pod':
      return { ...NO_FINDINGS, invalid: podErrors(spec as PodSpec) };
    case 'Secret':
      return { ...NO_FINDINGS, invalid: secretErrors(content) };
    default:
      return NO_FINDINGS;
  }
}

/** A Pod's spec is checked as that of a template; its metadata is the Pod's own. */
function podErrors(spec: PodSpec): readonly FieldError[] {
  return templateErrors({ spec }, '').map(({ path, reason }) => ({ path: path.replace(/^\./, ''), reason }));
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** Values of `data` are base64; no value is ever part of an error. */
function secretErrors(content: object): readonly FieldError[] {
  const data = (content as { data?: Readonly<Record<string, string>> }).data ?? {};
  return Object.entries(data)
    .filter(([, value]) => !BASE64.test(value.replace(/\s/g, '')))
    .map(([key]) => ({ path: `data.${key}`, reason: 'must be base64; use stringData for a value as it is' }));
}
