import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { kindNamed } from '../../api/kinds.ts';
import type { KubeObject } from '../../api/object.ts';
import { canonicalJson } from '../../base/canonical.ts';
import { ManualClock } from '../../base/clock.ts';
import { silentLogger } from '../../base/logger.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { lastGoodRevision } from '../../world/last-good.ts';
import { World, type WorldView } from '../../world/world.ts';
import { BROKEN, pod, profile, sandbox, service, slice } from './objects.ts';

/** The world over a store. */
const worlds = suite('world');

let store: MemoryStore;
const open: World[] = [];
const SETTINGS = { hosts: {}, rootNamespace: 'root' };

worlds.before.each(() => {
  store = new MemoryStore({ kinds: kindNamed, clock: new ManualClock(1_800_000_000_000), uid: uidOf });
});

worlds.after.each(async () => {
  await Promise.all(open.splice(0).map((world) => world.close()));
  await store.close();
});

function uidOf({ kind, metadata }: KubeObject): string {
  return `${kind}-${metadata.name}`.toLowerCase();
}

function world(logged: string[] = []): World {
  const note = (_fields: object, message: string) => void logged.push(message);
  const made = new World({ store, settings: SETTINGS, logger: { ...silentLogger, error: note }, gatherMs: 10 });
  open.push(made);
  return made;
}

/** What a person would write, without what the store gives. */
function bare(object: KubeObject): KubeObject {
  const { uid: _uid, generation: _generation, creationTimestamp: _created, ...metadata } = object.metadata;
  const { status: _status, ...rest } = object;
  return { ...rest, metadata };
}

function next(of: World): Promise<WorldView> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('the world does not move')), 3000);
    const stop = of.onChange((view) => {
      clearTimeout(timer);
      stop();
      resolve(view);
    });
  });
}

const calm = () => new Promise((resolve) => setTimeout(resolve, 60));

worlds('is ready with everything that was there', async () => {
  await store.create(bare(sandbox('one')));
  await store.create(bare(profile('p', '/a')));
  const made = world();
  assert.throws(() => made.view, /not ready/);
  const view = await made.ready();
  assert.is(made.view, view);
  assert.is(view.sequence, 1);
  assert.equal(
    view.facts.sandboxes.map(({ name }) => name),
    ['one'],
  );
  assert.equal(
    view.policies.map(({ metadata }) => metadata.name),
    ['p'],
  );
});

worlds('changes that come together make one state, and nobody sees a half', async () => {
  const made = world();
  const first = await made.ready();
  const seen: WorldView[] = [];
  made.onChange((view) => seen.push(view));
  for (let index = 0; index < 50; index += 1) {
    await store.create(bare(profile(`p${index}`, '/a')));
  }
  await calm();
  assert.ok(seen.length <= 3, `${seen.length} states`);
  assert.is(seen.at(-1)!.facts.policies.length, 50);
  assert.equal(
    seen.map(({ sequence }) => sequence),
    seen.map((_, index) => index + 2),
  );
  assert.is(first.facts.policies.length, 0);
});

worlds('a listener that fails harms neither the world nor the other listeners', async () => {
  const logged: string[] = [];
  const made = world(logged);
  await made.ready();
  made.onChange(() => {
    throw new Error('a mistake');
  });
  const moved = next(made);
  await store.create(bare(sandbox('one')));
  assert.is((await moved).facts.sandboxes.length, 1);
  assert.equal(logged, ['a listener of the world failed']);
});

