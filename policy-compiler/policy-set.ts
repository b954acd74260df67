import { type HostEntry, VIRTUAL_RANGE } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import { parseRange, rangeContains } from '../base/addresses.ts';
import { compareText, contentHash } from '../base/canonical.ts';
import { ALL_PORTS, type Ports } from './l4-policy.ts';
import { type L4Set, type NameFacts, namePieces } from './l4-set.ts';
import type { Clause, L7Rule } from './l7-policy.ts';
import { canHaveLeaf, type Domain, isResolvable, underSuffix } from './names.ts';

/** Where the gateway may dial a name, for some ports of the original destination. */
export interface DialPiece {
  readonly ports: Ports;
  /** Ranges beyond the private ones at which it is not dialled (D4); sorted texts. */
  readonly notDialled: readonly string[];
}

/** A name with a virtual address, as requests need it. */
export interface DialName {
  readonly name: string;
  readonly virtual: string;
  readonly host: HostEntry | null;
  /** One entry for all ports where they do not differ. */
  readonly pieces: readonly DialPiece[];
}

/** Everything that decides requests of the sandboxes that share it: rules in order, and the names they may dial. */
export interface PolicySet {
  /** Names the route table; covers the rules, the names and how they are dialled. */
  readonly tableHash: string;
  /** Names the ordered rules alone: `policySet` of a decision. */
  readonly hash: string;
  readonly rules: readonly L7Rule[];
  /** By name. */
  readonly names: ReadonlyMap<string, DialName>;
  /** By virtual address. */
  readonly virtuals: ReadonlyMap<string, DialName>;
  readonly invalid: ObjectRef | null;
  readonly origins: readonly ObjectRef[];
}

/** Puts the rules of the selected profiles and the names of the connection rules together. */
export function policySet(rules: readonly L7Rule[], origins: readonly ObjectRef[], l4: L4Set): PolicySet {
  const names = l4.names.map((name) => dialName(l4, name));
  const hash = contentHash(rules);
  return {
    tableHash: contentHash({ rules: hash, names, invalid: l4.invalid }),
    hash,
    rules,
    names: new Map(names.map((name) => [name.name, name])),
    virtuals: new Map(names.map((name) => [name.virtual, name])),
    invalid: l4.invalid,
    origins: l4.invalid === null ? origins : [l4.invalid],
  };
}

function dialName(l4: L4Set, { name, virtual, host }: NameFacts): DialName {
  const allowed = l4.invalid === null ? namePieces(l4, name).filter(({ decision }) => decision.action === 'allow') : [];
  const distinct = new Map(allowed.map(({ notDialled }) => [notDialled.join(' '), notDialled]));
  const pieces =
    distinct.size === 1
      ? [{ ports: ALL_PORTS, notDialled: [...distinct.values()][0]! }]
      : allowed.map(({ ports, notDialled }) => ({ ports, notDialled }));
  return { name, virtual, host, pieces };
}

/** Where a request came to, as far as the decision depends on it. */
export type Destination =
  /** The virtual address of this name; null for an address of the range that stands for no name of the set. */
  { readonly kind: 'virtual'; readonly name: DialName | null } | { readonly kind: 'address' };

const VIRTUAL = parseRange(VIRTUAL_RANGE)!;

/** Reads the original destination address of a connection. */
export function destinationOf(set: PolicySet, address: string): Destination {
  const name = set.virtuals.get(address);
  return name !== undefined || rangeContains(VIRTUAL, address)
    ? { kind: 'virtual', name: name ?? null }
    : { kind: 'address' };
}

/** A name or suffix, and the ports at which rules list it. */
export interface ListedAt {
  readonly text: string;
  readonly ports: readonly Ports[];
}

