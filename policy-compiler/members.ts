import type { SandboxFacts } from '../api/facts.ts';
import { compareText } from '../base/canonical.ts';
import type { SubjectPlan } from './compilation.ts';
import {
  kept,
  nameOf,
  type ResourceJson,
  type ResourceName,
  type Resources,
  ROUTES,
  resourceJson,
  SCOPE,
} from './output.ts';
import type { Plan, Planner } from './plan.ts';
import { tableName } from './route-table.ts';
import type { Positions } from './select.ts';

/** A sandbox with its plan and what follows from it. */
export interface Member {
  readonly sandbox: SandboxFacts;
  readonly plan: Plan;
  /** Null where no resources are wanted. */
  readonly scopes: Scopes | null;
  readonly subject: SubjectPlan;
}

/** The outer and the inner scope of one sandbox. */
interface Scopes {
  readonly inner: ResourceJson;
  readonly outer: ResourceJson;
}

/** What all sandboxes with a plan share. */
interface Shared {
  readonly subject: Omit<SubjectPlan, 'ownAddresses'>;
  /** What the scopes require. */
  readonly pinned: { readonly inner: readonly ResourceName[]; readonly outer: readonly ResourceName[] };
}

/** Sandboxes of one namespace that the same policies select: they have one plan, whatever the policies say. */
interface Group {
  readonly positions: Positions;
  readonly namespace: string;
}

/** Who is in which group; it stays while the list of sandboxes and the order of the policies do. */
interface Grouping {
  readonly sandboxes: readonly SandboxFacts[];
  readonly order: object;
  /** By uid. */
  readonly sorted: readonly SandboxFacts[];
  readonly groups: readonly Group[];
  /** For each of `sorted`, its place in `groups`. */
  readonly groupOf: readonly number[];
}

/** The sandboxes of one state of the facts with their plans. */
export interface Members {
  /** By uid, ascending. */
  readonly all: readonly Member[];
  readonly byUid: ReadonlyMap<string, Member>;
  readonly subjects: ReadonlyMap<string, SubjectPlan>;
  /** The distinct plans, each with the namespaces of its sandboxes, in the order of the first sandbox of each. */
  readonly plans: readonly { readonly plan: Plan; readonly namespaces: ReadonlySet<string> }[];
}

/**
 * Keeps the members of the last compilation. Thousands of sandboxes have scopes, of which a change concerns few: what is
 * unchanged stays the same object and costs a look.
 */
export class MemberMemo {
  #grouping: Grouping | null = null;
  #members: Members = { all: [], byUid: new Map(), subjects: new Map(), plans: [] };
  readonly #wanted: Resources;
  readonly #shared = new WeakMap<Plan, Shared>();

  constructor(wanted: Resources) {
    this.#wanted = wanted;
  }

