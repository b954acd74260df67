import fc from 'fast-check';
import type { DecisionRequest } from '../../api/decision.ts';
import type { HostEntry, PolicyFacts } from '../../api/facts.ts';
import type { KubeObject } from '../../api/object.ts';
import { factsOf, type World } from '../vectors/facts.ts';
import {
  type ActionWeights,
  distinct,
  invalidObject,
  openPolicies,
  type RuleOptions,
  securityProfile,
  trafficPolicy,
} from './generate-policies.ts';
import {
  type Draft,
  type DraftParts,
  draft,
  FORGED_HOSTS,
  MCP_CALL,
  requestOf,
  SERVER_NAMES,
  towards,
} from './generate-requests.ts';
import * as pools from './pools.ts';

/** One generated case: a world and some requests in it. */
export interface Scenario {
  readonly about: string;
  readonly objects: readonly KubeObject[];
  readonly hosts: Readonly<Record<string, HostEntry>>;
  readonly drafts: readonly Draft[];
}

/** One comparison: what a decider is asked. */
export interface Pair {
  readonly facts: PolicyFacts;
  readonly request: DecisionRequest;
}

/** The facts of a scenario; the same object every time, so that deciders can keep what they compile. */
export function factsOfScenario({ objects, hosts }: Scenario): PolicyFacts {
  const world: World = {
    sandboxes: pools.SANDBOXES,
    objects,
    hosts,
    services: pools.SERVICES,
    pods: pools.PODS,
    secretKeys: pools.SECRET_KEYS,
  };
  return factsOf(world);
}

/** Every pair of a scenario. */
export function pairsOf(scenario: Scenario): readonly Pair[] {
  const facts = factsOfScenario(scenario);
  return scenario.drafts.map((one) => ({ facts, request: requestOf(facts, one) }));
}

const pick = <T>(values: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...values);

const hosts: fc.Arbitrary<Scenario['hosts']> = fc.oneof(
  { weight: 3, arbitrary: fc.constant({}) },
  {
    weight: 2,
    arbitrary: fc.dictionary(
      pick([...pools.NAMES]),
      pick<HostEntry>([
        { address: '10.1.1.1' },
        { address: '203.0.113.9', port: 9000 },
        { address: '127.0.0.9' },
        { address: '2001:db8::1' },
      ]),
      { maxKeys: 2 },
    ),
  },
);

const REQUESTS = { minLength: 1, maxLength: 3 };

function scenario(
  about: string,
  objects: fc.Arbitrary<readonly KubeObject[]>,
  parts: DraftParts = {},
): fc.Arbitrary<Scenario> {
  return fc.record({ about: fc.constant(about), objects, hosts, drafts: fc.array(draft(parts), REQUESTS) });
}

const both = (...lists: readonly fc.Arbitrary<readonly KubeObject[]>[]) =>
  fc.tuple(...lists).map((parts) => parts.flat() as readonly KubeObject[]);

const policies = distinct(trafficPolicy, 1, 3);
const profiles = (weights: ActionWeights = {}, min = 1, max = 3, options: RuleOptions = {}) =>
  distinct(securityProfile(weights, options), min, max);
const someTraffic = fc.oneof({ weight: 1, arbitrary: policies }, { weight: 2, arbitrary: openPolicies });

const anyScheme: DraftParts['scheme'] = fc.constantFrom('http', 'https', 'tcp');
const anyPort = fc.constantFrom(...pools.PORTS);
const NONE: ActionWeights = { block: 0, bypass: 0, mcp: 0, headers: 0, token: 0 };
const ANY_HOST = { domains: ['*'] };
const ONE_CONDITION = { maxRules: 2, single: true };
const MCP_RULES = { domains: ['*', 'a.test'], maxRules: 2, conditions: 1 };
const CREDENTIAL_RULES = { domains: [...pools.NAMES], maxRules: 2, conditions: 1 };

/** Requests that a rule about every name is likely to match. */
const likely = { port: fc.constant(80), path: fc.constantFrom('/', '/v1/items', '/admin', '//admin') };

