import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyRecord } from '../../api/facts.ts';
import { overcutChains } from '../../control-plane/plane.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { ROUTES, SCOPE } from '../../xds/types.ts';
import { policy, SETTINGS, sandbox, world } from '../policy-compiler/stage/world.ts';
import { blockRule, ControlStage, metric, securityProfile, trafficPolicy, until } from './stage.ts';

/** From a changed object to what is published. */
const planes = suite('publication');

const allow = (cidr: string) => ({ action: 'allow', to: [{ cidr }] });
const reject = (cidr: string) => ({ action: 'reject', to: [{ cidr }] });

function overcut(before: readonly object[], after: readonly object[], sandboxes = ['s1']): number {
  const compiler = createCompiler();
  const compile = (rules: readonly object[]) => {
    const policies: PolicyRecord[] = [policy('TrafficPolicy', 'team-a/tp', { egress: { rules } })];
    return compiler.compile(world({ sandboxes: sandboxes.map((uid) => sandbox(uid)), policies }), SETTINGS);
  };
  return overcutChains(compile(before), compile(after));
}

planes('a chain that stays but is cut counts once for each sidecar that has it (D14)', () => {
  const [wide, other] = [allow('10.0.0.0/8'), allow('192.0.2.0/24')];
  assert.is(overcut([wide, other], [wide, other]), 0);
  assert.is(overcut([wide], [wide, other]), 0);
  assert.is(overcut([wide, other], [wide]), 0);
  assert.is(overcut([wide, other], [other, wide]), 0);
  // A reject that comes before takes a part of it.
  assert.is(overcut([wide, other], [reject('10.1.0.0/16'), wide, other]), 1);
  assert.is(overcut([reject('10.1.0.0/16'), wide], [wide]), 1);
  assert.is(overcut([wide], [wide, reject('10.1.0.0/16')]), 0);
  assert.is(overcut([wide], [reject('10.1.0.0/16'), wide], ['s1', 's2', 's3']), 3);
});

let stage: ControlStage;

planes.before.each(async () => {
  stage = await ControlStage.create();
});

planes.after.each(async () => {
  await stage.close();
});

const key = (name: string) => ({ namespace: 'default', name });

planes('over-cut chains are counted in the metrics', async () => {
  await stage.sandbox('one', { app: 'a' });
  await stage.store.create(trafficPolicy('tp', 'a', [allow('10.0.0.0/8')]));
  await stage.start();
  const before = await metric('sandgate_overcut_chains_total', { reason: 'shadowed' });
  const spec = { egress: { rules: [reject('10.1.0.0/16'), allow('10.0.0.0/8')] } };
  await stage.store.patch('TrafficPolicy', key('tp'), { type: 'merge', body: { spec } });
  await until('the count', 3000, async () => {
    return (await metric('sandgate_overcut_chains_total', { reason: 'shadowed' })) === before + 1;
  });
});

planes('a condition that is written publishes no new resources and compiles nothing', async () => {
  await stage.sandbox('one', { app: 'a' });
  await stage.store.create(securityProfile('p', 'a', [blockRule('api.test', '/x')]));
  await stage.start();
  const egress = await stage.egress();
  await until('scopes', 3000, () => egress.names(SCOPE).length > 0);
  await stage.settled();
  await new Promise((resolve) => setTimeout(resolve, 300)); // Until its conditions are written.
  const { compilation } = stage.plane.plane.published!;
  const count = egress.arrivals.length;
  await stage.store.patchStatus('SecurityProfile', key('p'), {
    type: 'merge',
    body: { metadata: { annotations: { note: 'x' } }, status: { observedGeneration: 1 } },
  });
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.is(stage.plane.plane.published!.compilation, compilation);
  assert.is(egress.arrivals.length, count);
});

const IS_LONG = process.env['SANDGATE_LONG'] === '1';
const [SANDBOXES, POLICIES, LIMIT_MS] = IS_LONG ? [10_000, 1000, 500] : [1500, 150, 500];

planes(
  `${POLICIES} policies, ${SANDBOXES} sandboxes: a changed policy sends its table and scopes, at once`,
  async () => {
    const apps = POLICIES / 2;
    for (let index = 0; index < SANDBOXES; index += 1) {
      await stage.sandbox(`s${index}`, { app: `a${index % apps}` });
    }
    for (let index = 0; index < apps; index += 1) {
      await stage.store.create(
        trafficPolicy(`t${index}`, `a${index}`, [{ action: 'allow', to: [{ fqdn: `n${index}.test` }] }]),
      );
      await stage.store.create(securityProfile(`p${index}`, `a${index}`, [blockRule(`n${index}.test`, '/x')]));
    }
    await stage.start();
    const egress = await stage.egress();
    await until('the first resources', 20_000, () => egress.names(SCOPE).length >= 2 * SANDBOXES);
    await stage.settled(60_000);
    const times: number[] = [];
    for (let index = 0; index < 7; index += 1) {
      const from = egress.arrivals.length;
      const at = performance.now();
      const spec = { rules: [blockRule(`n${index}.test`, `/edit-${index}`)] };
      await stage.store.patch('SecurityProfile', key(`p${index}`), { type: 'merge', body: { spec } });
      const arrived = () => egress.arrivals.slice(from).filter(({ version }) => version !== null);
      await until('the table', 10_000, () => arrived().some(({ typeUrl }) => typeUrl === ROUTES));
      times.push(arrived().find(({ typeUrl }) => typeUrl === ROUTES)!.at - at);
      await stage.settled(20_000);
      const byType = Map.groupBy(arrived(), ({ typeUrl }) => typeUrl);
      // One table, its pin, and one scope for each sandbox that the policy selects.
      assert.equal([byType.get(ROUTES)?.length, byType.get(SCOPE)?.length, byType.size], [1, 1 + SANDBOXES / apps, 2]);
    }
    const median = times.sort((a, b) => a - b)[3]!;
    assert.ok(median < LIMIT_MS, `${median} ms`);
  },
);

planes.run();