  of(sandboxes: readonly SandboxFacts[], planner: Planner): Members {
    const grouping = this.#group(sandboxes, planner);
    const plans = grouping.groups.map(({ positions, namespace }) => planner.planOf(positions, namespace));
    const { byUid: known, all: before } = this.#members;
    const all = grouping.sorted.map((sandbox, at) => {
      const plan = plans[grouping.groupOf[at]!]!;
      const earlier = before[at]?.sandbox === sandbox ? before[at] : known.get(sandbox.uid);
      return earlier?.sandbox === sandbox && earlier.plan === plan ? earlier : this.#member(sandbox, plan, earlier);
    });
    if (all.length !== before.length || all.some((member, at) => member !== before[at])) {
      this.#members = {
        all,
        byUid: new Map(all.map((member) => [member.sandbox.uid, member])),
        subjects: new Map(all.map((member) => [member.sandbox.uid, member.subject])),
        plans: distinctPlans(grouping, plans),
      };
    }
    return this.#members;
  }

  #group(sandboxes: readonly SandboxFacts[], { selecting }: Planner): Grouping {
    const known = this.#grouping;
    if (known?.sandboxes === sandboxes && known.order === selecting.order) {
      return known;
    }
    const sorted =
      known?.sandboxes === sandboxes ? known.sorted : sandboxes.toSorted((a, b) => compareText(a.uid, b.uid));
    const groups: Group[] = [];
    const places = new Map<Positions, Map<string, number>>();
    const groupOf = sorted.map((sandbox) => {
      const { namespace } = sandbox;
      const positions = selecting.positionsOf(sandbox);
      const byNamespace = places.get(positions) ?? new Map<string, number>();
      places.set(positions, byNamespace);
      const place = byNamespace.get(namespace);
      if (place !== undefined) {
        return place;
      }
      byNamespace.set(namespace, groups.length);
      return groups.push({ positions, namespace }) - 1;
    });
    this.#grouping = { sandboxes, order: selecting.order, sorted, groups, groupOf };
    return this.#grouping;
  }

  #member(sandbox: SandboxFacts, plan: Plan, known: Member | undefined): Member {
    const shared = this.#shared.get(plan) ?? sharedOf(plan);
    this.#shared.set(plan, shared);
    return {
      sandbox,
      plan,
      scopes: this.#wanted === 'none' ? null : scopesOf(sandbox, plan, shared.pinned, known, this.#wanted),
      subject: { ...shared.subject, ownAddresses: sandbox.addresses },
    };
  }
}

function distinctPlans({ groups }: Grouping, plans: readonly Plan[]): Members['plans'] {
  const distinct = new Map<Plan, Set<string>>();
  for (const [at, plan] of plans.entries()) {
    const namespaces = distinct.get(plan) ?? new Set<string>();
    distinct.set(plan, namespaces.add(groups[at]!.namespace));
  }
  return [...distinct].map(([plan, namespaces]) => ({ plan, namespaces }));
}

function sharedOf({ l4, l7, egress }: Plan): Shared {
  const pinned = (table: string) => [nameOf(ROUTES, table), nameOf(SCOPE, `!pin-${table}`)];
  return {
    subject: {
      l4Set: l4.hash,
      policySet: `pset-${l7.hash}`,
      table: tableName(l7),
      egressSet: egress.hash,
      names: l4.names.map(({ name }) => name),
      invalid: l4.invalid,
    },
    pinned: { inner: pinned(tableName(l7)), outer: pinned(outerTable(egress)) },
  };
}

function outerTable({ hash }: Plan['egress']): string {
  return `eset-${hash}`;
}

/** Both kinds share one set of resources, so the inner key is prefixed. */
function scopesOf(
  { uid, namespace, name }: SandboxFacts,
  { l7, egress }: Plan,
  pinned: Shared['pinned'],
  known: Member | undefined,
  wanted: Resources,
): Scopes {
  const isOfSandbox = known?.sandbox.name === name && known.sandbox.namespace === namespace;
  const before = isOfSandbox ? known.scopes : null;
  const innerName = `i:${uid}`;
  const origins = [{ kind: 'Sandbox', namespace, name }];
  const scope = (key: string, table: string, requires: readonly ResourceName[]) =>
    kept(resourceJson(SCOPE, key, scopeJson(key, table), origins, requires), wanted);
  return {
    inner:
      before !== null && known!.plan.l7.tableHash === l7.tableHash
        ? before.inner
        : scope(innerName, tableName(l7), pinned.inner),
    outer:
      before !== null && known!.plan.egress.hash === egress.hash
        ? before.outer
        : scope(uid, outerTable(egress), [...pinned.outer, nameOf(SCOPE, innerName)]),
  };
}

/** Keeps a table subscribed, so that a scope can move to it without a gap; no sandbox can have its key. */
export function pin(table: string): ResourceJson {
  const name = `!pin-${table}`;
  return resourceJson(SCOPE, name, scopeJson(name, table), []);
}

/** A scope's name is its key. */
function scopeJson(name: string, table: string) {
  return { name, routeConfigurationName: table, key: { fragments: [{ stringKey: name }] } };
}
