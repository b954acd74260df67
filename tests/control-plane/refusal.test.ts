import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { ROUTES } from '../../xds/types.ts';
import type { AdsClient } from './client.ts';
import { blockRule, ControlStage, condition, securityProfile, until } from './stage.ts';

/** An Envoy that refuses what an object was compiled to: that object gives way, and nothing else (D2). */
const refusals = suite('refused policies');
let stage: ControlStage;
let egress: AdsClient;

/** The path by which a table that is refused is known. */
const POISON = '/poison';

refusals.before.each(async () => {
  stage = await ControlStage.create();
  await stage.sandbox('one', { app: 'a' });
  await stage.sandbox('two', { app: 'b' });
  await stage.store.create(securityProfile('old', 'a', [blockRule('api.test', '/old')]));
  await stage.store.create(securityProfile('mine', 'a', [blockRule('api.test', '/mine')]));
  await stage.store.create(securityProfile('other', 'b', [blockRule('api.test', '/other')]));
  await stage.start();
  egress = await connect();
  await programmed('old', 'mine', 'other');
});

refusals.after.each(async () => {
  await stage.close();
});

/** A gateway that refuses every table that holds the poison. */
function connect(): Promise<AdsClient> {
  return stage.egress({
    refuse: (typeUrl, bytes) => (typeUrl === ROUTES && bytes.includes(POISON) ? 'no such thing' : undefined),
  });
}

const stored = (name: string) => stage.store.get('SecurityProfile', { namespace: 'default', name });

async function programmed(...names: readonly string[]): Promise<void> {
  await until(`${names.join(', ')} to be in force`, 5000, async () => {
    const all = await Promise.all(names.map(stored));
    return all.every((object) => condition(object, 'Programmed')?.status === 'True' && isCurrent(object));
  });
}

function isCurrent(object: KubeObject): boolean {
  return condition(object, 'Programmed')?.observedGeneration === object.metadata.generation;
}

async function edit(name: string, path: string): Promise<void> {
  const body = { spec: { rules: [blockRule('api.test', path)] } };
  await stage.store.patch('SecurityProfile', { namespace: 'default', name }, { type: 'merge', body });
}

const reasonOf = async (name: string) => condition(await stored(name), 'Programmed')?.reason;

function pathsOf(uid: string): string[] {
  const { compilation } = stage.plane.plane.published!;
  return compilation
    .policySetOf(uid)!
    .rules.map((rule) => JSON.stringify(rule))
    .map((text) => /\/(?:old|mine|other|poison|cured|fresh)/.exec(text)?.[0] ?? text);
}

/** Waits until exactly these paths decide for a sandbox. */
async function decidedBy(name: string, paths: readonly string[]): Promise<void> {
  const uid = await uidOf(name);
  const found = () => pathsOf(uid).sort().join(' ');
  await until(`${paths.join(' ')} instead of ${found()}`, 5000, () => found() === paths.join(' '));
}

async function uidOf(name: string): Promise<string> {
  return (await stage.store.get('Sandbox', { namespace: 'default', name })).metadata.uid!;
}

refusals('the newest change is blamed, and its last good form stays in force', async () => {
  await edit('mine', POISON);
  await until('the refusal', 5000, async () => (await reasonOf('mine')) === 'EnvoyRejected');
  const { message } = condition(await stored('mine'), 'Programmed')!;
  assert.match(message, /pset-[0-9a-f]+: no such thing/);
  await decidedBy('one', ['/mine', '/old']);
  assert.equal(await Promise.all(['old', 'other'].map(reasonOf)), ['Programmed', 'Programmed']);
  assert.is(condition(await stored('mine'), 'Accepted')!.status, 'True');
  await stage.settled();
  const { table } = stage.plane.plane.published!.compilation.subjects.get(await uidOf('one'))!;
  assert.ok(egress.names(ROUTES).includes(table)); // The gateway holds what is published.
});

refusals('its next generation is tried as if nothing had been', async () => {
  await edit('mine', POISON);
  await until('the refusal', 5000, async () => (await reasonOf('mine')) === 'EnvoyRejected');
  await edit('mine', '/cured');
  await programmed('mine');
  await decidedBy('one', ['/cured', '/old']);
});

refusals('other edits meanwhile take effect', async () => {
  await edit('mine', POISON);
  await until('the refusal', 5000, async () => (await reasonOf('mine')) === 'EnvoyRejected');
  await edit('old', '/fresh');
  await programmed('old');
  await decidedBy('one', ['/fresh', '/mine']);
  assert.is(await reasonOf('mine'), 'EnvoyRejected');
});

refusals('a refusal outlives the control plane', async () => {
  await edit('mine', POISON);
  await until('the refusal', 5000, async () => (await reasonOf('mine')) === 'EnvoyRejected');
  await stage.stop();
  await stage.start();
  egress = await connect();
  await programmed('old', 'other');
  assert.is(await reasonOf('mine'), 'EnvoyRejected');
  await decidedBy('one', ['/mine', '/old']);
});

refusals('after a restart, what every Envoy had taken before is not blamed for a newer object', async () => {
  await stage.stop();
  await edit('mine', POISON);
  await stage.start();
  egress = await connect();
  await until('the refusal', 5000, async () => (await reasonOf('mine')) === 'EnvoyRejected');
  await programmed('old', 'other');
  await decidedBy('one', ['/mine', '/old']);
});

refusals('a new object without an earlier form denies what it selects, and nobody else', async () => {
  await stage.store.create(securityProfile('new', 'a', [blockRule('api.test', POISON)]));
  await until('the refusal', 5000, async () => (await reasonOf('new')) === 'EnvoyRejected');
  const [one, two] = [await uidOf('one'), await uidOf('two')];
  const invalid = (uid: string) => stage.plane.plane.published!.compilation.subjects.get(uid)!.invalid;
  await until('the denial', 5000, () => invalid(one) !== null);
  assert.is(invalid(one)!.name, 'new');
  assert.is(invalid(two), null);
  await stage.store.delete('SecurityProfile', { namespace: 'default', name: 'new' });
  await until('its end', 5000, () => invalid(one) === null);
  await decidedBy('one', ['/mine', '/old']);
});

refusals.run();
