import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { silentLogger } from '../../base/logger.ts';
import { openDirectoryStore } from '../../store/directory.ts';
import { hashOf } from '../../store/file-swap.ts';
import { Journal } from '../../store/journal.ts';
import { codeOf, folder, key, kinds, object, until } from './support.ts';

interface Sample {
  readonly n: number;
  readonly pad?: string;
}

function opened(directory: string, state: Sample[] = [], compactBytes?: number) {
  const snapshot = () => ({ version: state.at(-1)?.n ?? 0, records: [...state] });
  const limit = compactBytes === undefined ? {} : { compactBytes };
  return Journal.open({ directory, logger: silentLogger, snapshot, ...limit });
}

const logOf = (path: string): string => join(path, readdirSync(path).filter((name) => name.endsWith('.log'))[0]!);

test('an unfinished record at the end is cut off, wherever it ends', async () => {
  const { path, remove } = folder();
  const { journal } = opened(path);
  journal.append({ n: 1 });
  journal.append({ n: 2, pad: 'ä\n"' });
  await journal.close();
  const whole = readFileSync(logOf(path));
  const first = whole.length - (whole.length - whole.indexOf(10, whole.indexOf(10) + 1) - 1);
  for (let length = first; length < whole.length; length += 1) {
    truncateSync(logOf(path), first);
    writeFileSync(logOf(path), whole.subarray(0, length));
    const again = opened(path);
    assert.equal(again.replay.records, [{ n: 1 }], `cut at ${length}`);
    again.journal.append({ n: 3 });
    await again.journal.close();
    const last = opened(path);
    assert.equal(last.replay.records, [{ n: 1 }, { n: 3 }]);
    await last.journal.close();
  }
  remove();
});

test('damage before intact records is an error that names the file', async () => {
  const { path, remove } = folder();
  const { journal } = opened(path);
  for (let n = 1; n < 4; n += 1) {
    journal.append({ n });
  }
  await journal.close();
  const bytes = readFileSync(logOf(path));
  const at = bytes.indexOf('"n":2');
  bytes[at + 4] = '7'.charCodeAt(0);
  writeFileSync(logOf(path), bytes);
  const open = async () => opened(path);
  assert.is(await codeOf(open), 'corrupt');
  remove();
});

test('a compaction keeps what is appended meanwhile, and its leftovers are cleared away', async () => {
  const { path, remove } = folder();
  const state: Sample[] = [];
  const { journal } = opened(path, state, 5000);
  const store = journal.store;
  // A busy machine may be slow to compact: a few more records then, and never without end.
  for (let n = 1; n <= 400 || (n <= 2000 && statSync(logOf(path)).size >= 20_000); n += 1) {
    const record = { n, pad: 'x'.repeat(50) };
    journal.append(record);
    state.push(record);
    if (state.length > 10) {
      state.shift();
    }
    if (n % 7 === 0) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
  await journal.close();
  assert.ok(statSync(logOf(path)).size < 20_000, 'it was compacted');
  writeFileSync(join(path, 'objects.99.tmp'), 'half');
  appendFileSync(join(path, 'objects.0.log'), 'old');
  const again = opened(path);
  const all = [...again.replay.snapshot, ...again.replay.records] as Sample[];
  assert.equal(
    all.slice(-10).map((record) => record.n),
    state.map((record) => record.n),
  );
  assert.is(again.replay.store, store);
  assert.equal(readdirSync(path).length, 1);
  await again.journal.close();
  remove();
});

interface Interrupted {
  readonly path: string;
  readonly made: KubeObject;
  readonly before: string;
  readonly after: string;
}

/** A directory whose process was killed between the commit of a patch and the rename of its manifest. */
async function interrupted(body: (place: Interrupted) => Promise<void>): Promise<void> {
  const { path, remove } = folder();
  const store = await openDirectoryStore(path, { kinds });
  const made = await store.create(object('Sandbox', 'a', { spec: { n: 1 } }));
  await store.close();
  const file = 'objects/sandbox/default/a.yaml';
  const before = readFileSync(join(path, file), 'utf8');
  const after = before.replace('n: 1', 'n: 2');
  const { journal } = Journal.open({
    directory: join(path, '.sandgate/state/objects'),
    logger: silentLogger,
    snapshot: () => ({ version: 0, records: [] }),
  });
  const metadata = { ...made.metadata, resourceVersion: '2', generation: 2, finalizers: ['x/y'] };
  const temporary = 'objects/sandbox/default/.sandgate-a.yaml.00.tmp';
  writeFileSync(join(path, temporary), after);
  journal.append({
    c: [{ o: { ...made, metadata, spec: { n: 2 } }, m: 1 }],
    f: { path: file, hash: hashOf(after), keys: ['Sandbox/default/a'], clean: true },
    w: { path: file, temporary, before: hashOf(before) },
  });
  await journal.close();
  try {
    await body({ path, made, before, after });
  } finally {
    remove();
  }
}

test('a committed change of a manifest is finished by the next process', async () => {
  await interrupted(async ({ path, made, after }) => {
    const store = await openDirectoryStore(path, { kinds });
    const { metadata, spec } = await store.get('Sandbox', key('a'));
    assert.equal(
      [spec, metadata.generation, metadata.finalizers, metadata.uid],
      [{ n: 2 }, 2, ['x/y'], made.metadata.uid],
    );
    assert.is(readFileSync(join(path, 'objects/sandbox/default/a.yaml'), 'utf8'), after);
    assert.equal(readdirSync(join(path, 'objects/sandbox/default')), ['a.yaml']);
    await store.close();
  });
});

test('unless a person saved it meanwhile: the save wins', async () => {
  await interrupted(async ({ path, before }) => {
    const file = join(path, 'objects/sandbox/default/a.yaml');
    writeFileSync(file, before.replace('n: 1', 'n: 9'));
    const store = await openDirectoryStore(path, { kinds });
    const { metadata, spec } = await store.get('Sandbox', key('a'));
    assert.equal([spec, metadata.generation, metadata.finalizers], [{ n: 9 }, 3, ['x/y']]);
    assert.equal(readdirSync(join(path, 'objects/sandbox/default')), ['a.yaml']);
    await store.close();
  });
});

test('an uncommitted temporary file is cleared away', async () => {
  const { path, remove } = folder();
  mkdirSync(join(path, 'x'));
  const leftover = join(path, 'x/.sandgate-a.yaml.00.tmp');
  writeFileSync(leftover, 'half');
  const store = await openDirectoryStore(path, { kinds });
  assert.not.ok(existsSync(leftover));
  await store.close();
  remove();
});

test('a disk that takes no more refuses the change and keeps the store whole', async () => {
  const { path, remove } = folder();
  const store = await openDirectoryStore(path, { kinds });
  await store.create(object('Pod', 'a', { spec: {} }));
  const { rlimit } = await import('./file-limit.ts');
  const lift = rlimit(statSync(logOf(join(path, '.sandgate/state/objects'))).size + 100);
  const large = { type: 'merge', body: { status: { text: 'x'.repeat(1000) } } } as const;
  assert.is(await codeOf(store.patchStatus('Pod', key('a'), large)), 'unavailable');
  assert.is((await store.get('Pod', key('a'))).status, undefined);
  lift();
  await store.patchStatus('Pod', key('a'), large);
  const kept = await store.get('Pod', key('a'));
  await store.close();
  const again = await openDirectoryStore(path, { kinds });
  await until(async () => (await again.list('Pod')).items.length === 1);
  assert.equal(await again.get('Pod', key('a')), kept);
  await again.close();
  remove();
});

test.run();
