import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { silentLogger } from '../../base/logger.ts';
import { TreeWatcher, type TreeWatcherOptions } from '../../store/tree-watcher.ts';
import { folder, sleep, until } from './support.ts';

function watching(root: string, more: Partial<TreeWatcherOptions> = {}): { watcher: TreeWatcher; told: string[] } {
  const told: string[] = [];
  const watcher = new TreeWatcher({
    root,
    logger: silentLogger,
    skip: new Set(['sandgate.yaml']),
    onFile: (path) => told.push(path),
    onOdd: () => {},
    ...more,
  });
  return { watcher, told };
}

test('a burst of events is told once, other files and folders never', async () => {
  const { path, remove } = folder();
  writeFileSync(join(path, 'a.yaml'), '1');
  const { watcher, told } = watching(path);
  assert.equal(watcher.start(), ['a.yaml']);
  for (let n = 0; n < 5; n += 1) {
    writeFileSync(join(path, 'a.yaml'), String(n));
  }
  for (const name of ['sandgate.yaml', 'b.txt', '.c.yaml']) {
    writeFileSync(join(path, name), 'x');
  }
  mkdirSync(join(path, '.git'));
  writeFileSync(join(path, '.git/d.yaml'), 'x');
  await until(() => told.length > 0);
  await sleep(80);
  assert.equal(told, ['a.yaml']);
  watcher.close();
  remove();
});

test('folders that are moved take their manifests along', async () => {
  const { path, remove } = folder();
  mkdirSync(join(path, 'one'));
  writeFileSync(join(path, 'one/a.yaml'), 'x');
  const { watcher, told } = watching(path);
  assert.equal(watcher.start(), ['one/a.yaml']);
  renameSync(join(path, 'one'), join(path, 'two'));
  await until(() => told.includes('one/a.yaml') && told.includes('two/a.yaml'));
  told.length = 0;
  writeFileSync(join(path, 'two/a.yaml'), 'y');
  await until(() => told.includes('two/a.yaml'));
  assert.equal(told, ['two/a.yaml']);
  watcher.close();
  remove();
});

test('where the kernel gives no watches, changes are found by looking', async () => {
  const { path, remove } = folder();
  mkdirSync(join(path, 'x'));
  writeFileSync(join(path, 'x/a.yaml'), '1');
  const refuse = (): never => {
    throw Object.assign(new Error('no watches left'), { code: 'ENOSPC' });
  };
  const { watcher, told } = watching(path, { watchFolder: refuse });
  assert.equal(watcher.start(), ['x/a.yaml']);
  for (const [change, want] of [
    [() => writeFileSync(join(path, 'x/a.yaml'), '22'), 'x/a.yaml'],
    [() => mkdirSync(join(path, 'y')), ''],
    [() => writeFileSync(join(path, 'y/b.yaml'), '1'), 'y/b.yaml'],
    [() => rmSync(join(path, 'x'), { recursive: true }), 'x/a.yaml'],
  ] as const) {
    told.length = 0;
    change();
    await until(() => want === '' || told.includes(want), 3000, want);
  }
  await sleep(1100);
  assert.equal(told, ['x/a.yaml']);
  watcher.close();
  remove();
});

test.run();
