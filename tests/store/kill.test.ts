import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { isCoded } from '../../base/errors.ts';
import { type DirectoryStore, openDirectoryStore } from '../../store/directory.ts';
import { carrying, type Step } from './kill-writer.ts';
import { folder, key, kinds, within } from './support.ts';

const WRITER = fileURLToPath(new URL('./kill-writer.ts', import.meta.url));
const ROUNDS = 30;

/** Runs the writer and kills it at a random moment after its first word; gives what it said. */
async function killed(directory: string, delay: number): Promise<Step[]> {
  const child = spawn(process.execPath, [WRITER, 'write', directory], { stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  let errors = '';
  const begun = Promise.withResolvers<void>();
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    begun.resolve();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const ended = new Promise<NodeJS.Signals | null>((resolve) => child.on('close', (_code, signal) => resolve(signal)));
  await within(Promise.race([begun.promise, ended]), 15_000, `the writer (${errors})`);
  await new Promise((resolve) => setTimeout(resolve, delay));
  child.kill('SIGKILL');
  assert.is(await within(ended, 5000, 'the kill'), 'SIGKILL', errors);
  return text.split('\n').flatMap((line) => (line.endsWith('}') ? [JSON.parse(line) as Step] : []));
}

/** What each object must be: one value, or also that of the step that was under way. */
function expected(model: Map<string, Set<number>>, steps: readonly Step[]): number {
  let version = 0;
  for (const step of steps) {
    const values = step.done ? new Set([step.want]) : new Set([...(model.get(step.id) ?? [0]), step.want]);
    model.set(step.id, values);
    version = Math.max(version, Number(step.version ?? 0));
  }
  return version;
}

async function check(store: DirectoryStore, model: Map<string, Set<number>>): Promise<void> {
  const found = [...(await store.list('Sandbox')).items, ...(await store.list('Pod')).items];
  const objects = new Map(found.map((object) => [object.metadata.name, object]));
  for (const [id, values] of model) {
    const stored = objects.get(id);
    const value = Number((stored?.spec as { n: number } | undefined)?.n ?? 0);
    assert.ok(values.has(value), `${id} is ${value}, not one of ${[...values].join()}`);
    if (stored !== undefined) {
      requireWhole(stored, id, value);
    }
    model.set(id, new Set([value]));
  }
  assert.is(found.filter((object) => !model.has(object.metadata.name)).length, 0);
}

function requireWhole(stored: KubeObject, id: string, value: number): void {
  const want = carrying(id, value);
  assert.equal(stored.spec, want.spec);
  assert.equal(stored.metadata.annotations, want.metadata.annotations);
  // A removal takes the finalizers off first: then there are none.
  if (stored.metadata.finalizers !== undefined) {
    assert.equal(stored.metadata.finalizers, want.metadata.finalizers, id);
  }
}

/** Goes on from an old version: it must lead to what is there, or be refused. */
async function follow(
  store: DirectoryStore,
  before: { version: string; objects: Map<string, string> },
): Promise<boolean> {
  const abort = new AbortController();
  const objects = new Map(before.objects);
  const { items, resourceVersion } = await store.list('Sandbox');
  let last = Number(before.version);
  const newest = Math.max(0, ...items.map((item) => Number(item.metadata.resourceVersion)));
  try {
    const quiet = setTimeout(() => abort.abort(), 100);
    for await (const event of store.watch('Sandbox', { resourceVersion: before.version, signal: abort.signal })) {
      if (event.type !== 'bookmark') {
        const version = Number(event.object.metadata.resourceVersion);
        assert.ok(version > last && version <= Number(resourceVersion), `version ${version} after ${last}`);
        last = version;
        if (event.type === 'deleted') {
          assert.ok(objects.delete(event.object.metadata.name), `${event.object.metadata.name} was there`);
        } else {
          assert.is(objects.has(event.object.metadata.name), event.type === 'modified');
          objects.set(event.object.metadata.name, event.object.metadata.resourceVersion!);
        }
      }
    }
    clearTimeout(quiet);
  } catch (error) {
    if (isCoded(error, 'expired')) {
      return false;
    }
    throw error;
  }
  assert.ok(last >= newest);
  assert.equal(objects, versionsOf(items));
  return true;
}

function versionsOf(items: readonly KubeObject[]): Map<string, string> {
  return new Map([...items].map((item) => [item.metadata.name, item.metadata.resourceVersion!]));
}

test('a kill at any moment loses nothing acknowledged and leaves nothing half done', async () => {
  const { path, remove } = folder();
  const model = new Map<string, Set<number>>();
  let before = { version: '0', objects: new Map<string, string>() };
  let steps = 0;
  let continued = 0;
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      const said = await killed(path, Math.random() * 120);
      steps += said.length;
      const acknowledged = expected(model, said);
      const store = await openDirectoryStore(path, { kinds, compactBytes: 20_000 });
      try {
        const { resourceVersion } = await store.list('Sandbox');
        assert.ok(Number(resourceVersion) >= Math.max(acknowledged, Number(before.version)), 'versions go on');
        assert.equal(store.problems(), []);
        await check(store, model);
        continued += (await follow(store, before)) ? 1 : 0;
        const { items, resourceVersion: version } = await store.list('Sandbox');
        before = { version, objects: versionsOf(items) };
        await store.close();
        requireTidy(path, items);
      } finally {
        await store.close();
      }
    }
    assert.ok(steps > ROUNDS * 10, `only ${steps} steps`);
    assert.ok(continued > 0 && continued < ROUNDS, `${continued} watches went on: both ways must occur`);
    console.log(`${steps} steps in ${ROUNDS} rounds; ${continued} watches went on, the others had expired`);
  } finally {
    remove();
  }
});

/** Every Sandbox has its manifest, every manifest its Sandbox, and nothing temporary is left. */
function requireTidy(path: string, items: readonly KubeObject[]): void {
  // Killed before its first change, a writer has not made the folder yet.
  const folderOf = join(path, 'objects/sandbox/default');
  const manifests = existsSync(folderOf) ? readdirSync(folderOf).sort() : [];
  assert.equal(manifests, items.map((item) => `${item.metadata.name}.yaml`).sort());
  assert.equal(readdirSync(join(path, '.sandgate/state/objects')).length, 1);
}

test('a lock of a killed process is free at once', async () => {
  const { path, remove } = folder();
  await killed(path, 20);
  const store = await openDirectoryStore(path, { kinds });
  await store.create(carrying('pod-x', 1));
  assert.is((await store.get('Pod', key('pod-x'))).metadata.name, 'pod-x');
  await store.close();
  remove();
});

test.run();
