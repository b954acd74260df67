import type { PolicyFacts } from '../api/facts.ts';
import { kindNamed } from '../api/kinds.ts';
import { silentLogger } from '../base/logger.ts';
import type { CompilerSettings } from '../policy-compiler/compilation.ts';
import { createCompiler } from '../policy-compiler/compile.ts';
import { MemoryStore } from '../store/table-store.ts';
import { allocateVirtualAddresses } from '../world/virtual-addresses.ts';
import { World } from '../world/world.ts';
import { startGateway } from './envoys.ts';
import { BenchPlane, pause } from './plane.ts';
import { type Metrics, median, metric } from './report.ts';
import { onStage, type SuiteContext } from './suite.ts';
import { firstBurst, openWire } from './wire.ts';
import { fleetWorld, load, NAMESPACE } from './worlds.ts';

const MANY = 10_000;
const SIZE = sizeText(MANY);
/** The world of the limit on one changed policy. */
const FEWER = 1000;

function sizeText(sandboxes: number): string {
  return `1,000 policies, ${sandboxes.toLocaleString('en')} sandboxes, 300 policy sets`;
}

/** What it costs to compile a large world, and to bring one changed policy of it to an Envoy. */
export async function run(context: SuiteContext): Promise<Metrics> {
  const compile = await compileTime(context);
  const fewer = await changes(FEWER, context);
  const many = await changes(MANY, context);
  return { ...compile, ...changeMetrics(fewer), 'xds.policy_change_10k_ms': lastByte(many, MANY) };
}

/** What the compiler is told beside facts; nothing of it depends on the size of the world. */
const SETTINGS: CompilerSettings = {
  trustDomain: 'sandgate.local',
  tokenIssuer: 'sandgate',
  tokenAudience: 'egress',
  tokenJwks: '{"keys":[]}',
  egressSocket: '/run/sandgate/egress.sock',
  gatewayCaFile: '/run/sandgate/ca.crt',
  resolver: { address: '127.0.0.1', port: 53, relay: '/nonexistent' },
  originCaFile: '/run/sandgate/roots.pem',
};

async function compileTime({ rounds, say }: SuiteContext): Promise<Metrics> {
  say(`compiling ${SIZE} …`);
  const facts = await factsOfFleet();
  const cold: number[] = [];
  const warm: number[] = [];
  const json: number[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    const compiler = createCompiler();
    cold.push(timed(() => compiler.compile(facts, SETTINGS)));
    const changed = withChange(facts, round);
    warm.push(timed(() => compiler.compile(changed, SETTINGS)));
    json.push(timed(() => JSON.parse(JSON.stringify(facts))));
    say(`round ${round}  cold ${cold.at(-1)!.toFixed(0)} ms  one policy changed ${warm.at(-1)!.toFixed(1)} ms`);
  }
  const against = `${SIZE}; the facts once through JSON take ${median(json).toFixed(0)} ms here`;
  return {
    'xds.compile_ms': metric(median(cold), 'ms', against),
    'xds.recompile_ms': metric(median(warm), 'ms', `compiled again after one changed policy; ${SIZE}`),
  };
}

function timed(work: () => unknown): number {
  const began = performance.now();
  work();
  return performance.now() - began;
}

async function factsOfFleet(): Promise<PolicyFacts> {
  const store = new MemoryStore({ kinds: kindNamed });
  await load(store, fleetWorld(MANY));
  const settings = { hosts: {}, rootNamespace: 'sandbox-system' };
  const world = new World({ store, settings, logger: silentLogger });
  const { facts } = await world.ready();
  await world.close();
  await store.close();
  const { listedNames } = createCompiler().compile(facts, SETTINGS);
  return { ...facts, virtualAddresses: allocateVirtualAddresses({}, listedNames) };
}