worlds('equal stores give equal facts, whatever came first and however it got there', async () => {
  const objects = [
    ...['a', 'b', 'c'].map((name) => bare(sandbox(name, { app: name }))),
    ...['x', 'y', 'z'].map((name) => bare(profile(name, `/${name}`))),
    ...['a', 'b'].map((name) => bare(pod(name, []))),
    bare(service('web', { clusterIP: '10.1.0.1' })),
    bare(slice('web-1', 'web', ['10.0.0.2'])),
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's', namespace: 'default' }, stringData: { k: 'v' } },
    {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'sandgate-virtual-addresses', namespace: 'root' },
      data: { 'b.test': '240.0.1.1', 'a.test': '240.0.1.0' },
    },
  ] as KubeObject[];
  const texts = new Set<string>();
  for (const shift of [0, 3, 7, 11]) {
    store = new MemoryStore({ kinds: kindNamed, clock: new ManualClock(1_800_000_000_000), uid: uidOf });
    const live = world();
    const early = live.ready();
    for (const object of [...objects.slice(shift), ...objects.slice(0, shift)]) {
      await store.create(object);
      await store.get(object.kind, { namespace: object.metadata.namespace ?? '', name: object.metadata.name });
    }
    await early;
    await calm();
    const late = await world().ready();
    texts.add(canonicalOrder(live.view)).add(canonicalOrder(late));
    await Promise.all(open.splice(0).map((made) => made.close()));
  }
  assert.is(texts.size, 1);
});

/** The text keeps the order of lists and of keys. */
function canonicalOrder({ facts }: WorldView): string {
  return JSON.stringify(facts);
}

worlds('a change that is no fact keeps every part of the facts', async () => {
  await store.create(bare(sandbox('one')));
  const { metadata } = await store.create(bare(profile('p', '/a')));
  const made = world();
  const before = await made.ready();
  const moved = next(made);
  await store.patchStatus(
    'SecurityProfile',
    { namespace: 'default', name: 'p' },
    {
      type: 'merge',
      body: { status: { conditions: [{ type: 'Accepted', status: 'True', observedGeneration: metadata.generation }] } },
    },
  );
  const after = await moved;
  const changed = (Object.keys(before.facts) as (keyof typeof before.facts)[]).filter(
    (part) => before.facts[part] !== after.facts[part],
  );
  assert.equal(changed, []);
  assert.is.not(after.policies, before.policies);
});

worlds('an invalid object is a record without a form; the rest goes on', async () => {
  await store.create(bare(profile('good', '/a')));
  await store.create(bare(profile('bad', BROKEN)));
  const { facts } = await world().ready();
  assert.equal(
    facts.policies.map(({ ref, inForce }) => [ref.name, inForce !== null]),
    [
      ['bad', false],
      ['good', true],
    ],
  );
});

worlds('a restarted world has the persisted form of a broken policy', async () => {
  const stored = await store.create(bare(profile('p', '/a')));
  await store.create(lastGoodRevision(stored, 'root'));
  await store.replace({ ...stored, spec: profile('p', BROKEN).spec });
  const { facts, lastGood } = await world().ready();
  assert.match(canonicalJson(facts.policies[0]!.inForce), /"\/a"/);
  assert.equal(facts.invalidSpecs, {});
  assert.equal([...lastGood.keys()], ['securityprofile-p']);
});

worlds('a secret is read at the moment of asking', async () => {
  const key = { namespace: 'default', name: 's' };
  const made = world();
  const view = await made.ready();
  assert.is(view.secret('default', 's', 'k'), null);
  await store.create({ apiVersion: 'v1', kind: 'Secret', metadata: key, stringData: { k: 'one' } });
  await calm();
  assert.is(view.secret('default', 's', 'k')?.reveal(), 'one');
  await store.patch('Secret', key, { type: 'merge', body: { stringData: { k: 'two' } } });
  await calm();
  assert.is(view.secret('default', 's', 'k')?.reveal(), 'two');
});

worlds('other settings are another state, equal ones are none', async () => {
  const made = world();
  await made.ready();
  made.replaceSettings(structuredClone(SETTINGS));
  await calm();
  assert.is(made.view.sequence, 1);
  const moved = next(made);
  made.replaceSettings({ ...SETTINGS, hosts: { 'db.test': { address: '10.0.0.1' } } });
  assert.equal(Object.keys((await moved).facts.hosts), ['db.test']);
});

worlds.run();