/** What the rules say about traffic that may stay unread: TLS and bytes that are no HTTP (D1). Lists are sorted. */
export interface ListedNames {
  /** Every name and suffix that a clause lists. */
  readonly exact: readonly string[];
  readonly suffixes: readonly string[];
  /** Names that a clause for https lists exactly: TLS to them is intercepted. */
  readonly intercepted: readonly ListedAt[];
  /** Names that a clause for https lists exactly and that can have no certificate: TLS to them is denied. */
  readonly withoutLeaf: readonly ListedAt[];
  /** Suffixes that a clause for https lists: TLS to names under them is denied. */
  readonly httpsSuffixes: readonly ListedAt[];
  /** Names that a clause for http lists exactly: other bytes to them are denied. */
  readonly http: readonly ListedAt[];
  /** Where a restrictive clause can match https: TLS without a server name is denied there. */
  readonly restrictedHttps: readonly Ports[];
  /** Where a restrictive `*` clause can match https: TLS to unlisted names is denied there. */
  readonly anyHttps: readonly Ports[];
  /** Where a restrictive wildcard or `*` clause could apply: bytes that are no HTTP are denied there. */
  readonly wildcards: readonly Ports[];
  /** Whether there is any restrictive rule: then a connection that stays silent is closed, not passed on. */
  readonly restricts: boolean;
  /** Whether there is any rule at all: then a connection is given time to show what it is. */
  readonly reads: boolean;
}

/** Sums up the domains of a list of rules (docs/egress-semantics.md 10–12). */
export function listNames(rules: readonly L7Rule[]): ListedNames {
  const clauses = rules.flatMap((rule) => rule.clauses);
  const https = clauses.filter(forScheme('https'));
  const restrictive = rules.filter((rule) => rule.restrictive).flatMap((rule) => rule.clauses);
  const restrictiveHttps = restrictive.filter(forScheme('https'));
  return {
    exact: listedAt(clauses, exactName).map(({ text }) => text),
    suffixes: listedAt(clauses, suffixOf).map(({ text }) => text),
    intercepted: listedAt(https, exactName).filter(({ text }) => canHaveLeaf(text)),
    withoutLeaf: listedAt(https, exactName).filter(({ text }) => isResolvable(text) && !canHaveLeaf(text)),
    httpsSuffixes: listedAt(https, suffixOf),
    http: listedAt(clauses.filter(forScheme('http')), exactName),
    restrictedHttps: portsOf(restrictiveHttps.filter(hasDomain('any', 'suffix', 'exact'))),
    anyHttps: portsOf(restrictiveHttps.filter(hasDomain('any'))),
    wildcards: portsOf(restrictive.filter(hasDomain('any', 'suffix'))),
    restricts: restrictive.length > 0,
    reads: rules.length > 0,
  };
}

function forScheme(scheme: string): (clause: Clause) => boolean {
  return ({ schemes }) => schemes.length === 0 || schemes.includes(scheme);
}

function hasDomain(...kinds: readonly Domain['kind'][]): (clause: Clause) => boolean {
  return ({ domains }) => domains.some(({ kind }) => kinds.includes(kind));
}

function exactName(domain: Domain): string | null {
  return domain.kind === 'exact' ? domain.name : null;
}

function suffixOf(domain: Domain): string | null {
  return domain.kind === 'suffix' ? domain.suffix : null;
}

function listedAt(clauses: readonly Clause[], textOf: (domain: Domain) => string | null): readonly ListedAt[] {
  const byText = new Map<string, Clause[]>();
  for (const clause of clauses) {
    for (const text of new Set(clause.domains.map(textOf).filter((found) => found !== null))) {
      byText.set(text, [...(byText.get(text) ?? []), clause]);
    }
  }
  return [...byText.keys()].sort(compareText).map((text) => ({ text, ports: portsOf(byText.get(text)!) }));
}

function portsOf(clauses: readonly Clause[]): readonly Ports[] {
  if (clauses.some(({ ports }) => ports.length === 0)) {
    return [ALL_PORTS];
  }
  const ports = [...new Set(clauses.flatMap((clause) => clause.ports))].sort((a, b) => a - b);
  return ports.map((port) => ({ from: port, to: port }));
}

/** The ports at which the lists name something: exactly this text, or a suffix that it lies under. */
export function portsListed(exact: readonly ListedAt[], suffixes: readonly ListedAt[], name: string): readonly Ports[] {
  const found = [
    ...exact.filter(({ text }) => text === name),
    ...suffixes.filter(({ text }) => underSuffix(name, text)),
  ].flatMap(({ ports }) => ports);
  const byStart = new Map(found.map((ports) => [`${ports.from}-${ports.to}`, ports]));
  return [...byStart.values()].sort((a, b) => a.from - b.from || a.to - b.to);
}
