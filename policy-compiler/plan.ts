import type { PolicyFacts, PolicyRecord, SandboxFacts } from '../api/facts.ts';
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
import { createSelecting, KnownSelections, type Selecting, type Selection } from './select.ts';

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

/** Results that outlive one compilation. */
export class PlanMemo {
  readonly traffic = new Memo<Hashed<L4Policy>>();
  readonly profiles = new Memo<Hashed<readonly L7Rule[]>>();
  readonly rules = new Memo<readonly L7Rule[]>();
  readonly listed = new Memo<readonly string[]>();
  readonly plans = new Memo<Plan>();
  readonly selections = new KnownSelections();
  readonly #recordHashes = new WeakMap<object, string>();

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

  turn(): void {
    for (const memo of [this.traffic, this.profiles, this.rules, this.listed, this.plans]) {
      memo.turn();
    }
  }
}

/** Finds the plan of each sandbox of one state of the facts. */
export class Planner {
  readonly #facts: PolicyFacts;
  readonly #memo: PlanMemo;
  readonly #selecting: Selecting;
  readonly #addresses: PeerAddresses;
  readonly #hosts: string;
  readonly #plans = new Map<Selection, Map<string, Plan>>();
  readonly #read = new Map<PolicyRecord, Hashed<L4Policy>>();

  constructor(facts: PolicyFacts, memo: PlanMemo) {
    this.#facts = facts;
    this.#memo = memo;
    this.#selecting = createSelecting(facts, memo.selections);
    this.#addresses = peerAddresses(facts);
    this.#hosts = contentHash(facts.hosts);
  }

  planOf(sandbox: SandboxFacts): Plan {
    const selection = this.#selecting.select(sandbox);
    const namespace = selection.l7.some(({ record }) => dependsOnCaller(record)) ? sandbox.namespace : '';
    const byNamespace = this.#plans.get(selection) ?? new Map<string, Plan>();
    this.#plans.set(selection, byNamespace);
    let plan = byNamespace.get(namespace);
    if (plan === undefined) {
      plan = this.#plan(selection, namespace);
      byNamespace.set(namespace, plan);
    }
    return plan;
  }

  #plan(selection: Selection, namespace: string): Plan {
    const policies = selection.l4.map(({ record }) => this.traffic(record));
    const profiles = selection.l7.map(({ record }) => this.profile(record, namespace));
    const invalid = selection.invalid?.ref ?? null;
    const parts = [...policies, { hash: '/' }, ...profiles].map(({ hash }) => hash).join(' ');
    const listed = this.#memo.listed.get(`${parts} ${this.#hosts}`, () =>
      listedBy(
        policies,
        profiles.flatMap(({ value }) => value),
        this.#facts,
      ),
    );
    const virtual = listed.map((name) => `${name}=${this.#facts.virtualAddresses[name] ?? ''}`).join(' ');
    const denied = invalid === null ? '' : refText(invalid);
    return this.#memo.plans.get(`${parts}\n${virtual}\n${this.#hosts}\n${denied}`, () => {
      const rules = profiles.flatMap(({ value }) => value);
      const owners = selection.l7.map(({ record }) => record.ref);
      return this.#build(policies, { rules, owners }, listed, invalid);
    });
  }

  #build(
    policies: readonly Hashed<L4Policy>[],
    profiles: { readonly rules: readonly L7Rule[]; readonly owners: readonly ObjectRef[] },
    listed: readonly string[],
    invalid: ObjectRef | null,
  ): Plan {
    const names = listed.flatMap((name): NameFacts[] => {
      const virtual = this.#facts.virtualAddresses[name];
      return virtual === undefined ? [] : [{ name, virtual, host: this.#facts.hosts[name] ?? null }];
    });
    const values = policies.map(({ value }) => value);
    const l4 = l4Set(values, names, invalid);
    const l7 = policySet(invalid === null ? profiles.rules : [], profiles.owners, l4);
    return { l4, l7, egress: egressSet(l7), policies: values, listed };
  }

  /** A traffic policy as it is read now. */
  traffic(record: PolicyRecord): Hashed<L4Policy> {
    const known = this.#read.get(record);
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
    } else {
      result = this.#memo.traffic.get(hash, () => ({ hash, value: read() }));
    }
    this.#read.set(record, result);
    return result;
  }

  /** A profile's rules for callers of a namespace, with the Secrets that there are now. */
  profile(record: PolicyRecord, namespace: string): Hashed<readonly L7Rule[]> {
    const caller = dependsOnCaller(record) ? namespace : '';
    const hash = `${this.#memo.recordHash(record)} ${caller}`;
    const rules = this.#memo.rules.get(hash, () => compileProfile(record, caller));
    const available = availability(rules, this.#facts.secretKeys);
    const key = `${hash} ${available.map(Number).join('')}`;
    return this.#memo.profiles.get(key, () => ({ hash: key, value: withSecrets(rules, available) }));
  }
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