/** The facts after one of the profiles was edited. */
function withChange(facts: PolicyFacts, round: number): PolicyFacts {
  const at = facts.policies.findIndex(
    ({ ref }) => ref.kind === 'SecurityProfile' && ref.name === changedProfile(round),
  );
  const record = facts.policies[at]!;
  const text = JSON.stringify(record).replace('"no admin"', `"no admin, ${round}"`);
  const changed = { ...(JSON.parse(text) as typeof record), generation: record.generation + 1 };
  return { ...facts, policies: facts.policies.with(at, changed) };
}

/** Each round changes another group's profile. */
function changedProfile(round: number): string {
  return `limits-${round * 7}`;
}

/** By then also the removals of a change are on the wire. */
const AFTER_MS = 4000;

/** Changes one policy a round, with a real egress Envoy behind a relay that looks at the clock. */
function changes(sandboxes: number, { rounds, say }: SuiteContext): Promise<readonly Change[]> {
  return onStage(async (stage) => {
    say(`starting a control plane with ${sizeText(sandboxes)}, and an egress Envoy …`);
    const plane = await BenchPlane.start({ world: fleetWorld(sandboxes), settings: '', roles: ['control-plane'] });
    stage.defer(() => plane.close());
    const wire = await openWire(plane.layout.socket('wire'), plane.layout.socket('xds'));
    stage.defer(() => wire.close());
    stage.keep(await startGateway(plane, 'egress', null, wire.path));
    await plane.settled(1);
    say('everything is acknowledged');
    const samples: Change[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      wire.take();
      const before = await counts(plane);
      const began = performance.now();
      await plane.store.patch('SecurityProfile', { namespace: NAMESPACE, name: changedProfile(round) }, edit(round));
      await pause(AFTER_MS);
      const arrivals = wire.take();
      const burst = firstBurst(arrivals);
      if (burst.length === 0) {
        throw new Error('a changed policy brought nothing to the Envoy');
      }
      const after = await counts(plane);
      const sample: Change = {
        firstMs: burst[0]!.at - began,
        lastMs: burst.at(-1)!.at - began,
        bytes: arrivals.reduce((sum, { bytes }) => sum + bytes, 0),
        sent: after.sent - before.sent,
        removed: after.removed - before.removed,
      };
      samples.push(sample);
      await plane.settled(1);
      say(
        `round ${round}  first bytes ${sample.firstMs.toFixed(1)} ms  last ${sample.lastMs.toFixed(1)} ms  ${sample.bytes} bytes  ${sample.sent} sent, ${sample.removed} removed`,
      );
    }
    return samples;
  });
}

interface Change {
  readonly firstMs: number;
  readonly lastMs: number;
  readonly bytes: number;
  readonly sent: number;
  readonly removed: number;
}

function lastByte(samples: readonly Change[], sandboxes: number) {
  const against = `from the store's change to the last byte of all that it changes; ${sizeText(sandboxes)}`;
  return metric(median(samples.map(({ lastMs }) => lastMs)), 'ms', against);
}

function changeMetrics(samples: readonly Change[]): Metrics {
  const middle = (pick: (change: Change) => number) => median(samples.map(pick));
  const removed = middle((change) => change.removed);
  return {
    'xds.policy_change_ms': lastByte(samples, FEWER),
    'xds.policy_change_first_ms': metric(
      middle(({ firstMs }) => firstMs),
      'ms',
      "from the store's change to its first byte",
    ),
    'xds.policy_change_resources': metric(
      middle(({ sent }) => sent),
      'resources',
      `sent for one changed policy; ${removed} removed`,
    ),
    'xds.policy_change_bytes': metric(
      middle(({ bytes }) => bytes),
      'bytes',
      'everything that one changed policy brings, TLS and HTTP/2 included',
    ),
  };
}

async function counts(plane: BenchPlane): Promise<{ readonly sent: number; readonly removed: number }> {
  const count = (kind: string) => plane.counter('sandgate_xds_resources_total', `kind="${kind}"`);
  return { sent: await count('sent'), removed: await count('removed') };
}

function edit(round: number): { readonly type: 'json'; readonly body: readonly object[] } {
  const path = '/spec/rules/0/actions/block/body';
  return { type: 'json', body: [{ op: 'replace', path, value: `no admin, ${round}` }] };
}
