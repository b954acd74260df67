import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ManifestStore } from '../../store/manifest-store.ts';
import { codeOf, folder, kinds } from './support.ts';

const SANDBOX = 'apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata: {name: NAME}\nspec: {}\n';

test('reads manifests without writing, the same each time', async () => {
  const { path, remove } = folder();
  mkdirSync(join(path, 'x'));
  writeFileSync(join(path, 'sandgate.yaml'), 'domain: localhost\n');
  writeFileSync(join(path, 'a.yaml'), `${SANDBOX.replace('NAME', 'a')}---\nkind: Gadget\n`);
  writeFileSync(join(path, 'x/b.yml'), SANDBOX.replace('NAME', 'b'));
  writeFileSync(join(path, 'x/twin.yml'), SANDBOX.replace('NAME', 'a'));
  writeFileSync(join(path, 'x/broken.yml'), 'a: [');
  const [first, second] = [new ManifestStore(path, kinds), new ManifestStore(path, kinds)];
  const { items } = await first.list('Sandbox');
  assert.equal(
    items.map((item) => item.metadata.name),
    ['a', 'b'],
  );
  assert.is(items[0]!.metadata.creationTimestamp, '1970-01-01T00:00:00Z');
  assert.equal((await second.list('Sandbox')).items, items);
  assert.equal(
    first.problems.map((problem) => problem.file),
    ['a.yaml', 'x/broken.yml', 'x/twin.yml'],
  );
  assert.equal(readdirSync(path).sort(), ['a.yaml', 'sandgate.yaml', 'x']);
  await first.close();
  await second.close();
  remove();
});

test('a directory that is not there is refused', async () => {
  assert.is(await codeOf(async () => new ManifestStore('/nowhere', kinds)), 'unavailable');
});

test.run();
