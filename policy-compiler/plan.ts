import type { PolicyFacts, PolicyRecord } from '../api/facts.ts';
import { type ObjectRef, refText } from '../api/object.ts';
import { compareText, contentHash } from '../base/canonical.ts';
import { type EgressSet, egressSet } from './egress-set.ts';
import {
  compileTrafficPolicy,
  dependsOnAddresses,
  type L4Policy,
  type PeerAddresses,
  peerAddresses,
} from './l4-policy.ts';
import { type L4Set, l4Set, type NameFacts } from './l4-set.ts';
import { availability, compileProfile, dependsOnCaller, type L7Rule, withSecrets } from './l7-policy.ts';
import { Memo } from './memo.ts';
import { isResolvable } from './names.ts';
import { type PolicySet, policySet } from './policy-set.ts';
import { createSelecting, KnownSelections, type Positions, type Selecting } from './select.ts';

/** The intermediate form of every sandbox with the same selection. */
export interface Plan {
  readonly l4: L4Set;
  readonly l7: PolicySet;
  readonly egress: EgressSet;
  /** The selected policies as they were read; for findings. */
  readonly policies: readonly L4Policy[];
  /** Names that the selected policies list or the operator gave an address; with or without a virtual address. Sorted. */
  readonly listed: readonly string[];
}

/** A compiled object with the hash of its meaning. */
interface Hashed<T> {
  readonly hash: string;
  readonly value: T;
}

/** A profile's rules that do not depend on the caller, as they were with these Secrets. */
interface ProfileReading {
  readonly secretKeys: PolicyFacts['secretKeys'];
  readonly read: Hashed<readonly L7Rule[]>;
}

/** A plan with what it was made from beside its policies. */
interface KnownPlan {
  readonly listed: readonly string[];
  /** The addresses of the listed names, in their order; and the facts in which they were last looked up. */
  readonly addresses: readonly (string | undefined)[];
  readonly virtualAddresses: PolicyFacts['virtualAddresses'];
  readonly plan: Plan;
}

/** Results that outlive one compilation. Facts are immutable, so what was made from an object holds for the object. */
export class PlanMemo {
  readonly traffic = new Memo<Hashed<L4Policy>>();
  readonly profiles = new Memo<Hashed<readonly L7Rule[]>>();
  readonly rules = new Memo<readonly L7Rule[]>();
  readonly plans = new Memo<{ known: KnownPlan }>();
  readonly selections = new KnownSelections();
  /** Policies whose meaning depends on nothing but themselves. */
  readonly fixedTraffic = new WeakMap<PolicyRecord, Hashed<L4Policy>>();
  /** Profiles that read the same for every caller. */
  readonly fixedProfiles = new WeakMap<PolicyRecord, ProfileReading>();
  readonly #recordHashes = new WeakMap<object, string>();
  readonly #hosts = new WeakMap<PolicyFacts['hosts'], string>();
  readonly #ids = new WeakMap<Hashed<unknown>, number>();
  #lastId = 0;

  /** Hash of a policy's form in force with its owner, kept with the object. */
  recordHash({ ref, inForce }: PolicyRecord): string {
    if (inForce === null) {
      return '';
    }
    const known = this.#recordHashes.get(inForce);
    const hash = known ?? contentHash([ref, inForce.spec]);
    this.#recordHashes.set(inForce, hash);
    return hash;
  }

  hostsHash(hosts: PolicyFacts['hosts']): string {
    const known = this.#hosts.get(hosts);
    const hash = known ?? contentHash(hosts);
    this.#hosts.set(hosts, hash);
    return hash;
  }

  /** A short name of a reading: another one has another name, as long as it lives. */
  idOf(read: Hashed<unknown>): number {
    const known = this.#ids.get(read);
    if (known !== undefined) {
      return known;
    }
    this.#lastId += 1;
    this.#ids.set(read, this.#lastId);
    return this.#lastId;
  }

  turn(): void {
    for (const memo of [this.traffic, this.profiles, this.rules, this.plans]) {
      memo.turn();
    }
  }
}

/** Finds the plan of each sandbox of one state of the facts. */
export class Planner {
  readonly selecting: Selecting;
  readonly #facts: PolicyFacts;
  readonly #memo: PlanMemo;
  readonly #addresses: PeerAddresses;
  readonly #hosts: string;
  readonly #read = new Map<PolicyRecord, Hashed<L4Policy>>();

  constructor(facts: PolicyFacts, memo: PlanMemo) {
    this.#facts = facts;
    this.#memo = memo;
    this.selecting = createSelecting(facts, memo.selections);
    this.#addresses = peerAddresses(facts);
    this.#hosts = memo.hostsHash(facts.hosts);
  }

