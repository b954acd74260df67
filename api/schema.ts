import { Type } from 'typebox';
import { celValidations } from './cel-rules.ts';
import type { ObjectMeta } from './object.ts';

/**
 * Builders of schemas. One TypeBox schema per kind is at once the TypeScript type, the OpenAPI schema of the CRD and
 * the run-time check. Keywords beginning with `x-kubernetes-` are those of structural schemas.
 */

/** Makes every member read-only, so that parsed objects are shared without copies. */
export type DeepReadonly<T> = unknown extends T
  ? T
  : T extends readonly (infer Item)[]
    ? readonly DeepReadonly<Item>[]
    : T extends object
      ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
      : T;

/** Schema keywords beside the type. */
export interface Keywords {
  readonly description?: string;
  readonly default?: unknown;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  /** Names of rules in `cel-rules.ts`, written into the CRD as `x-kubernetes-validations`. */
  readonly cel?: readonly string[];
  /** Keys that identify an item of a list; their values must differ (`x-kubernetes-list-type: map`). */
  readonly listKeys?: readonly string[];
  /** Items must differ (`set`), or the list is replaced as a whole (`atomic`). */
  readonly listType?: 'set' | 'atomic';
  readonly mapType?: 'atomic' | 'granular';
}

function options(keywords: Keywords): Record<string, unknown> {
  const { cel, listKeys, listType, mapType, ...rest } = keywords;
  return {
    ...rest,
    ...(cel === undefined ? {} : { 'x-kubernetes-validations': celValidations(cel) }),
    ...(listKeys === undefined ? {} : { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': listKeys }),
    ...(listType === undefined ? {} : { 'x-kubernetes-list-type': listType }),
    ...(mapType === undefined ? {} : { 'x-kubernetes-map-type': mapType }),
  };
}

/** Marks a member as optional. */
export const optional = Type.Optional;

/** An object that has these members and no other (unknown fields are errors, D2). */
export function object<const P extends Type.TProperties>(properties: P, keywords: Keywords = {}): Type.TObject<P> {
  return Type.Object(properties, { additionalProperties: false, ...options(keywords) });
}

export function text(keywords: Keywords = {}): Type.TString {
  return Type.String(options(keywords));
}

export function bool(keywords: Keywords = {}): Type.TBoolean {
  return Type.Boolean(options(keywords));
}

export function int32(keywords: Keywords = {}): Type.TInteger {
  return Type.Integer({ format: 'int32', ...options(keywords) });
}

export function int64(keywords: Keywords = {}): Type.TInteger {
  return Type.Integer({ format: 'int64', ...options(keywords) });
}

/** An RFC 3339 time. */
export function time(keywords: Keywords = {}): Type.TString {
  return Type.String({ format: 'date-time', ...options(keywords) });
}

/** One of these texts. */
export function oneOf<const V extends readonly string[]>(values: V, keywords: Keywords = {}): Type.TUnsafe<V[number]> {
  return Type.Unsafe<V[number]>({ type: 'string', enum: values, ...options(keywords) });
}

export function list<const I extends Type.TSchema>(items: I, keywords: Keywords = {}): Type.TArray<I> {
  return Type.Array(items, options(keywords));
}

/** A map with free keys and text values. */
export function textMap(keywords: Keywords = {}): Type.TUnsafe<Record<string, string>> {
  return Type.Unsafe<Record<string, string>>({
    type: 'object',
    additionalProperties: { type: 'string' },
    ...options(keywords),
  });
}

/** A map with free keys and values of one schema. */
export function mapOf<const V extends Type.TSchema>(
  values: V,
  keywords: Keywords = {},
): Type.TUnsafe<Record<string, Type.Static<V>>> {
  return Type.Unsafe<Record<string, Type.Static<V>>>({
    type: 'object',
    additionalProperties: values,
    ...options(keywords),
  });
}

/** A number or a text, as ports and percentages are. */
export function intOrString(keywords: Keywords = {}): Type.TUnsafe<number | string> {
  return Type.Unsafe<number | string>({
    anyOf: [{ type: 'integer' }, { type: 'string' }],
    'x-kubernetes-int-or-string': true,
    ...options(keywords),
  });
}

/** Any JSON value, kept as it is. */
export function anyValue(keywords: Keywords = {}): Type.TUnsafe<unknown> {
  return Type.Unsafe<unknown>({ 'x-kubernetes-preserve-unknown-fields': true, ...options(keywords) });
}

/** An object with any members. */
export function anyObject(keywords: Keywords = {}): Type.TUnsafe<Record<string, unknown>> {
  return Type.Unsafe<Record<string, unknown>>({
    type: 'object',
    'x-kubernetes-preserve-unknown-fields': true,
    ...options(keywords),
  });
}

/** An object of which only these members are looked at; others are allowed (core kinds, D19). */
export function open<const P extends Type.TProperties>(properties: P, keywords: Keywords = {}): Type.TObject<P> {
  return Type.Object(properties, options(keywords));
}

/** The members that every object has; `metadata` is checked apart, by `metadata.ts`. */
export function typeMeta<const A extends string, const K extends string>(apiVersion: A, kind: K) {
  return {
    apiVersion: Type.Unsafe<A>({ type: 'string', enum: [apiVersion] }),
    kind: Type.Unsafe<K>({ type: 'string', enum: [kind] }),
    metadata: Type.Unsafe<ObjectMeta>({ type: 'object' }),
  };
}

/** Group and version of the product's own kinds. */
export const API_VERSION = 'agents.kruise.io/v1alpha1';
