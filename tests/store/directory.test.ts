import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ManualClock } from '../../base/clock.ts';
import { type DirectoryStore, openDirectoryStore } from '../../store/directory.ts';
import { codeOf, folder, key, kinds, object, sleep, until, Watching, within } from './support.ts';

interface Place {
  readonly path: string;
  store: DirectoryStore;
  write(file: string, text: string): void;
  read(file: string): string;
  reopen(): Promise<void>;
  names(kind?: string): Promise<string[]>;
}

function place(title: string, body: (place: Place) => Promise<void>, before: (path: string) => void = () => {}): void {
  test(title, async () => {
    const { path, remove } = folder();
    before(path);
    const open = () => openDirectoryStore(path, { kinds, clock: new ManualClock(1_700_000_000_000) });
    const it: Place = {
      path,
      store: await open(),
      write: (file, text) => writeFileSync(join(path, file), text),
      read: (file) => readFileSync(join(path, file), 'utf8'),
      reopen: async () => {
        await it.store.close();
        it.store = await open();
      },
      names: async (kind = 'Sandbox') => (await it.store.list(kind)).items.map((item) => item.metadata.name),
    };
    try {
      await within(body(it), 20_000, title);
    } finally {
      await it.store.close();
      remove();
    }
  });
}

const sandbox = (name: string, spec = 'paused: false', rest = ''): string =>
  `apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata:\n  name: ${name}\n${rest}spec:\n  ${spec}\n`;

const COMMENTED = `# Our sandboxes.
apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox   # one of many
metadata:
  name: a
  labels: {app: demo}   # inline
spec:
  paused: false     # awake
  template:
    spec:
      containers:
      - name: main   # the only one
        command: ["sh",  "-c", 'sleep 1']

      # a helper
      - name: helper
---
# The second.
apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata:
    name: b
spec: {}
`;

place('every way in which editors save is seen within 200 ms', async ({ path, store, write }) => {
  const watching = new Watching(store, 'Sandbox');
  await watching.initial();
  const timed = async (want: string, save: () => void): Promise<void> => {
    const begun = performance.now();
    save();
    assert.is(await watching.text(1000), want);
    const took = performance.now() - begun;
    assert.ok(took < 200, `${want} took ${took.toFixed(0)} ms`);
  };
  await timed('added a', () => write('a.yaml', sandbox('a')));
  await timed('modified a', () => write('a.yaml', sandbox('a', 'paused: true')));
  await timed('modified a', () => {
    writeFileSync(join(path, '.a.yaml.swp'), sandbox('a', 'n: 1'));
    renameSync(join(path, '.a.yaml.swp'), join(path, 'a.yaml'));
  });
  await timed('modified a', () => {
    renameSync(join(path, 'a.yaml'), join(path, 'a.yaml~'));
    write('a.yaml', sandbox('a', 'n: 2'));
  });
  await timed('added deep', () => {
    mkdirSync(join(path, 'x/y'), { recursive: true });
    write('x/y/deep.yml', sandbox('deep'));
  });
  await timed('modified deep', () => write('x/y/deep.yml', sandbox('deep', 'n: 3')));
  await timed('deleted deep', () => rmSync(join(path, 'x'), { recursive: true }));
  assert.is((await store.get('Sandbox', key('a'))).metadata.generation, 4);
  await watching.end();
});

place('a save in steps never shows a half file', async ({ path, store, write, reopen }) => {
  write('a.yaml', `${sandbox('a')}---\n${sandbox('b')}`);
  await until(async () => (await store.list('Sandbox')).items.length === 2);
  const { uid } = (await store.get('Sandbox', key('a'))).metadata;
  const watching = new Watching(store, 'Sandbox');
  await watching.initial();
  write('a.yaml', '');
  await sleep(120);
  write('a.yaml', `${sandbox('a', 'n: [1')}`);
  await sleep(40);
  write('a.yaml', `${sandbox('a', 'n: [1]')}---\n${sandbox('b')}`);
  assert.is(await watching.text(), 'modified a');
  await sleep(250);
  assert.equal(store.problems(), []);
  renameSync(join(path, 'a.yaml'), join(path, 'moved.yaml'));
  await sleep(250);
  assert.is((await store.get('Sandbox', key('a'))).metadata.uid, uid);
  await watching.end();
  await reopen();
});