  /**
   * The plan of the sandboxes of a namespace with these policies. It is known by what was read from each policy, which
   * is the same object while policy, owner, peers' addresses, caller and available Secrets are the same, by `hosts` and
   * by the object because of which all is denied; the addresses of the names that these list are compared one by one.
   */
  planOf(positions: Positions, namespace: string): Plan {
    const selection = this.selecting.at(positions);
    const policies = selection.l4.map(({ record }) => this.traffic(record));
    const profiles = selection.l7.map(({ record }) => this.profile(record, namespace));
    const invalid = selection.invalid?.ref ?? null;
    const ids = [policies, profiles].map((list) => list.map((read) => this.#memo.idOf(read)).join(' ')).join('/');
    const key = `${ids} ${this.#hosts} ${invalid === null ? '' : refText(invalid)}`;
    const owners = selection.l7.map(({ record }) => record.ref);
    const build = (known: KnownPlan | null) => this.#known(known, policies, profiles, owners, invalid);
    const entry = this.#memo.plans.get(key, () => ({ known: build(null) }));
    if (entry.known.virtualAddresses !== this.#facts.virtualAddresses) {
      entry.known = build(entry.known);
    }
    return entry.known.plan;
  }

  #known(
    known: KnownPlan | null,
    policies: readonly Hashed<L4Policy>[],
    profiles: readonly Hashed<readonly L7Rule[]>[],
    owners: readonly ObjectRef[],
    invalid: ObjectRef | null,
  ): KnownPlan {
    const { virtualAddresses } = this.#facts;
    const rules = profiles.flatMap(({ value }) => value);
    const listed = known?.listed ?? listedBy(policies, rules, this.#facts);
    const addresses = listed.map((name) => ownMember(virtualAddresses, name));
    const isSame = known?.addresses.every((address, at) => address === addresses[at]) === true;
    const plan = isSame ? known!.plan : this.#build(policies, { rules, owners }, listed, invalid);
    return { listed, addresses, virtualAddresses, plan };
  }

  #build(
    policies: readonly Hashed<L4Policy>[],
    profiles: { readonly rules: readonly L7Rule[]; readonly owners: readonly ObjectRef[] },
    listed: readonly string[],
    invalid: ObjectRef | null,
  ): Plan {
    const names = listed.flatMap((name): NameFacts[] => {
      const virtual = ownMember(this.#facts.virtualAddresses, name);
      return virtual === undefined ? [] : [{ name, virtual, host: ownMember(this.#facts.hosts, name) ?? null }];
    });
    const values = policies.map(({ value }) => value);
    const l4 = l4Set(values, names, invalid);
    const l7 = policySet(invalid === null ? profiles.rules : [], profiles.owners, l4);
    return { l4, l7, egress: egressSet(l7), policies: values, listed };
  }

  /** A traffic policy as it is read now. */
  traffic(record: PolicyRecord): Hashed<L4Policy> {
    const known = this.#memo.fixedTraffic.get(record) ?? this.#read.get(record);
    if (known !== undefined) {
      return known;
    }
    const read = () => compileTrafficPolicy(record, this.#addresses, this.#facts.rootNamespace);
    const hash = this.#memo.recordHash(record);
    let result: Hashed<L4Policy>;
    if (dependsOnAddresses(record)) {
      const value = read();
      const content = contentHash([hash, value.rules]);
      result = this.#memo.traffic.get(content, () => ({ hash: content, value }));
      this.#read.set(record, result);
    } else {
      result = this.#memo.traffic.get(hash, () => ({ hash, value: read() }));
      this.#memo.fixedTraffic.set(record, result);
    }
    return result;
  }

  /** A profile's rules for callers of a namespace, with the Secrets that there are now. */
  profile(record: PolicyRecord, namespace: string): Hashed<readonly L7Rule[]> {
    const { fixedProfiles } = this.#memo;
    const { secretKeys } = this.#facts;
    const known = fixedProfiles.get(record);
    if (known?.secretKeys === secretKeys) {
      return known.read;
    }
    if (dependsOnCaller(record)) {
      return this.#readProfile(record, namespace);
    }
    const read = this.#readProfile(record, '');
    fixedProfiles.set(record, { secretKeys, read });
    return read;
  }

  #readProfile(record: PolicyRecord, caller: string): Hashed<readonly L7Rule[]> {
    const hash = `${this.#memo.recordHash(record)} ${caller}`;
    const rules = this.#memo.rules.get(hash, () => compileProfile(record, caller));
    const available = availability(rules, this.#facts.secretKeys);
    const key = `${hash} ${available.map(Number).join('')}`;
    return this.#memo.profiles.get(key, () => ({ hash: key, value: withSecrets(rules, available) }));
  }
}

/** A policy may list `constructor`. */
function ownMember<V>(record: Readonly<Record<string, V>>, name: string): V | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/** D4: exact `fqdn` peers, exact `domains` and every name of `hosts`. */
function listedBy(
  policies: readonly Hashed<L4Policy>[],
  rules: readonly L7Rule[],
  facts: PolicyFacts,
): readonly string[] {
  const fqdns = policies.flatMap(({ value }) =>
    value.rules.flatMap(({ peers }) => peers.flatMap((peer) => (peer.kind === 'name' ? [peer.name] : []))),
  );
  const domains = rules.flatMap(({ clauses }) =>
    clauses.flatMap((clause) => clause.domains.flatMap((domain) => (domain.kind === 'exact' ? [domain.name] : []))),
  );
  const all = new Set([...fqdns, ...domains, ...Object.keys(facts.hosts)]);
  return [...all].filter(isResolvable).sort(compareText);
}
