import type { FieldError } from '../base/errors.ts';
import { SANDBOX_FIELDS, SECURITY_PROFILE_FIELDS, TRAFFIC_POLICY_FIELDS } from './field-table.ts';
import { POD_TEMPLATE_FIELDS } from './pod-fields.ts';
import { isMap, memberPath } from './schema-check.ts';

/**
 * What becomes of a field (D19): carried out; refused, because leaving it out would mean something else than what was
 * asked for; or noted, because the object works without it and a condition says so.
 */
export type FieldClass = 'carried out' | 'refused' | 'noted';

export interface FieldEntry {
  readonly class: FieldClass;
  /** Why it is refused or noted; empty when it is carried out. */
  readonly why: string;
  /** Values (as text) that are in another class than the rest. */
  readonly values?: Readonly<Record<string, { readonly class: FieldClass; readonly why: string }>>;
}

/**
 * Entries by field pattern: a JSON path with `[]` for any item of a list. An entry that refuses or notes holds for
 * everything below its field too.
 */
export type FieldTable = Readonly<Record<string, FieldEntry>>;

const TABLES: Readonly<Record<string, FieldTable>> = {
  TrafficPolicy: TRAFFIC_POLICY_FIELDS,
  GlobalTrafficPolicy: TRAFFIC_POLICY_FIELDS,
  SecurityProfile: SECURITY_PROFILE_FIELDS,
  GlobalSecurityProfile: SECURITY_PROFILE_FIELDS,
  Sandbox: {
    ...SANDBOX_FIELDS,
    ...Object.fromEntries(Object.entries(POD_TEMPLATE_FIELDS).map(([path, entry]) => [`spec.template.${path}`, entry])),
  },
  Pod: POD_TEMPLATE_FIELDS,
};

/** The table of a kind; undefined for kinds of which every known field is used or harmless. */
export function fieldTable(kind: string): FieldTable | undefined {
  return Object.hasOwn(TABLES, kind) ? TABLES[kind] : undefined;
}

/** The fields of an object that are refused, each with the reason. */
export function refusedFields(kind: string, spec: unknown): FieldError[] {
  return classified(kind, spec, 'refused');
}

/** The fields of an object that are noted: they have no effect, and why. */
export function notedFields(kind: string, spec: unknown): FieldError[] {
  return classified(kind, spec, 'noted');
}

function classified(kind: string, spec: unknown, wanted: FieldClass): FieldError[] {
  const table = fieldTable(kind);
  const found: FieldError[] = [];
  if (table !== undefined) {
    walk(table, spec, 'spec', 'spec', wanted, found);
  }
  return found;
}

function walk(
  table: FieldTable,
  value: unknown,
  path: string,
  pattern: string,
  wanted: FieldClass,
  found: FieldError[],
): void {
  const entry = Object.hasOwn(table, pattern) ? table[pattern]! : undefined;
  const text = typeof value === 'object' ? '' : String(value);
  const special = entry?.values !== undefined && Object.hasOwn(entry.values, text) ? entry.values[text] : entry;
  if (special?.class === wanted) {
    const subject = special === entry ? '' : `${JSON.stringify(value)} `;
    found.push({
      path,
      reason: `${subject}${wanted === 'refused' ? 'is not carried out yet' : 'has no effect'}: ${special.why}`,
    });
  }
  if (entry !== undefined && entry.class !== 'carried out') {
    return;
  }
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      walk(table, item, `${path}[${index}]`, `${pattern}[]`, wanted, found);
    }
  } else if (isMap(value)) {
    for (const [name, member] of Object.entries(value)) {
      walk(table, member, memberPath(path, name), memberPath(pattern, name), wanted, found);
    }
  }
}