place('a patch while a save is half done is refused and does no harm', async ({ store, write, read }) => {
  write('a.yaml', sandbox('a', 'n: 1'));
  await until(async () => (await store.list('Sandbox')).items.length === 1);
  const { uid } = (await store.get('Sandbox', key('a'))).metadata;
  write('a.yaml', '');
  const patch = { type: 'merge', body: { spec: { m: 1 } } } as const;
  assert.is(await codeOf(store.patch('Sandbox', key('a'), patch)), 'unavailable');
  write('a.yaml', sandbox('a', 'n: 2'));
  await sleep(200);
  await store.patch('Sandbox', key('a'), patch);
  assert.is((await store.get('Sandbox', key('a'))).metadata.uid, uid);
  assert.match(read('a.yaml'), /n: 2\n {2}m: 1/);
});

place('a file that stays empty, or becomes one, deletes its objects', async ({ store, write }) => {
  write('a.yaml', sandbox('a'));
  write('b.yaml', sandbox('b'));
  await until(async () => (await store.list('Sandbox')).items.length === 2);
  write('a.yaml', '');
  write('b.yaml', '# nothing left\n');
  await until(async () => (await store.list('Sandbox')).items.length === 0, 2000, 'both gone');
  assert.equal(store.problems(), []);
});

place('a syntax error changes nothing, is reported, and does not survive its mending', async (it) => {
  it.write('a.yaml', sandbox('a', 'n: 1'));
  await until(async () => (await it.names()).length === 1);
  const told: string[] = [];
  it.store.onProblems((problems) => told.push(problems.map((problem) => problem.message).join()));
  it.write('a.yaml', `${sandbox('a', 'n: "secret-value')}\n  x: [`);
  await until(() => it.store.problems().length === 1);
  assert.match(it.store.problems()[0]!.message, /^not valid YAML at line \d+, column \d+ \([A-Z_]+\)/);
  assert.not.match(JSON.stringify(it.store.problems()), /secret-value/);
  assert.equal((await it.store.get('Sandbox', key('a'))).spec, { n: 1 });
  assert.is(
    await codeOf(it.store.patch('Sandbox', key('a'), { type: 'merge', body: { spec: { n: 2 } } })),
    'unavailable',
  );
  await it.store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { phase: 'Running' } } });
  await it.reopen();
  const kept = await it.store.get('Sandbox', key('a'));
  assert.equal([kept.spec, kept.status, kept.metadata.generation], [{ n: 1 }, { phase: 'Running' }, 1]);
  assert.is(it.store.problems().length, 1);
  it.write('a.yaml', sandbox('a', 'n: 5'));
  await until(() => it.store.problems().length === 0);
  assert.equal((await it.store.get('Sandbox', key('a'))).spec, { n: 5 });
  assert.ok(told.length >= 1);
});

