/**
 * A policy and what it becomes: `cases/<case>.in.yaml` gives policies and facts and says what to `show`, `.out.yaml` is
 * that. `UPDATE_GOLDEN=1` writes the outputs anew; read the difference before you commit it.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { parse, stringify } from 'yaml';
import type { DecisionRequest } from '../../api/decision.ts';
import type { HostEntry } from '../../api/facts.ts';
import type { Compilation } from '../../policy-compiler/compilation.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import type { MatcherJson, PredicateJson } from '../../policy-compiler/matchers.ts';
import type { EnvoyJson } from '../../proto/resource.ts';
import { policy, SETTINGS, sandbox, world } from './stage/world.ts';

interface Case {
  /** Manifests without apiVersion; priority and selector as usual. */
  readonly policies: readonly {
    readonly kind: 'TrafficPolicy' | 'GlobalTrafficPolicy' | 'SecurityProfile' | 'GlobalSecurityProfile';
    readonly name: string;
    readonly spec: unknown;
  }[];
  readonly names?: readonly string[];
  readonly hosts?: Readonly<Record<string, HostEntry>>;
  readonly secretKeys?: Readonly<Record<string, readonly string[]>>;
  readonly show: readonly ('routes' | 'outbound' | 'inner' | 'dns' | 'clusters' | 'findings')[];
  readonly explain?: Readonly<Record<string, Omit<DecisionRequest, 'sandbox'>>>;
}

const FOLDER = join(import.meta.dirname, 'cases');

function rendered(input: Case): string {
  const { policies, show, explain = {}, ...facts } = input;
  const compilation = createCompiler().compile(
    world({
      sandboxes: [sandbox('s1')],
      policies: policies.map(({ kind, name, spec }) => policy(kind, name, spec)),
      ...facts,
    }),
    SETTINGS,
  );
  const shown = Object.fromEntries(show.map((what) => [what, part(compilation, what)]));
  const explained = Object.entries(explain).map(([name, request]) => [
    name,
    compilation.explain({ sandbox: 's1', ...request }),
  ]);
  const output = { ...shown, ...(explained.length === 0 ? {} : { explain: Object.fromEntries(explained) }) };
  return stringify(JSON.parse(JSON.stringify(output)), { aliasDuplicateObjects: false, lineWidth: 0 });
}

function part(compilation: Compilation, what: Case['show'][number]): unknown {
  const { egress, sidecarSets, subjects, findings } = compilation;
  const subject = subjects.get('s1')!;
  const sidecar = sidecarSets.get(subject.l4Set)!;
  const listener = (name: string) =>
    [...egress, ...sidecar].find((made) => made.type.endsWith('.Listener') && made.name === name)!
      .json as EnvoyJson['envoy.config.listener.v3.Listener'];
  switch (what) {
    case 'routes': {
      const table = egress.find(({ name }) => name === subject.table)!.json;
      return (table as EnvoyJson['envoy.config.route.v3.RouteConfiguration']).virtualHosts;
    }
    case 'outbound':
      return { steps: steps(listener('outbound').filterChainMatcher!), chains: chainNames(listener('outbound')) };
    case 'inner': {
      const inner = listener(`in-${subject.egressSet}`);
      return { steps: steps(inner.filterChainMatcher!), chains: chainNames(inner) };
    }
    case 'dns':
      return listener('dns').listenerFilters;
    case 'clusters':
      return egress.filter(({ type }) => type.endsWith('.Cluster')).map(({ name }) => name);
    case 'findings':
      return findings;
  }
}

/** A matcher as lines, in its order; a nested one is indented. */
function steps({ matcherList, onNoMatch }: MatcherJson, indent = ''): string[] {
  const lines = (matcherList?.matchers ?? []).flatMap(({ predicate, onMatch }) => {
    const condition = `${indent}${words(predicate!)}`;
    return onMatch?.matcher === undefined
      ? [`${condition} -> ${onMatch?.action?.name}`]
      : [`${condition}:`, ...steps(onMatch.matcher, `${indent}  `)];
  });
  return [...lines, `${indent}else -> ${onNoMatch?.action?.name}`];
}

function words({ singlePredicate, andMatcher, orMatcher, notMatcher }: PredicateJson): string {
  if (singlePredicate !== undefined) {
    const { input, valueMatch, customMatch } = singlePredicate;
    const { cidrRanges = [] } = (customMatch?.typedConfig ??
      {}) as EnvoyJson['envoy.extensions.matching.input_matchers.ip.v3.Ip'];
    const { exact, suffix, safeRegex } = valueMatch ?? {};
    const ranges = cidrRanges.map(({ addressPrefix, prefixLen }) => `${addressPrefix}/${prefixLen}`).join(' ');
    return `${input!.name} ${exact ?? (suffix === undefined ? (safeRegex?.regex ?? ranges) : `*${suffix}`)}`;
  }
  const list = (andMatcher ?? orMatcher)?.predicate?.map(words) ?? [];
  return notMatcher === undefined ? list.join(andMatcher === undefined ? ' or ' : ' and ') : `not ${words(notMatcher)}`;
}

function chainNames({ filterChains = [] }: EnvoyJson['envoy.config.listener.v3.Listener']): unknown {
  return filterChains.map(({ name, metadata }) => (metadata === undefined ? name : { name, metadata }));
}

const cases = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.in.yaml'))
  .map((file) => file.replace('.in.yaml', ''))
  .sort();

for (const name of cases) {
  test(name, () => {
    const input = parse(readFileSync(join(FOLDER, `${name}.in.yaml`), 'utf8')) as Case;
    const output = rendered(input);
    const file = join(FOLDER, `${name}.out.yaml`);
    if (process.env['UPDATE_GOLDEN'] === '1') {
      writeFileSync(file, output);
    }
    assert.fixture(output, readFileSync(file, 'utf8'));
  });
}

test('there are cases', () => {
  assert.ok(cases.length >= 5);
});

test.run();
