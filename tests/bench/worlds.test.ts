import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { kindNamed } from '../../api/kinds.ts';
import { silentLogger } from '../../base/logger.ts';
import { type BenchWorld, egressWorld, fleetWorld, ingressWorld, load } from '../../bench/worlds.ts';
import { ingressCompiler } from '../../control-plane/ingress-world.ts';
import type { Compilation } from '../../policy-compiler/compilation.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { allocateVirtualAddresses } from '../../world/virtual-addresses.ts';
import { World, type WorldView } from '../../world/world.ts';
import { SETTINGS } from '../policy-compiler/stage/world.ts';

/** The worlds that are measured with are as large as the figures claim, and nothing in them is refused. */
const worlds = suite('worlds of the benchmarks');

async function viewOf(world: BenchWorld): Promise<WorldView> {
  const store = new MemoryStore({ kinds: kindNamed });
  await load(store, world);
  const settings = { hosts: {}, rootNamespace: 'sandbox-system' };
  const made = new World({ store, settings, logger: silentLogger });
  const view = await made.ready();
  await made.close();
  await store.close();
  return view;
}

async function compilationOf(world: BenchWorld): Promise<Compilation> {
  const { facts } = await viewOf(world);
  const errors = facts.policies.flatMap((record) => record.errors);
  assert.equal(errors, []);
  const compiler = createCompiler();
  const { listedNames } = compiler.compile(facts, SETTINGS);
  return compiler.compile({ ...facts, virtualAddresses: allocateVirtualAddresses({}, listedNames) }, SETTINGS);
}

const isTable = (name: string) => name.startsWith('pset-');

worlds('egress: 100 profiles, and more than 1,000 routes in every table', async () => {
  const world = egressWorld(40);
  assert.is(world.policies.filter(({ kind }) => kind === 'SecurityProfile').length, 100);
  const { egress, findings } = await compilationOf(world);
  const tables = egress.filter(({ name }) => isTable(name)).map(({ json }) => json as unknown as TableJson);
  assert.is(tables.length, 10);
  for (const { virtualHosts } of tables) {
    const routes = virtualHosts.reduce((sum, host) => sum + host.routes.length, 0);
    assert.ok(routes >= 1000, `${routes} routes`);
  }
  assert.equal(
    findings.filter(({ reason }) => reason === 'SecretNotFound'),
    [],
  );
});

interface TableJson {
  readonly virtualHosts: readonly { readonly routes: readonly unknown[] }[];
}

worlds('fleet: 1,000 policies make 300 policy sets, and every rule is in force', async () => {
  const world = fleetWorld(600);
  assert.is(world.policies.filter(({ kind }) => kind !== 'Secret').length, 1000);
  const { subjects, findings } = await compilationOf(world);
  assert.is(subjects.size, 600);
  assert.is(new Set([...subjects.values()].map(({ policySet }) => policySet)).size, 300);
  assert.equal(
    findings.filter(({ status }) => status === 'False'),
    [],
  );
});

worlds('ingress: every sandbox has a native scope', async () => {
  const view = await viewOf(ingressWorld(50));
  const compile = ingressCompiler({ domain: 'bench.test', ingressSocket: '/run/ingress.sock', publicPort: 8000 });
  const scopes = compile(view).filter(({ name }) => name.endsWith('.bench.test:8000'));
  assert.is(scopes.length, 50);
});

worlds.run();