place('an object whose document is spoilt stays as it was read', async (it) => {
  const [good, spoilt] = [sandbox('good'), sandbox('spoilt', 'n: 1')];
  const damages = [
    spoilt.replace('kind: Sandbox', 'kind: Sandbocks'),
    spoilt.replace('name: spoilt', 'nam: spoilt'),
    spoilt.replace('n: 1', `n: ${'{a: '.repeat(140)}1${'}'.repeat(140)}`),
  ];
  for (const damaged of damages) {
    it.write('a.yaml', `${good}---\n${spoilt}`);
    await until(async () => it.store.problems().length === 0 && (await it.names()).length === 2);
    it.write('a.yaml', `${good}---\n${damaged}`);
    await until(() => it.store.problems().length === 1);
    await sleep(250); // Longer than an object may be on its way to another file.
    assert.equal((await it.store.get('Sandbox', key('spoilt'))).spec, { n: 1 });
    await it.reopen();
    await sleep(250);
    assert.equal(await it.names(), ['good', 'spoilt']);
    const change = it.store.patch('Sandbox', key('spoilt'), { type: 'merge', body: { spec: { n: 2 } } });
    assert.is(await codeOf(change), 'unavailable');
  }
  it.write('a.yaml', good);
  await until(async () => (await it.names()).length === 1);
});

place('each document is judged alone; twins, strangers and nameless ones are problems', async (it) => {
  it.write('sandgate.yaml', 'domain: localhost\n');
  mkdirSync(join(it.path, '.hidden'));
  it.write('.hidden/h.yaml', sandbox('hidden'));
  it.write(
    'm.yaml',
    `${sandbox('a', 'from: m')}---\nkind: Gadget\napiVersion: v1\nmetadata: {name: g}\n---\nkind: Sandbox\n---\n- 1\n`,
  );
  it.write('b.yaml', sandbox('a', 'from: b'));
  await until(() => it.store.problems().length === 4);
  assert.equal((await it.store.get('Sandbox', key('a'))).spec, { from: 'b' });
  const texts = it.store.problems().map((problem) => `${problem.file}: ${problem.message}`);
  assert.match(texts.join('\n'), /unknown kind "Gadget"/);
  assert.match(texts.join('\n'), /apiVersion: required; metadata.name: required/);
  assert.match(texts.join('\n'), /an object must be a map/);
  assert.match(texts.join('\n'), /m.yaml: Sandbox\/default\/a is already in b.yaml/);
  assert.equal(await it.names(), ['a']);
  await it.reopen();
  assert.is(it.store.problems().length, 4);
  rmSync(join(it.path, 'b.yaml'));
  await until(async () => JSON.stringify((await it.store.get('Sandbox', key('a'))).spec) === '{"from":"m"}');
});

place('links are not followed, pipes and huge files do not hang', async (it) => {
  const outside = folder();
  writeFileSync(join(outside.path, 'o.yaml'), sandbox('outside'));
  symlinkSync(outside.path, join(it.path, 'link'));
  symlinkSync(join(outside.path, 'o.yaml'), join(it.path, 'o.yaml'));
  it.write('large.yaml', `# ${'x'.repeat(16 * 1024 * 1024)}\n${sandbox('large')}`);
  await until(() => it.store.problems().length === 3);
  assert.equal(await it.names(), []);
  assert.equal(
    it.store.problems().map((problem) => problem.file),
    ['large.yaml', 'link', 'o.yaml'],
  );
  symlinkSync(outside.path, join(it.path, 'objects'));
  assert.is(await codeOf(it.store.create(object('Sandbox', 'new'))), 'unavailable');
  assert.equal(readdirSync(outside.path), ['o.yaml']);
  outside.remove();
});

place('a Secret that others can read is used, with a warning that says how to mend it', async (it) => {
  const secret = 'apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n';
  it.write('s.yaml', secret);
  chmodSync(join(it.path, 's.yaml'), 0o644);
  await until(() => it.store.problems().length === 1);
  assert.is(it.store.problems()[0]!.severity, 'warning');
  assert.match(it.store.problems()[0]!.message, new RegExp(`chmod 600 ${join(it.path, 's.yaml')}`));
  assert.equal(await it.names('Secret'), ['s']);
  chmodSync(join(it.path, 's.yaml'), 0o600);
  await until(() => it.store.problems().length === 0);
});

