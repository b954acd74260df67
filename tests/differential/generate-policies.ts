import fc from 'fast-check';
import type { KubeObject } from '../../api/object.ts';
import { profile, traffic } from '../vectors/facts.ts';
import * as pools from './pools.ts';

/** Policies of the small worlds, as arbitraries that shrink. */

const pick = <T>(values: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...values);

/** A member that is there with this probability (in tenths), else absent. */
function sometimes<T>(tenths: number, arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> {
  return fc.oneof({ weight: 10 - tenths, arbitrary: fc.constant(undefined) }, { weight: tenths, arbitrary });
}

/** Drops absent members, which YAML does not have. */
function present<T extends object>(value: T): object {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined));
}

const meta = (kinds: readonly [string, string]) =>
  fc
    .record({
      kind: fc.oneof({ weight: 3, arbitrary: fc.constant(kinds[0]) }, { weight: 2, arbitrary: fc.constant(kinds[1]) }),
      name: pick(['p', 'a', 'z']),
      namespace: fc.oneof(
        { weight: 6, arbitrary: fc.constant('team-a') },
        { weight: 1, arbitrary: fc.constant('team-b') },
      ),
      priority: sometimes(5, pick([5, 999, 1000, 1001])),
      created: sometimes(5, pick(['2026-01-01T00:00:00Z', '2026-01-01T00:00:01Z'])),
      selector: fc.oneof({ weight: 3, arbitrary: fc.constant({}) }, { weight: 2, arbitrary: pick(pools.SELECTORS) }),
    })
    .map((value) => present(value) as { readonly kind: string; readonly name: string; readonly namespace: string });

/** At most `maxLength` objects of different identity. */
export function distinct(
  arbitrary: fc.Arbitrary<KubeObject>,
  minLength: number,
  maxLength: number,
): fc.Arbitrary<readonly KubeObject[]> {
  return fc.uniqueArray(arbitrary, {
    minLength,
    maxLength,
    selector: ({ kind, metadata }) => `${kind}/${metadata.namespace ?? ''}/${metadata.name}`,
  });
}

const peerWith = (cidrs: readonly string[]): fc.Arbitrary<object> =>
  fc.oneof(
    { weight: 6, arbitrary: pick(cidrs).map((cidr) => ({ cidr })) },
    { weight: 1, arbitrary: fc.constant({ cidr: '0.0.0.0/0' }) },
    { weight: 4, arbitrary: pick(pools.SPELLINGS).map((fqdn) => ({ fqdn })) },
    { weight: 2, arbitrary: pick(pools.SERVICE_PEERS) },
    { weight: 2, arbitrary: pick(pools.WORKLOAD_PEERS) },
    { weight: 1, arbitrary: pick(pools.LINK_LOCAL_CIDRS).map((cidr) => ({ cidr })) },
  );

const portEntry: fc.Arbitrary<object> = fc.oneof(
  { weight: 5, arbitrary: pick(pools.PORTS).map((port) => ({ protocol: 'TCP', port })) },
  { weight: 3, arbitrary: pick(pools.PORTS).map((port) => ({ port })) },
  { weight: 4, arbitrary: fc.constant({ port: 443, endPort: 8080 }) },
  { weight: 2, arbitrary: pick(pools.PORTS).map((port) => ({ protocol: 'UDP', port })) },
  { weight: 1, arbitrary: fc.constant({ protocol: 'TCP' }) },
);

const ports = sometimes(5, fc.array(portEntry, { minLength: 1, maxLength: 2 }));

/** An allow may have no peers, or unreadable ones, which are left out; a reject may not (D2). */
const trafficRule = fc.oneof(
  fc
    .record({
      action: fc.constant('allow'),
      to: sometimes(8, fc.array(peerWith([...pools.CIDRS, ...pools.UNREADABLE_CIDRS]), { minLength: 1, maxLength: 3 })),
      ports,
    })
    .map(present),
  fc
    .record({
      action: fc.constant('reject'),
      to: fc.array(peerWith(pools.CIDRS), { minLength: 1, maxLength: 3 }),
      ports,
    })
    .map(present),
);

/** Any TrafficPolicy or GlobalTrafficPolicy. */
export const trafficPolicy: fc.Arbitrary<KubeObject> = fc
  .tuple(fc.array(trafficRule, { maxLength: 4 }), meta(['TrafficPolicy', 'GlobalTrafficPolicy']))
  .map(([rules, more]) => traffic(rules, more));

