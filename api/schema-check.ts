import type { FieldError } from '../base/errors.ts';
import { compileRegex, type Regex } from '../base/regex.ts';
import { celRule } from './cel-rules.ts';

/** A structural schema as the builders of `schema.ts` make it. */
export interface StructuralSchema {
  readonly type?: string;
  readonly format?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly properties?: Readonly<Record<string, StructuralSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | StructuralSchema;
  readonly items?: StructuralSchema;
  readonly 'x-kubernetes-int-or-string'?: boolean;
  readonly 'x-kubernetes-list-type'?: string;
  readonly 'x-kubernetes-list-map-keys'?: readonly string[];
  readonly 'x-kubernetes-validations'?: readonly { readonly rule: string; readonly message: string }[];
}

/** A TypeBox schema seen as the plain JSON that it is. */
export function structural(schema: object): StructuralSchema {
  return schema as StructuralSchema;
}

/** Whether a value is a plain map. */
export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/** A JSON path with one more member; a name that is no word is put in brackets. */
export function memberPath(path: string, name: string): string {
  const step = /^[A-Za-z_][A-Za-z0-9_-]*$/.test(name) ? name : `[${JSON.stringify(name)}]`;
  return path === '' || step.startsWith('[') ? `${path}${step}` : `${path}.${step}`;
}

/**
 * What is wrong with a value by its schema, with the JSON path of each error: what the API server checks, and besides
 * that fields that the schema does not know (D2). Rules across fields are looked at where the value's own shape is good.
 */
export function checkSchema(schema: StructuralSchema, value: unknown, path = ''): FieldError[] {
  const errors = checkValue(schema, value, path);
  if (errors.length > 0) {
    return errors;
  }
  return (schema['x-kubernetes-validations'] ?? [])
    .filter(({ rule }) => !celRule(rule).holds(value as never))
    .map(({ message }) => ({ path, reason: message }));
}

function checkValue(schema: StructuralSchema, value: unknown, path: string): FieldError[] {
  if (schema['x-kubernetes-int-or-string'] === true) {
    const good = typeof value === 'string' || Number.isInteger(value);
    return good ? [] : [{ path, reason: `must be an integer or a string, not ${nameOf(value)}` }];
  }
  switch (schema.type) {
    case 'object':
      return isMap(value) ? checkMap(schema, value, path) : [wrongType('an object', value, path)];
    case 'array':
      return Array.isArray(value) ? checkList(schema, value, path) : [wrongType('a list', value, path)];
    case 'string':
      return typeof value === 'string' ? checkText(schema, value, path) : [wrongType('a string', value, path)];
    case 'integer':
      return Number.isInteger(value)
        ? checkNumber(schema, value as number, path)
        : [wrongType('an integer', value, path)];
    case 'boolean':
      return typeof value === 'boolean' ? [] : [wrongType('true or false', value, path)];
    default:
      return [];
  }
}

function checkMap(schema: StructuralSchema, value: Readonly<Record<string, unknown>>, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const { properties, additionalProperties } = schema;
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name)) {
      errors.push({ path: memberPath(path, name), reason: 'is required' });
    }
  }
  for (const [name, member] of Object.entries(value)) {
    const known = properties !== undefined && Object.hasOwn(properties, name) ? properties[name] : undefined;
    if (known !== undefined) {
      errors.push(...checkSchema(known, member, memberPath(path, name)));
    } else if (additionalProperties === false) {
      errors.push({ path: memberPath(path, name), reason: unknownField(name, Object.keys(properties ?? {})) });
    } else if (typeof additionalProperties === 'object') {
      errors.push(...checkSchema(additionalProperties, member, memberPath(path, name)));
    }
  }
  if (schema.maxProperties !== undefined && Object.keys(value).length > schema.maxProperties) {
    errors.push({ path, reason: `must have at most ${schema.maxProperties} entries` });
  }
  return errors;
}

function unknownField(name: string, known: readonly string[]): string {
  const near = known.find((other) => other.toLowerCase() === name.toLowerCase() || withinOneEdit(other, name));
  return near === undefined
    ? `is an unknown field; known here: ${[...known].sort().join(', ')}`
    : `is an unknown field; did you mean ${near}?`;
}

/** Whether one insertion, deletion or replacement turns one text into the other. */
function withinOneEdit(a: string, b: string): boolean {
  const [short, long] = a.length <= b.length ? [a, b] : [b, a];
  if (long.length - short.length > 1) {
    return false;
  }
  let at = 0;
  while (at < short.length && short[at] === long[at]) {
    at += 1;
  }
  return short.slice(short.length === long.length ? at + 1 : at) === long.slice(at + 1);
}