place('a patch keeps every other byte of the manifest', async (it) => {
  it.write('two.yaml', COMMENTED);
  await until(async () => (await it.names()).length === 2);
  await it.store.patch('Sandbox', key('a'), { type: 'merge', body: { spec: { paused: true } } });
  assert.is(it.read('two.yaml'), COMMENTED.replace('paused: false ', 'paused: true '));
  await it.store.patch('Sandbox', key('a'), { type: 'merge', body: { metadata: { annotations: { 'x/y': 'z' } } } });
  await it.store.patch('Sandbox', key('b'), { type: 'merge', body: { metadata: { labels: { l: '1' } } } });
  const want = COMMENTED.replace('paused: false ', 'paused: true ')
    .replace('# inline\n', '# inline\n  annotations:\n    x/y: z\n')
    .replace('    name: b\n', '    name: b\n    labels:\n      l: "1"\n');
  assert.is(it.read('two.yaml'), want);
  await it.store.patch('Sandbox', key('a'), {
    type: 'json',
    body: [{ op: 'remove', path: '/spec/template/spec/containers/0' }],
  });
  const text = it.read('two.yaml');
  for (const part of ['# Our sandboxes.', '# one of many', '# inline', '# awake', '# a helper', '# The second.']) {
    assert.ok(text.includes(part), part);
  }
  assert.not.match(text, /name: main/);
  await it.store.delete('Sandbox', key('a'));
  assert.not.match(it.read('two.yaml'), /name: a/);
  assert.match(it.read('two.yaml'), /# The second\.[\s\S]*name: b/);
  await it.store.delete('Sandbox', key('b'));
  assert.not.ok(existsSync(join(it.path, 'two.yaml')));
  await sleep(200);
  assert.equal(it.store.problems(), []);
});

place('new objects become private manifests, those of controllers do not', async (it) => {
  await it.store.create(object('Sandbox', 'n', { spec: { a: 1 }, metadata: { finalizers: ['x/y'] } }));
  await it.store.create(object('GlobalTrafficPolicy', 'g', { spec: {} }));
  await it.store.create(object('Pod', 'p'));
  await it.store.create(
    object('Sandbox', 'made', { metadata: { labels: { 'app.kubernetes.io/managed-by': 'sandgate' } } }),
  );
  const file = join(it.path, 'objects/sandbox/default/n.yaml');
  assert.is(statSync(file).mode & 0o777, 0o600);
  assert.not.match(readFileSync(file, 'utf8'), /uid|resourceVersion|generation|finalizers|status/);
  assert.ok(existsSync(join(it.path, 'objects/globaltrafficpolicy/g.yaml')));
  assert.equal(readdirSync(join(it.path, 'objects')).sort(), ['globaltrafficpolicy', 'sandbox']);
  assert.equal(readdirSync(join(it.path, 'objects/sandbox/default')), ['n.yaml']);
  for (const own of ['.sandgate', '.sandgate/state', '.sandgate/run', '.sandgate/pki', '.sandgate/sandboxes']) {
    assert.is(statSync(join(it.path, own)).mode & 0o777, 0o700, own);
  }
  assert.is(it.store.fileOf('Sandbox', 'default', 'n'), 'objects/sandbox/default/n.yaml');
  const before = await it.store.list('Sandbox');
  await it.reopen();
  assert.equal(await it.store.list('Sandbox'), before);
  assert.equal(await it.names('Pod'), ['p']);
});

place('a manifest that vanishes deletes its object, as finalizers allow', async (it) => {
  it.write('a.yaml', sandbox('a', 'n: 1', '  finalizers: [x/y]\n'));
  await until(async () => (await it.names()).length === 1);
  const first = (await it.store.get('Sandbox', key('a'))).metadata;
  assert.equal(first.finalizers, ['x/y']);
  rmSync(join(it.path, 'a.yaml'));
  await until(async () => (await it.store.get('Sandbox', key('a'))).metadata.deletionTimestamp !== undefined);
  await it.reopen();
  assert.is((await it.store.get('Sandbox', key('a'))).metadata.uid, first.uid);
  it.write('a.yaml', sandbox('a', 'n: 2'));
  await sleep(150);
  await it.store.patch('Sandbox', key('a'), { type: 'merge', body: { metadata: { finalizers: [] } } });
  await until(
    async () => {
      const again = (await it.store.list('Sandbox')).items[0];
      return again !== undefined && again.metadata.uid !== first.uid && again.metadata.deletionTimestamp === undefined;
    },
    3000,
    'a new object of the manifest that came back',
  );
  assert.equal((await it.store.get('Sandbox', key('a'))).spec, { n: 2 });
  assert.ok(existsSync(join(it.path, 'a.yaml')));
});

place('a deletion through the store takes the manifest at its end, and owned manifests too', async (it) => {
  it.write('a.yaml', `${sandbox('a')}---\n${sandbox('keep')}`);
  await until(async () => (await it.names()).length === 2);
  const owner = await it.store.patch('Sandbox', key('a'), {
    type: 'merge',
    body: { metadata: { finalizers: ['x/y'] } },
  });
  assert.not.match(it.read('a.yaml'), /finalizers/);
  const ref = { apiVersion: owner.apiVersion, kind: 'Sandbox', name: 'a', uid: owner.metadata.uid, controller: true };
  await it.store.create(object('Sandbox', 'owned', { spec: {}, metadata: { ownerReferences: [ref] } }));
  await it.store.delete('Sandbox', key('a'));
  assert.match(it.read('a.yaml'), /name: a/);
  await it.store.patch('Sandbox', key('a'), { type: 'merge', body: { metadata: { finalizers: null } } });
  assert.not.match(it.read('a.yaml'), /name: a/);
  await until(() => !existsSync(join(it.path, 'objects/sandbox/default/owned.yaml')));
  assert.equal(await it.names(), ['keep']);
});

place('what changed while nothing ran is taken up; what did not keeps its identity', async (it) => {
  it.write('a.yaml', sandbox('a'));
  it.write('b.yaml', sandbox('b'));
  it.write('c.yaml', sandbox('c'));
  await until(async () => (await it.names()).length === 3);
  await it.store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { phase: 'Running' } } });
  const a = await it.store.get('Sandbox', key('a'));
  const { resourceVersion } = await it.store.list('Sandbox');
  await it.store.close();
  it.write('b.yaml', sandbox('b', 'paused: true'));
  rmSync(join(it.path, 'c.yaml'));
  it.write('d.yaml', sandbox('d'));
  await it.reopen();
  assert.equal(await it.store.get('Sandbox', key('a')), a);
  assert.is((await it.store.get('Sandbox', key('b'))).metadata.generation, 2);
  const watching = new Watching(it.store, 'Sandbox', { resourceVersion });
  const texts = [await watching.text(), await watching.text(), await watching.text()].sort();
  assert.equal(texts, ['added d', 'deleted c', 'modified b']);
  await watching.end();
});

place('an editor that saves while a patch is being written is not overwritten', async (it) => {
  it.write('a.yaml', sandbox('a', 'n: 1'));
  await until(async () => (await it.names()).length === 1);
  it.write('a.yaml', sandbox('a', 'n: 1\n  person: true'));
  await it.store.patch('Sandbox', key('a'), { type: 'merge', body: { spec: { store: true } } });
  assert.equal((await it.store.get('Sandbox', key('a'))).spec, { n: 1, person: true, store: true });
  assert.match(it.read('a.yaml'), /person: true\n {2}store: true/);
});

place('one process at a time; the second is told who holds it', async (it) => {
  const error = await openDirectoryStore(it.path, { kinds }).catch((thrown: Error & { code: string }) => thrown);
  assert.is((error as { code: string }).code, 'locked');
  assert.match((error as Error).message, new RegExp(`process ${process.pid} holds`));
});

test.run();