/** A policy that lets the first sandboxes reach everything, or nothing at all: L7 then decides. */
export const openPolicies: fc.Arbitrary<readonly KubeObject[]> = fc.oneof(
  { weight: 2, arbitrary: fc.constant([]) },
  {
    weight: 3,
    arbitrary: fc.constant([
      traffic([{ action: 'allow', to: [{ cidr: '0.0.0.0/0' }, { cidr: '::/0' }] }], {
        kind: 'GlobalTrafficPolicy',
        name: 'open',
      }),
    ]),
  },
);

const domain = fc.oneof(
  { weight: 5, arbitrary: pick(pools.SPELLINGS) },
  { weight: 2, arbitrary: pick(pools.WILDCARDS) },
);

const valueTest = (names: readonly string[], values: readonly string[]) =>
  fc
    .tuple(
      pick(names),
      pick(['Exact', 'Prefix', 'Regex', undefined]),
      pick(values),
      pick(['^[12]$', '1', '^live', '^7$']),
    )
    .map(([name, type, value, regex]) => present({ name, type, value: type === 'Regex' ? regex : value }));

/** A clause whose conditions are there with this probability (in tenths); rare, so that rules match now and then. */
const clause = (tenths: number) =>
  fc
    .record({
      domains: fc.array(domain, { minLength: 1, maxLength: 2 }),
      methods: sometimes(
        tenths,
        fc.uniqueArray(pick(['GET', 'POST', 'PUT', 'CONNECT']), { minLength: 1, maxLength: 3 }),
      ),
      schemes: sometimes(tenths, fc.array(pick(['http', 'https', 'HTTP', 'ws']), { minLength: 1, maxLength: 2 })),
      ports: sometimes(tenths, fc.array(pick(pools.PORTS), { minLength: 1, maxLength: 3 })),
      paths: sometimes(tenths * 2, fc.array(pick(pools.PATH_TESTS), { minLength: 1, maxLength: 2 })),
      headers: sometimes(
        tenths,
        fc.array(valueTest(['x-a', 'X-A', 'x-b'], ['1', '12', '2']), { minLength: 1, maxLength: 2 }),
      ),
      queryParams: sometimes(
        tenths,
        fc.array(valueTest(['id', 'q'], ['7', 'a b', '77']), { minLength: 1, maxLength: 1 }),
      ),
    })
    .map(present);

const singleCondition = fc
  .oneof(
    { weight: 5, arbitrary: pick(pools.PATH_TESTS).map((path) => ({ paths: [path] })) },
    { weight: 2, arbitrary: valueTest(['x-a', 'X-B'], ['1', '12']).map((header) => ({ headers: [header] })) },
    { weight: 2, arbitrary: valueTest(['id', 'q'], ['7', 'a b']).map((query) => ({ queryParams: [query] })) },
    { weight: 2, arbitrary: pick(['GET', 'POST']).map((method) => ({ methods: [method] })) },
  )
  .map((condition) => ({ domains: ['*'], ...condition }));

const block = fc
  .record({ statusCode: sometimes(5, pick([403, 451, 418])), body: sometimes(4, pick(['no', '', '{"error":"mine"}'])) })
  .map(present);

const mcpToolPolicy = fc
  .record({
    defaultAction: pick(['allow', 'deny']),
    unsupportedVersionAction: sometimes(4, pick(['deny', 'passthrough'])),
    rules: fc.array(
      fc
        .record({
          method: pick(['tools/call', 'tools/call', 'tools/list']),
          toolNames: sometimes(8, fc.array(pick(pools.TOOLS), { maxLength: 2 })),
          action: pick(['allow', 'deny']),
        })
        .map(present),
      { minLength: 1, maxLength: 3 },
    ),
    denyResponse: sometimes(4, fc.record({ statusCode: pick([403, 451]), body: pick(['', 'not this tool']) })),
  })
  .map(present);

const headerManipulation = fc
  .tuple(
    fc.uniqueArray(pick(pools.MANIPULATED), { minLength: 1, maxLength: 3 }),
    fc.integer({ min: 0, max: 3 }),
    pick(['1', 'v', '%v%', '{{ .Pod.Name }}']),
  )
  .map(([names, cut, value]) => {
    const set = names.slice(0, cut).map((name) => ({ name, value }));
    const remove = names.slice(cut);
    return { ...(set.length > 0 ? { set } : {}), ...(remove.length > 0 ? { remove } : {}) };
  });