function checkList(schema: StructuralSchema, value: readonly unknown[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (value.length < (schema.minItems ?? 0)) {
    errors.push({ path, reason: `must have at least ${schema.minItems} ${schema.minItems === 1 ? 'item' : 'items'}` });
  }
  if (value.length > (schema.maxItems ?? Number.POSITIVE_INFINITY)) {
    errors.push({ path, reason: `must have at most ${schema.maxItems} items, has ${value.length}` });
  }
  if (schema.items !== undefined) {
    const { items } = schema;
    errors.push(...value.flatMap((item, index) => checkSchema(items, item, `${path}[${index}]`)));
  }
  return [...errors, ...checkUnique(schema, value, path)];
}

function checkUnique(schema: StructuralSchema, value: readonly unknown[], path: string): FieldError[] {
  const keys = schema['x-kubernetes-list-type'] === 'map' ? (schema['x-kubernetes-list-map-keys'] ?? []) : null;
  if (keys === null && schema['x-kubernetes-list-type'] !== 'set') {
    return [];
  }
  const seen = new Map<string, number>();
  const errors: FieldError[] = [];
  for (const [index, item] of value.entries()) {
    const key = JSON.stringify(keys === null ? item : keys.map((name) => (isMap(item) ? item[name] : undefined)));
    const first = seen.get(key);
    if (first === undefined) {
      seen.set(key, index);
    } else {
      const where = keys === null ? `${path}[${index}]` : memberPath(`${path}[${index}]`, keys[0]!);
      errors.push({ path: where, reason: `is the same as in ${path}[${first}]; each must be different` });
    }
  }
  return errors;
}

function checkText(schema: StructuralSchema, value: string, path: string): FieldError[] {
  if (schema.enum !== undefined && !schema.enum.includes(value)) {
    return [{ path, reason: `${JSON.stringify(value)} is not one of ${schema.enum.join(', ')}` }];
  }
  const length = [...value].length;
  if (length < (schema.minLength ?? 0)) {
    return [{ path, reason: length === 0 ? 'must not be empty' : `must have at least ${schema.minLength} characters` }];
  }
  if (length > (schema.maxLength ?? Number.POSITIVE_INFINITY)) {
    return [{ path, reason: `must have at most ${schema.maxLength} characters, has ${length}` }];
  }
  if (schema.pattern !== undefined && !regex(schema.pattern).search(value)) {
    return [{ path, reason: `${JSON.stringify(value)} does not match ${schema.pattern}` }];
  }
  if (schema.format === 'date-time' && !isTime(value)) {
    return [{ path, reason: `${JSON.stringify(value)} is no RFC 3339 time such as 2030-01-31T12:00:00Z` }];
  }
  return [];
}

const TIME = /^\d{4}-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;

function isTime(value: string): boolean {
  const parts = TIME.exec(value);
  if (parts === null || Number.isNaN(Date.parse(value))) {
    return false;
  }
  // Date.parse takes 31 February as 3 March.
  const day = new Date(`${value.slice(0, 10)}T00:00:00Z`);
  return day.getUTCDate() === Number(parts[2]) && Number(parts[3]) < 24;
}

function checkNumber(schema: StructuralSchema, value: number, path: string): FieldError[] {
  const bits = schema.format === 'int32' ? 2 ** 31 : Number.MAX_SAFE_INTEGER + 1;
  const low = Math.max(schema.minimum ?? -bits, -bits);
  const high = Math.min(schema.maximum ?? bits - 1, bits - 1);
  return value < low || value > high ? [{ path, reason: `must be from ${low} to ${high}, is ${value}` }] : [];
}

function wrongType(wanted: string, value: unknown, path: string): FieldError {
  return { path, reason: `must be ${wanted}, not ${nameOf(value)}` };
}

function nameOf(value: unknown): string {
  return value === null
    ? 'null'
    : Array.isArray(value)
      ? 'a list'
      : typeof value === 'object'
        ? 'an object'
        : `a ${typeof value}`;
}

const compiled = new Map<string, Regex>();

function regex(source: string): Regex {
  const known = compiled.get(source) ?? compileRegex(source);
  compiled.set(source, known);
  return known;
}

/**
 * The value with the defaults of its schema, as the API server writes them: a default fills a member that is absent
 * (never one that is set), and what is below it is filled too. Values of the wrong shape stay as they are.
 */
export function withDefaults(schema: StructuralSchema, value: unknown): unknown {
  if (Array.isArray(value) && schema.items !== undefined) {
    const { items } = schema;
    return value.map((item) => withDefaults(items, item));
  }
  if (!isMap(value)) {
    return value;
  }
  const { properties = {}, additionalProperties } = schema;
  const filled: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    const below = Object.hasOwn(properties, name)
      ? properties[name]
      : typeof additionalProperties === 'object'
        ? additionalProperties
        : undefined;
    setOwn(filled, name, below === undefined ? member : withDefaults(below, member));
  }
  for (const [name, member] of Object.entries(properties)) {
    if (!Object.hasOwn(filled, name) && member.default !== undefined) {
      filled[name] = member.default;
    }
  }
  return filled;
}

/** Sets a member whatever its name, also `__proto__`. */
function setOwn(target: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(target, name, { value, enumerable: true, writable: true, configurable: true });
}
