import type { PolicyFacts, SandboxFacts } from '../api/facts.ts';
import { type ObjectRef, refText } from '../api/object.ts';
import { compareText, contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import { logRate } from './access-log.ts';
import { dialClusterResource, fixedClusters } from './clusters.ts';
import type { Compilation, CompilerSettings, CredentialSource, SubjectPlan } from './compilation.ts';
import { type Dial, dialCluster } from './dial.ts';
import { evaluate } from './evaluate.ts';
import { explain, type McpScan } from './explain.ts';
import { findingsOf } from './findings.ts';
import { innerListener } from './inner-listener.ts';
import { Memo } from './memo.ts';
import { outerListener, tunnelResources } from './outer-listener.ts';
import {
  CLUSTER,
  encoded,
  LISTENER,
  nameOf,
  type ResourceJson,
  type ResourceName,
  ROUTES,
  resourceJson,
  SCOPE,
} from './output.ts';
import { type Plan, PlanMemo, Planner } from './plan.ts';
import { routeTable, tableName } from './route-table.ts';
import { sidecarResources } from './sidecar.ts';
import { type Chain, chainsOf } from './sidecar-chains.ts';

export interface CompilerOptions {
  /** Reads MCP bodies for `explain`; without it a request with a body that a policy must read is an error. */
  readonly scanMcp?: McpScan;
  readonly resources?: Resources;
}

/**
 * What becomes of Envoy resources. `bytes`: those of the gateway are encoded as they are made, so that the JSON form of
 * one is gone before the next one is there. `none`: there are none, for whoever only evaluates.
 */
export type Resources = 'json' | 'bytes' | 'none';

export interface Compiler {
  /** A pure function of its arguments: equal facts give equal bytes, whatever was compiled before. */
  compile(facts: PolicyFacts, settings: CompilerSettings): Compilation;
}

/** {@link Compilation.listedNames} of facts that are compiled only once. */
export function listedNames(facts: PolicyFacts): readonly string[] {
  const planner = new Planner(facts, new PlanMemo());
  return namesOf(facts, new Set(facts.sandboxes.map((sandbox) => planner.planOf(sandbox))));
}

function namesOf(facts: PolicyFacts, plans: Iterable<Plan>): readonly string[] {
  const names = new Set(Object.keys(facts.hosts));
  for (const { listed } of plans) {
    for (const name of listed) {
      names.add(name);
    }
  }
  return [...names].sort(compareText);
}

/** A compiler that remembers what it made, so that a small change costs little. */
export function createCompiler(options: CompilerOptions = {}): Compiler {
  const memory = new Memory(options.resources ?? 'json');
  return { compile: (facts, settings) => compileWorld(facts, settings, memory, options.scanMcp ?? null) };
}

/** What outlives one compilation. */
class Memory {
  readonly plans = new PlanMemo();
  readonly resources = new Memo<readonly ResourceJson[]>();
  readonly gateway = new Memo<GatewayPart>();
  /** What a scope of a table requires, by the table's name. */
  readonly pinned = new Memo<readonly ResourceName[]>();
  /** By sandbox uid, of the last compilation. */
  scopes: ReadonlyMap<string, Scopes> = new Map();
  readonly sidecars = new Memo<{ readonly chains: readonly Chain[]; readonly resources: readonly ResourceJson[] }>();
  readonly #sorted = new WeakMap<readonly SandboxFacts[], readonly SandboxFacts[]>();
  readonly wanted: Resources;
  #settings = '';

  constructor(wanted: Resources) {
    this.wanted = wanted;
  }

  /** A resource that was made anew. */
  keep<R extends ResourceJson>(made: R): R {
    return this.wanted === 'bytes' ? encoded(made) : made;
  }

  /** Resources depend on the settings as a whole. */
  use(settings: CompilerSettings): void {
    const hash = contentHash(settings);
    if (hash !== this.#settings) {
      this.resources.clear();
      this.gateway.clear();
    }
    this.#settings = hash;
  }

  /** By uid. A list that is the same object as last time is not sorted again. */
  sorted(sandboxes: readonly SandboxFacts[]): readonly SandboxFacts[] {
    let sorted = this.#sorted.get(sandboxes);
    if (sorted === undefined) {
      sorted = [...sandboxes].sort((a, b) => compareText(a.uid, b.uid));
      this.#sorted.set(sandboxes, sorted);
    }
    return sorted;
  }

  turn(): void {
    this.plans.turn();
    this.resources.turn();
    this.gateway.turn();
    this.pinned.turn();
    this.sidecars.turn();
  }
}

function compileWorld(
  facts: PolicyFacts,
  settings: CompilerSettings,
  memory: Memory,
  scan: McpScan | null,
): Compilation {
  memory.use(settings);
  const planner = new Planner(facts, memory.plans);
  const plans = new Map(
    memory.sorted(facts.sandboxes).map((sandbox) => [sandbox.uid, { sandbox, plan: planner.planOf(sandbox) }]),
  );
  const groups = groupsOf(plans.values());
  const distinct = groups.map(({ plan }) => plan);
  const resources = memory.wanted !== 'none';
  const gateway = resources ? gatewayResources(distinct, settings, memory) : [];
  const scopes = resources ? scopesOf(plans, memory) : [];
  const sidecars = sidecarSets(resources ? distinct : [], memory);
  const compilation: Compilation = {
    egress: merged(
      [...gateway].sort(byTypeAndName),
      merged(
        scopes.map(({ inner }) => inner),
        scopes.map(({ outer }) => outer),
      ),
    ),
    sidecarSets: sidecars.resources,
    sidecarChains: sidecars.chains,
    subjects: subjectPlans([...plans.values()]),
    credentials: credentialSources(distinct),
    leaves: leavesOf(distinct),
    listedNames: namesOf(facts, distinct),
    findings: findingsOf(facts, planner, groups),
    policySetOf: (uid) => plans.get(uid)?.plan.l7 ?? null,
    evaluate: (uid, request, mcp) => {
      const found = plans.get(uid);
      return found === undefined ? null : evaluate(found.plan.l7, request, mcp);
    },
    explain: (request) => {
      const found = plans.get(request.sandbox);
      if (found === undefined) {
        throw new CodedError('unknown-sandbox', `no sandbox has the uid ${request.sandbox}`);
      }
      return explain(found.plan, found.sandbox.addresses, request, scan);
    },
  };
  memory.turn();
  return compilation;
}

/** Two sorted lists as one; much cheaper than sorting thousands of scopes again. */
function merged(a: readonly ResourceJson[], b: readonly ResourceJson[]): readonly ResourceJson[] {
  const all: ResourceJson[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    all.push(byTypeAndName(a[i]!, b[j]!) <= 0 ? a[i++]! : b[j++]!);
  }
  while (i < a.length) {
    all.push(a[i++]!);
  }
  while (j < b.length) {
    all.push(b[j++]!);
  }
  return all;
}

/** The distinct plans, each with the namespaces of its sandboxes. */
function groupsOf(members: Iterable<{ readonly sandbox: SandboxFacts; readonly plan: Plan }>) {
  const groups = new Map<Plan, Set<string>>();
  for (const { sandbox, plan } of members) {
    let namespaces = groups.get(plan);
    if (namespaces === undefined) {
      namespaces = new Set();
      groups.set(plan, namespaces);
    }
    namespaces.add(sandbox.namespace);
  }
  return [...groups].map(([plan, namespaces]) => ({ plan, namespaces }));
}

function byTypeAndName(a: ResourceJson, b: ResourceJson): number {
  return a.type === b.type ? compareText(a.name, b.name) : compareText(a.type, b.type);
}

function subjectPlans(members: readonly { readonly sandbox: SandboxFacts; readonly plan: Plan }[]) {
  const byPlan = new Map<Plan, Omit<SubjectPlan, 'ownAddresses'>>();
  return new Map(
    members.map(({ sandbox, plan }): [string, SubjectPlan] => {
      const shared = byPlan.get(plan) ?? {
        l4Set: plan.l4.hash,
        policySet: `pset-${plan.l7.hash}`,
        table: tableName(plan.l7),
        egressSet: plan.egress.hash,
        names: plan.l4.names.map(({ name }) => name),
        invalid: plan.l4.invalid,
      };
      byPlan.set(plan, shared);
      return [sandbox.uid, { ...shared, ownAddresses: sandbox.addresses }];
    }),
  );
}

interface Shared {
  readonly hash: string;
  readonly plan: Plan;
  readonly origins: readonly ObjectRef[];
  /** Identifies hash and origins. */
  readonly key: string;
}

/** Plans that share a hash share a resource; its origins are those of all of them. */
function byHash(
  plans: readonly Plan[],
  hashOf: (plan: Plan) => string,
  originsOf: (plan: Plan) => readonly ObjectRef[],
): readonly Shared[] {
  const groups = Map.groupBy(plans, hashOf);
  return [...groups.keys()].sort(compareText).map((hash) => {
    const members = groups.get(hash)!;
    const origins = members.flatMap(originsOf);
    return { hash, plan: members[0]!, origins, key: [hash, ...new Set(origins.map(refText))].sort().join('\n') };
  });
}

/** Some resources of the gateway and the clusters that they dial. */
interface GatewayPart {
  readonly resources: readonly ResourceJson[];
  readonly dials: readonly Dial[];
}

function gatewayResources(plans: readonly Plan[], settings: CompilerSettings, memory: Memory): readonly ResourceJson[] {
  const originsOf = ({ l7 }: Plan) => l7.origins;
  const tables = byHash(plans, ({ l7 }) => l7.tableHash, originsOf).map(({ key, plan, origins }) =>
    memory.gateway.get(`table ${key}`, () => tablePart(plan, origins, memory)),
  );
  const listeners = byHash(plans, ({ egress }) => egress.hash, originsOf).map(({ key, plan, origins }) =>
    memory.gateway.get(`inner ${key}`, () => listenerPart(plan, origins, settings, memory)),
  );
  const parts = [...tables, ...listeners];
  const dials = new Map(parts.flatMap((part) => part.dials.map((dial) => [dialCluster(dial), dial])));
  const clusters = [...dials].flatMap(([name, dial]) =>
    memory.resources.get(`cluster ${name}`, () => [dialClusterResource(dial, settings)]),
  );
  const fixed = memory.resources.get('fixed', () => [outerListener(settings), logRate(), ...fixedClusters(settings)]);
  return [...fixed, ...parts.flatMap(({ resources }) => resources), ...clusters];
}

function tablePart(plan: Plan, origins: readonly ObjectRef[], memory: Memory): GatewayPart {
  const { resource, dials } = routeTable({ ...plan.l7, origins });
  return { resources: [memory.keep(resource), pin(resource.name)], dials };
}

function listenerPart(
  plan: Plan,
  origins: readonly ObjectRef[],
  settings: CompilerSettings,
  memory: Memory,
): GatewayPart {
  const { listener, dials } = innerListener(plan.egress, settings);
  const names = [...dials.map(dialCluster), 'deny', ...(settings.resolver === null ? [] : ['resolver'])];
  const requires = names.map((name) => nameOf(CLUSTER, name));
  const { hash } = plan.egress;
  return {
    resources: [
      memory.keep(resourceJson(LISTENER, `in-${hash}`, listener, origins, requires)),
      ...tunnelResources(hash),
      pin(`eset-${hash}`),
    ],
    dials,
  };
}

/** Keeps a table subscribed, so that a scope can move to it without a gap; no sandbox can have its key. */
function pin(table: string): ResourceJson {
  const name = `!pin-${table}`;
  return resourceJson(SCOPE, name, scopeJson(name, name, table), []);
}

function scopeJson(name: string, key: string, table: string) {
  return { name, routeConfigurationName: table, key: { fragments: [{ stringKey: key }] } };
}

/** The outer and the inner scope of one sandbox, and what they are made from. */
interface Scopes {
  readonly inner: ResourceJson;
  readonly outer: ResourceJson;
  readonly namespace: string;
  readonly name: string;
  readonly tableHash: string;
  readonly egressHash: string;
}

type Members = ReadonlyMap<string, { readonly sandbox: SandboxFacts; readonly plan: Plan }>;

/** Thousands of sandboxes have scopes, of which a change concerns few: what is unchanged costs a look. */
function scopesOf(members: Members, memory: Memory): readonly Scopes[] {
  const made = new Map<string, Scopes>();
  for (const [uid, { sandbox, plan }] of members) {
    const known = memory.scopes.get(uid);
    const isOfSandbox = known?.name === sandbox.name && known.namespace === sandbox.namespace;
    made.set(uid, scopeResources(sandbox, plan, isOfSandbox ? known : undefined, memory));
  }
  memory.scopes = made;
  return [...made.values()];
}

/** Both kinds share one set of resources, so the inner key is prefixed. */
function scopeResources(
  { uid, namespace, name }: SandboxFacts,
  plan: Plan,
  known: Scopes | undefined,
  memory: Memory,
): Scopes {
  const { tableHash } = plan.l7;
  const { hash: egressHash } = plan.egress;
  const [sameInner, sameOuter] = [known?.tableHash === tableHash, known?.egressHash === egressHash];
  if (known !== undefined && sameInner && sameOuter) {
    return known;
  }
  const innerName = `i:${uid}`;
  const origins = [{ kind: 'Sandbox', namespace, name }];
  const scope = (key: string, table: string, more: readonly ResourceName[]) => {
    const pinned = memory.pinned.get(table, () => [nameOf(ROUTES, table), nameOf(SCOPE, `!pin-${table}`)]);
    const requires = more.length === 0 ? pinned : [...pinned, ...more];
    return memory.keep(resourceJson(SCOPE, key, scopeJson(key, key, table), origins, requires));
  };
  return {
    inner: known !== undefined && sameInner ? known.inner : scope(innerName, tableName(plan.l7), []),
    outer:
      known !== undefined && sameOuter ? known.outer : scope(uid, `eset-${egressHash}`, [nameOf(SCOPE, innerName)]),
    ...{ namespace, name, egressHash, tableHash },
  };
}

function sidecarSets(plans: readonly Plan[], memory: Memory) {
  const sets = byHash(
    plans,
    ({ l4 }) => l4.hash,
    ({ l4 }) => l4.origins,
  ).map(({ key, hash, plan, origins }) => ({
    hash,
    ...memory.sidecars.get(key, () => {
      const chains = chainsOf(plan.l4);
      return { chains, resources: sidecarResources({ ...plan.l4, origins }) };
    }),
  }));
  return {
    resources: new Map(sets.map(({ hash, resources }) => [hash, resources])),
    chains: new Map(sets.map(({ hash, chains }) => [hash, chains])),
  };
}

function credentialSources(plans: readonly Plan[]): ReadonlyMap<string, CredentialSource> {
  const tokens = plans.flatMap(({ l7 }) => l7.rules.map(({ token }) => token));
  const found = new Map<string, CredentialSource>();
  for (const token of tokens) {
    if (token !== null && 'credential' in token && token.available) {
      const { id, namespace, name, key, template } = token.credential;
      found.set(id, { namespace, name, key, template });
    }
  }
  return new Map([...found].sort(([a], [b]) => compareText(a, b)));
}

function leavesOf(plans: readonly Plan[]): readonly string[] {
  const names = plans.flatMap(({ egress }) => egress.listed.intercepted.map(({ text }) => text));
  return [...new Set(names)].sort(compareText);
}