const tokenTransformation = fc
  .record({
    disabled: sometimes(1, fc.boolean()),
    credentialRef: fc.oneof(
      { weight: 6, arbitrary: fc.constant({ secret: { name: 'key' } }) },
      { weight: 1, arbitrary: fc.constant({ kind: 'Secret', name: 'key', namespace: 'team-a' }) },
      { weight: 1, arbitrary: fc.constant({ secret: { name: 'key', namespace: 'team-b' } }) },
      { weight: 4, arbitrary: pick(['gone', 'wrong', 'empty']).map((name) => ({ secret: { name } })) },
    ),
    apiKey: fc.oneof(
      fc.uniqueArray(pick(['Authorization', 'x-key']), { minLength: 1, maxLength: 2 }).map((names) => ({
        targetHeaders: { names },
        value: { template: 'Bearer {{ .Token }}' },
      })),
      fc.constant({ valueTemplate: '{{ .Token }}' }),
      fc.constant({ targetHeader: 'X-Key', valueTemplate: 'k {{.Token}}' }),
    ),
  })
  .map(present);

/** How often each action is there, in tenths. */
export interface ActionWeights {
  readonly block?: number;
  readonly bypass?: number;
  readonly mcp?: number;
  readonly headers?: number;
  readonly token?: number;
}

function actions({ block: b = 3, bypass = 1, mcp = 1, headers = 3, token = 1 }: ActionWeights): fc.Arbitrary<object> {
  return fc
    .record({
      block: sometimes(b, block),
      bypass: sometimes(bypass, pick([true, true, false])),
      mcpToolPolicy: sometimes(mcp, mcpToolPolicy),
      headerManipulation: sometimes(headers, headerManipulation),
      tokenTransformation: sometimes(token, tokenTransformation),
    })
    .map(present);
}

/** What a scenario changes about the rules of profiles. */
export interface RuleOptions {
  /** Replaces the domains of every clause. */
  readonly domains?: readonly string[];
  readonly maxRules?: number;
  /** How often each condition of a clause is there, in tenths. */
  readonly conditions?: number;
  /** Exactly one condition in each clause, so that it alone decides. */
  readonly single?: boolean;
}

/** Any profile, its rules with these actions. */
export function securityProfile(weights: ActionWeights = {}, options: RuleOptions = {}): fc.Arbitrary<KubeObject> {
  const { domains, maxRules = 3, conditions = 2, single = false } = options;
  const clauses = fc
    .array(single ? singleCondition : clause(conditions), { minLength: 1, maxLength: 2 })
    .map((all) => (domains === undefined ? all : all.map((one) => ({ ...one, domains }))));
  const rule = fc.record({ match: clauses, actions: actions(weights) }).map(readable);
  const rules = fc.array(rule, { minLength: 1, maxLength: maxRules });
  return fc.tuple(rules, meta(['SecurityProfile', 'GlobalSecurityProfile'])).map(([all, more]) => profile(all, more));
}

interface GeneratedRule {
  readonly match: readonly object[];
  readonly actions: { readonly block?: unknown; readonly mcpToolPolicy?: unknown; readonly bypass?: boolean };
}

/** The scheme of no request makes a rule that stops requests invalid (D2). */
function readable({ match, actions: all }: GeneratedRule): GeneratedRule {
  const stops = all.bypass !== true && (all.block !== undefined || all.mcpToolPolicy !== undefined);
  const clauses = match.map((one: { schemes?: readonly string[] }) =>
    stops && one.schemes?.includes('ws') === true ? { ...one, schemes: ['https'] } : one,
  );
  return { match: clauses, actions: all };
}

/** What rejects or stops and cannot be read. */
const UNREADABLE_RULES = {
  traffic: [
    { action: 'allow', to: [{ cidr: '0.0.0.0/0' }] },
    { action: 'reject', to: [{ cidr: 'nonsense' }] },
  ],
  profile: [{ match: [{ domains: ['*'], schemes: ['ws'] }], actions: { block: {} } }],
};

/** An object that was never good. */
export const invalidObject: fc.Arbitrary<KubeObject> = fc
  .tuple(
    fc.oneof(
      pick(pools.BROKEN_SELECTORS).map((selector) => ({ selector, unreadable: false })),
      pick(pools.SELECTORS).map((selector) => ({ selector, priority: -1, unreadable: false })),
      pick(pools.SELECTORS).map((selector) => ({ selector, unreadable: true })),
    ),
    meta(['TrafficPolicy', 'GlobalTrafficPolicy']),
    meta(['SecurityProfile', 'GlobalSecurityProfile']),
    fc.boolean(),
  )
  .map(([{ selector, unreadable, ...more }, asTraffic, asProfile, isTraffic]) => {
    const made = isTraffic
      ? traffic(unreadable ? UNREADABLE_RULES.traffic : [], asTraffic)
      : profile(unreadable ? UNREADABLE_RULES.profile : [], asProfile);
    const spec = present({ ...(made.spec as object), ...more, selector });
    return { ...made, spec };
  });
