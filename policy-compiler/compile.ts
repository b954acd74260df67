import type { PolicyFacts } from '../api/facts.ts';
import { compareText, contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import type { Compilation, CompilerSettings, CredentialSource } from './compilation.ts';
import { evaluate } from './evaluate.ts';
import { explain, type McpScan } from './explain.ts';
import { FindingsMemo } from './findings.ts';
import { GatewayMemo } from './gateway.ts';
import { type Member, MemberMemo } from './members.ts';
import { type ResourceJson, type Resources, SCOPE } from './output.ts';
import { type Plan, PlanMemo, Planner } from './plan.ts';
import { SharedMemo } from './shared.ts';
import { sidecarResources } from './sidecar.ts';
import { type Chain, chainsOf } from './sidecar-chains.ts';

export interface CompilerOptions {
  /** Reads MCP bodies for `explain`; without it a request with a body that a policy must read is an error. */
  readonly scanMcp?: McpScan;
  readonly resources?: Resources;
}

export interface Compiler {
  /**
   * A pure function of its arguments: equal facts give equal bytes, whatever was compiled before. Facts are immutable:
   * an object of them that is met again is taken to say what it said.
   */
  compile(facts: PolicyFacts, settings: CompilerSettings): Compilation;
}

/** {@link Compilation.listedNames} of facts that are compiled only once. */
export function listedNames(facts: PolicyFacts): readonly string[] {
  const { plans } = new MemberMemo('none').of(facts.sandboxes, new Planner(facts, new PlanMemo()));
  return namesOf(
    facts,
    plans.map(({ plan }) => plan),
  );
}

function namesOf(facts: PolicyFacts, plans: readonly Plan[]): readonly string[] {
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

interface SidecarPart {
  readonly chains: readonly Chain[];
  readonly resources: readonly ResourceJson[];
}

/** What outlives one compilation. Everything in it is a pure function of its key, and says there why that is whole. */
class Memory {
  readonly plans = new PlanMemo();
  readonly members: MemberMemo;
  readonly sidecars = new SharedMemo<SidecarPart>();
  readonly findings = new FindingsMemo();
  readonly scopes = new Last<readonly Member[], readonly ResourceJson[]>();
  readonly wanted: Resources;
  #gateway: { readonly settings: string; readonly memo: GatewayMemo } | null = null;

  constructor(wanted: Resources) {
    this.wanted = wanted;
    this.members = new MemberMemo(wanted);
  }

  /** Resources of the gateway depend on the settings as a whole. */
  gateway(settings: CompilerSettings): GatewayMemo {
    const hash = contentHash(settings);
    if (this.#gateway?.settings !== hash) {
      this.#gateway = { settings: hash, memo: new GatewayMemo(settings, this.wanted) };
    }
    return this.#gateway.memo;
  }
}

/** The last value of a function of one object. */
class Last<K extends object, V> {
  #last: { readonly key: K; readonly value: V } | null = null;

  get(key: K, make: (key: K) => V): V {
    if (this.#last?.key !== key) {
      this.#last = { key, value: make(key) };
    }
    return this.#last.value;
  }
}

function compileWorld(
  facts: PolicyFacts,
  settings: CompilerSettings,
  memory: Memory,
  scan: McpScan | null,
): Compilation {
  const planner = new Planner(facts, memory.plans);
  const members = memory.members.of(facts.sandboxes, planner);
  const plans = members.plans.map(({ plan }) => plan);
  const hasResources = memory.wanted !== 'none';
  const gateway = hasResources ? memory.gateway(settings).resources(plans) : [];
  const sidecars = memory.sidecars.of(
    hasResources ? plans : [],
    ({ l4 }) => l4.hash,
    ({ l4 }) => l4.origins,
    ({ l4 }, origins) => ({ chains: chainsOf(l4), resources: sidecarResources({ ...l4, origins }) }),
  );
  const compilation: Compilation = {
    egress: withScopes(gateway, memory.scopes.get(members.all, scopesOf)),
    sidecarSets: new Map([...sidecars].map(([hash, { resources }]) => [hash, resources])),
    sidecarChains: new Map([...sidecars].map(([hash, { chains }]) => [hash, chains])),
    subjects: members.subjects,
    credentials: credentialSources(plans),
    leaves: leavesOf(plans),
    listedNames: namesOf(facts, plans),
    findings: memory.findings.of(facts, planner, members.plans),
    policySetOf: (uid) => members.byUid.get(uid)?.plan.l7 ?? null,
    evaluate: (uid, request, mcp) => {
      const found = members.byUid.get(uid);
      return found === undefined ? null : evaluate(found.plan.l7, request, mcp);
    },
    explain: (request) => {
      const found = members.byUid.get(request.sandbox);
      if (found === undefined) {
        throw new CodedError('unknown-sandbox', `no sandbox has the uid ${request.sandbox}`);
      }
      return explain(found.plan, found.sandbox.addresses, request, scan);
    },
  };
  memory.plans.turn();
  return compilation;
}

/** The scopes of all sandboxes, sorted by name. */
function scopesOf(members: readonly Member[]): readonly ResourceJson[] {
  const scopes = members.flatMap((member) => (member.scopes === null ? [] : [member.scopes]));
  return merged(
    scopes.map(({ inner }) => inner),
    scopes.map(({ outer }) => outer),
  );
}

/** The gateway's resources, sorted by type and name, with the scopes of sandboxes in their place. */
function withScopes(gateway: readonly ResourceJson[], scopes: readonly ResourceJson[]): readonly ResourceJson[] {
  const before = gateway.filter(({ type }) => type < SCOPE);
  const own = gateway.filter(({ type }) => type === SCOPE);
  const after = gateway.filter(({ type }) => type > SCOPE);
  return [...before, ...merged(own, scopes), ...after];
}

/** Two lists of one type, sorted by name, as one; much cheaper than sorting thousands of scopes again. */
function merged(a: readonly ResourceJson[], b: readonly ResourceJson[]): readonly ResourceJson[] {
  const all: ResourceJson[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    all.push(compareText(a[i]!.name, b[j]!.name) <= 0 ? a[i++]! : b[j++]!);
  }
  return [...all, ...a.slice(i), ...b.slice(j)];
}

/** What a plan adds to lists that are made from all plans. */
interface PlanParts {
  readonly credentials: readonly (readonly [id: string, CredentialSource])[];
  readonly leaves: readonly string[];
}

const parts = new WeakMap<Plan, PlanParts>();

function partsOf(plan: Plan): PlanParts {
  let known = parts.get(plan);
  if (known === undefined) {
    known = {
      credentials: plan.l7.rules.flatMap(({ token }) => {
        if (token === null || !('credential' in token) || !token.available) {
          return [];
        }
        const { id, namespace, name, key, template } = token.credential;
        return [[id, { namespace, name, key, template }] as const];
      }),
      leaves: plan.egress.listed.intercepted.map(({ text }) => text),
    };
    parts.set(plan, known);
  }
  return known;
}

function credentialSources(plans: readonly Plan[]): ReadonlyMap<string, CredentialSource> {
  const found = new Map(plans.flatMap((plan) => partsOf(plan).credentials));
  return new Map([...found].sort(([a], [b]) => compareText(a, b)));
}

function leavesOf(plans: readonly Plan[]): readonly string[] {
  return [...new Set(plans.flatMap((plan) => partsOf(plan).leaves))].sort(compareText);
}
