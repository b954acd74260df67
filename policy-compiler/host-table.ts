import { compareText } from '../base/canonical.ts';
import type { MatchInput } from './match.ts';
import { domainCovers } from './names.ts';
import type { DialName, DialPiece, PolicySet } from './policy-set.ts';
import { listNames } from './policy-set.ts';
import { ANYTHING, conditionHolds, expandRegions, type HostPattern, type Region } from './regions.ts';

/** The requests to one host pattern that arrive in one way. */
export interface Group {
  readonly scheme: 'http' | 'https';
  /** The name and ports whose virtual address the request came to; null: another address. */
  readonly name: { readonly name: DialName; readonly piece: DialPiece } | null;
  readonly regions: readonly Region[];
}

/** One entry of a route table. */
export interface HostTable {
  readonly pattern: HostPattern;
  readonly groups: readonly Group[];
}

/** Regions of one table; the largest hosts are left to the external processor until it fits. */
export const MAX_TABLE_REGIONS = 6000;

const memo = new WeakMap<PolicySet, readonly HostTable[]>();

/**
 * The table of a policy set: every name that a rule lists or that has a virtual address, every suffix, and the rest.
 * An entry holds the rules of all wildcards that cover it, since Envoy looks only at the most exact entry.
 */
export function hostTables(set: PolicySet): readonly HostTable[] {
  const known = memo.get(set);
  if (known !== undefined) {
    return known;
  }
  const listed = listNames(set.rules);
  const exact = [...new Set([...listed.exact, ...set.names.keys()])].sort(compareText);
  const patterns: HostPattern[] = [
    ...exact.map((name) => ({ kind: 'exact', name }) as const),
    ...listed.suffixes.map((suffix) => ({ kind: 'suffix', suffix }) as const),
    { kind: 'any' },
  ];
  const intercepted = new Set(listed.intercepted.map(({ text }) => text));
  const tables = fitted(patterns.map((pattern) => hostTable(set, pattern, intercepted)));
  memo.set(set, tables);
  return tables;
}

function hostTable(set: PolicySet, pattern: HostPattern, intercepted: ReadonlySet<string>): HostTable {
  const https = pattern.kind === 'exact' && intercepted.has(pattern.name);
  const name = pattern.kind === 'exact' ? set.names.get(pattern.name) : undefined;
  const groups = (https ? (['https', 'http'] as const) : (['http'] as const)).flatMap((scheme): Group[] => {
    const regions = expandRegions(set.rules, pattern, scheme);
    const pieces = (name?.pieces ?? []).map((piece) => ({ scheme, name: { name: name!, piece }, regions }));
    return [...pieces, { scheme, name: null, regions }];
  });
  return { pattern, groups };
}

function sizeOf(table: HostTable): number {
  return table.groups.reduce((sum, { regions }) => sum + regions.length, 0);
}

/** Replaces the largest entries by one region for the external processor, until the table is small enough. */
function fitted(tables: readonly HostTable[]): readonly HostTable[] {
  let total = tables.reduce((sum, table) => sum + sizeOf(table), 0);
  const result = [...tables];
  const largestFirst = [...tables.keys()].sort((a, b) => sizeOf(tables[b]!) - sizeOf(tables[a]!) || a - b);
  for (const index of largestFirst) {
    if (total <= MAX_TABLE_REGIONS) {
      break;
    }
    const table = tables[index]!;
    const regions: readonly Region[] = [{ condition: ANYTHING, matched: [], processor: true }];
    result[index] = { ...table, groups: table.groups.map((group) => ({ ...group, regions })) };
    total -= sizeOf(table) - table.groups.length;
  }
  return result;
}

/** The entry that Envoy picks for a host: the exact one, the longest suffix, or the rest. */
export function tableFor(tables: readonly HostTable[], host: string): HostTable {
  const covering = tables.filter(({ pattern }) => domainCovers(pattern, host));
  const suffixLength = ({ pattern }: HostTable) => (pattern.kind === 'suffix' ? pattern.suffix.length : -1);
  const exact = covering.find(({ pattern }) => pattern.kind === 'exact');
  return exact ?? covering.sort((a, b) => suffixLength(b) - suffixLength(a))[0]!;
}

/** The region that decides a request, or null when no group takes it (its scheme does not arrive at this host). */
export function regionFor(table: HostTable, byName: boolean, input: MatchInput): Region | null {
  const group = table.groups.find(
    ({ scheme, name }) =>
      scheme === input.scheme &&
      (name !== null) === byName &&
      (name === null || (name.piece.ports.from <= input.port && input.port <= name.piece.ports.to)),
  );
  return group?.regions.find(({ condition }) => conditionHolds(condition, input)) ?? null;
}