/** Scenarios with their weights: each aims at one verdict that chance alone would rarely give. */
const SCENARIOS: readonly (readonly [number, fc.Arbitrary<Scenario>])[] = [
  [
    10,
    scenario('own address', both(someTraffic, profiles({}, 0, 1)), {
      to: towards.toAddress(pools.OWN_ADDRESSES),
      scheme: anyScheme,
    }),
  ],
  [12, scenario('link-local', policies, { to: towards.toAddress(pools.LINK_LOCAL), scheme: anyScheme })],
  [
    9,
    scenario('invalid object', both(distinct(invalidObject, 1, 2), someTraffic, profiles({}, 0, 1)), {
      scheme: anyScheme,
    }),
  ],
  [20, scenario('address', policies, { to: towards.toAddress(pools.ADDRESSES), scheme: anyScheme, port: anyPort })],
  [20, scenario('name', both(policies, profiles({}, 0, 1)), { to: towards.byName, scheme: anyScheme, port: anyPort })],
  [14, scenario('http', both(openPolicies, profiles({ bypass: 3 }, 1, 3)))],
  [16, scenario('any host', both(openPolicies, profiles({ bypass: 3 }, 1, 2, ANY_HOST)), likely)],
  [
    34,
    scenario('one condition', both(openPolicies, profiles({ ...NONE, block: 5, headers: 5 }, 1, 1, ONE_CONDITION)), {
      port: fc.constant(80),
    }),
  ],
  [12, scenario('headers', both(openPolicies, profiles({ ...NONE, headers: 9, bypass: 2 }, 1, 2, ANY_HOST)), likely)],
  [
    16,
    scenario('tls', both(openPolicies, profiles({ block: 5 }, 1, 2)), {
      scheme: fc.constant('https'),
      port: fc.constantFrom(443, 443, 8443),
      sni: SERVER_NAMES,
    }),
  ],
  [
    16,
    scenario('raw', both(openPolicies, profiles({ block: 5 }, 1, 3)), {
      scheme: fc.constant('tcp'),
      to: towards.byName,
    }),
  ],
  [
    14,
    scenario('forged host', both(openPolicies, profiles({ bypass: 0 }, 1, 2)), {
      authority: FORGED_HOSTS,
      scheme: fc.constantFrom('http', 'https'),
    }),
  ],
  [
    18,
    scenario('mcp', both(openPolicies, profiles({ ...NONE, mcp: 9, headers: 2, bypass: 1 }, 1, 2, MCP_RULES)), {
      ...MCP_CALL,
      ...likely,
    }),
  ],
  [
    34,
    scenario('credential', both(openPolicies, profiles({ ...NONE, token: 9, headers: 3 }, 1, 2, CREDENTIAL_RULES)), {
      sandbox: fc.constantFrom('uid-1', 'uid-1', 'uid-1', 'uid-2', 'uid-3'),
      scheme: fc.constantFrom('https', 'https', 'http'),
      port: fc.constantFrom(443, 443, 80),
      to: fc.oneof(
        { weight: 6, arbitrary: towards.byName },
        { weight: 1, arbitrary: towards.toAddress(pools.ADDRESSES) },
      ),
      path: fc.constantFrom('/', '/v1/items', '/admin'),
    }),
  ],
  [
    13,
    scenario('connect', both(openPolicies, profiles({ block: 1, mcp: 0 }, 0, 2)), { method: fc.constant('CONNECT') }),
  ],
];

/** Any scenario. */
export const scenarios: fc.Arbitrary<Scenario> = fc.oneof(
  ...SCENARIOS.map(([weight, arbitrary]) => ({ weight, arbitrary })),
);

/** At least `count` pairs; the same for the same seed. */
export function generatePairs(seed: number, count: number): readonly Pair[] {
  return fc.sample(scenarios, { seed, numRuns: count }).flatMap(pairsOf).slice(0, count);
}

/**
 * The seed of `SANDGATE_SEED`, for repeating a failure; otherwise a fixed one, so that the same code gives the same
 * result, or a new one in long runs, which are there to find what is not known yet.
 */
export function newSeed(): number {
  const given = process.env['SANDGATE_SEED'];
  const isLong = process.env['SANDGATE_LONG'] !== undefined;
  return given !== undefined ? Number(given) : isLong ? Math.floor(Math.random() * 0x7fffffff) : 20_261_201;
}
