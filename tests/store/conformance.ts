import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import type { ObjectStore } from '../../store/object-store.ts';
import { codeOf, key, object, sleep, until, Watching, within } from './support.ts';

/** A store to be tested; the kinds are those of `support.ts`. */
export interface Subject {
  readonly store: ObjectStore;
  readonly close: () => Promise<void>;
}

export interface Traits {
  /** Changes of one kind after which its oldest history is gone; the suite makes that many. */
  readonly expiresAfter: number;
  /** Whether idle watches get bookmarks within a second. */
  readonly bookmarks: boolean;
}

type Test = (store: ObjectStore) => Promise<void>;

/** What every {@link ObjectStore} must do; each test gets a store of its own. */
export function conformance(name: string, open: () => Promise<Subject>, traits: Traits): void {
  const tests = suite(name);
  const add = (title: string, body: Test): void => {
    tests(title, async () => {
      const subject = await open();
      try {
        await within(body(subject.store), 30_000, title);
      } finally {
        await within(subject.close(), 10_000, 'closing');
      }
    });
  };
  readingAndWriting(add);
  versions(add);
  patches(add);
  statuses(add);
  deletion(add);
  ownership(add);
  watches(add, traits);
  concurrency(add);
  tests.run();
}

type Add = (title: string, body: Test) => void;

function readingAndWriting(add: Add): void {
  add('create sets what the store owns and keeps the rest', async (store) => {
    const made = await store.create(
      object('Sandbox', 'a', {
        metadata: { labels: { x: '1' }, uid: 'mine', resourceVersion: '' },
        spec: { paused: true },
        status: { phase: 'no' },
      }),
    );
    assert.match(made.metadata.uid ?? '', /^[0-9a-f-]{36}$/);
    assert.match(made.metadata.resourceVersion ?? '', /^[1-9][0-9]*$/);
    assert.match(made.metadata.creationTimestamp ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    assert.is(made.metadata.generation, 1);
    assert.is(made.status, undefined);
    assert.equal(made.metadata.labels, { x: '1' });
    assert.equal(await store.get('Sandbox', key('a')), made);
  });
  add('an absent namespace is default; a cluster-scoped kind has none', async (store) => {
    const { metadata, ...rest } = object('Sandbox', 'a');
    await store.create({ ...rest, metadata: { name: metadata.name } } as KubeObject);
    assert.is((await store.get('Sandbox', key('a'))).metadata.namespace, 'default');
    await store.create(object('GlobalTrafficPolicy', 'g', { spec: {} }));
    assert.is((await store.get('GlobalTrafficPolicy', key('g', ''))).metadata.namespace, undefined);
  });
  add('objects are kept although their schema would refuse them', async (store) => {
    const odd = object('Sandbox', 'odd', {
      spec: 'text',
      extra: [1, null, { a: 0.5 }],
      metadata: { labels: { n: 1 } },
    });
    await store.create(odd);
    await store.create(object('Sandbox', 'good', { spec: {} }));
    const { items } = await store.list('Sandbox');
    assert.equal(
      items.map((item) => item.metadata.name),
      ['good', 'odd'],
    );
    assert.equal([items[1]!.spec, items[1]!['extra']], ['text', [1, null, { a: 0.5 }]]);
  });
  add('list is ordered, by namespace when asked, and carries a version', async (store) => {
    for (const [namespace, name] of [
      ['b', 'z'],
      ['b', 'y'],
      ['a', 'z'],
    ] as const) {
      await store.create(object('Sandbox', name, { metadata: { namespace } }));
    }
    const all = await store.list('Sandbox');
    assert.equal(
      all.items.map((item) => `${item.metadata.namespace}/${item.metadata.name}`),
      ['a/z', 'b/y', 'b/z'],
    );
    assert.is((await store.list('Sandbox', { namespace: 'a' })).items.length, 1);
    assert.is(
      all.resourceVersion,
      all.items
        .map((item) => Number(item.metadata.resourceVersion))
        .sort((x, y) => y - x)[0]!
        .toString(),
    );
  });
  add('errors are coded and name the field', async (store) => {
    await store.create(object('Sandbox', 'a'));
    assert.is(await codeOf(store.create(object('Sandbox', 'a'))), 'already-exists');
    assert.is(await codeOf(store.get('Sandbox', key('b'))), 'not-found');
    assert.is(await codeOf(store.replace(object('Sandbox', 'b'))), 'not-found');
    assert.is(await codeOf(store.delete('Sandbox', key('b'))), 'not-found');
    assert.is(await codeOf(store.patch('Sandbox', key('b'), { type: 'merge', body: {} })), 'not-found');
    assert.is(await codeOf(store.get('Unknown', key('b'))), 'invalid');
    assert.is(await codeOf(store.list('Unknown')), 'invalid');
    for (const name of ['', 'A', '../x', 'a/b', '-a', 'x'.repeat(254)]) {
      assert.is(await codeOf(store.create(object('Sandbox', name))), 'invalid', name);
    }
    const wrong = { ...object('Sandbox', 'c'), apiVersion: 'v2' };
    const error = await store.create(wrong).catch((thrown: unknown) => thrown as { fields: { path: string }[] });
    assert.equal(
      (error as { fields: { path: string }[] }).fields.map((field) => field.path),
      ['apiVersion'],
    );
  });
}

function versions(add: Add): void {
  add('replace takes all but status; generation goes up with the spec only', async (store) => {
    const made = await store.create(object('Sandbox', 'a', { spec: { n: 1 } }));
    await store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { phase: 'Running' } } });
    const labelled = await store.replace(
      object('Sandbox', 'a', { spec: { n: 1 }, metadata: { labels: { a: 'b' } }, status: {} }),
    );
    assert.equal([labelled.metadata.generation, labelled.status], [1, { phase: 'Running' }]);
    const changed = await store.replace(object('Sandbox', 'a', { spec: { n: 2 } }));
    assert.equal([changed.metadata.generation, changed.metadata.labels], [2, undefined]);
    assert.is(changed.metadata.uid, made.metadata.uid);
    assert.is(changed.metadata.creationTimestamp, made.metadata.creationTimestamp);
    assert.ok(Number(changed.metadata.resourceVersion) > Number(labelled.metadata.resourceVersion));
  });
  add('a stale version or another uid is a conflict, and what is the same stays the same', async (store) => {
    const first = await store.create(object('Sandbox', 'a', { spec: { n: 1 } }));
    const second = await store.replace({ ...first, spec: { n: 2 } });
    assert.is(await codeOf(store.replace({ ...first, spec: { n: 3 } })), 'conflict');
    assert.is(await codeOf(store.replace({ ...second, metadata: { ...second.metadata, uid: 'x' } })), 'conflict');
    const stale = { metadata: { resourceVersion: first.metadata.resourceVersion }, spec: { n: 9 } };
    assert.is(await codeOf(store.patch('Sandbox', key('a'), { type: 'merge', body: stale })), 'conflict');
    assert.is(await codeOf(store.patchStatus('Sandbox', key('a'), { type: 'merge', body: stale })), 'conflict');
    assert.is((await store.replace(second)).metadata.resourceVersion, second.metadata.resourceVersion);
    assert.equal((await store.get('Sandbox', key('a'))).spec, { n: 2 });
  });
}

function patches(add: Add): void {
  add('merge patches follow RFC 7396', async (store) => {
    await store.create(object('Sandbox', 'a', { spec: { keep: { x: 1 }, gone: 1, list: [1, 2] } }));
    const body = { spec: { gone: null, list: [3], keep: { y: 2 } }, metadata: { annotations: { k: 'v' } } };
    const patched = await store.patch('Sandbox', key('a'), { type: 'merge', body });
    assert.equal(patched.spec, { keep: { x: 1, y: 2 }, list: [3] });
    assert.equal([patched.metadata.annotations, patched.metadata.generation], [{ k: 'v' }, 2]);
  });
  add('JSON patches follow RFC 6902; a failed test is a conflict', async (store) => {
    await store.create(object('Sandbox', 'a', { spec: { list: ['x', 'z'] } }));
    const insert = [
      { op: 'test', path: '/spec/list/0', value: 'x' },
      { op: 'add', path: '/spec/list/1', value: 'y' },
    ];
    assert.equal((await store.patch('Sandbox', key('a'), { type: 'json', body: insert })).spec, {
      list: ['x', 'y', 'z'],
    });
    const failing = [
      { op: 'remove', path: '/spec' },
      { op: 'test', path: '/metadata/name', value: 'b' },
    ];
    assert.is(await codeOf(store.patch('Sandbox', key('a'), { type: 'json', body: failing })), 'conflict');
    const broken = [{ op: 'replace', path: '/spec/none/deep', value: 1 }];
    assert.is(await codeOf(store.patch('Sandbox', key('a'), { type: 'json', body: broken })), 'invalid');
    assert.equal((await store.get('Sandbox', key('a'))).spec, { list: ['x', 'y', 'z'] });
  });
  add('a patch cannot rename an object or touch what the store owns', async (store) => {
    const made = await store.create(object('Sandbox', 'a', { spec: {} }));
    for (const body of [
      { metadata: { name: 'b' } },
      { metadata: { namespace: 'x' } },
      { kind: 'Pod', apiVersion: 'v1' },
    ]) {
      assert.is(await codeOf(store.patch('Sandbox', key('a'), { type: 'merge', body })), 'invalid');
    }
    const body = { metadata: { generation: 7, creationTimestamp: 'x', deletionTimestamp: 'x' }, status: { a: 1 } };
    assert.equal(await store.patch('Sandbox', key('a'), { type: 'merge', body }), made);
  });
}

function statuses(add: Add): void {
  add('patchStatus changes the status alone', async (store) => {
    await store.create(object('Sandbox', 'a', { spec: { n: 1 } }));
    const body = { status: { phase: 'Running' }, spec: { n: 2 }, metadata: { labels: { a: 'b' } } };
    const patched = await store.patchStatus('Sandbox', key('a'), { type: 'merge', body });
    assert.equal([patched.spec, patched.metadata.labels, patched.metadata.generation], [{ n: 1 }, undefined, 1]);
    assert.equal(patched.status, { phase: 'Running' });
    const ops = [{ op: 'add', path: '/status/conditions', value: [] }];
    assert.equal((await store.patchStatus('Sandbox', key('a'), { type: 'json', body: ops })).status, {
      phase: 'Running',
      conditions: [],
    });
  });
  add('a kind without the subresource has an ordinary status field and no patchStatus', async (store) => {
    const made = await store.create(object('SandboxTemplate', 't', { status: { a: 1 } }));
    assert.equal(made.status, { a: 1 });
    assert.is(
      await codeOf(store.patchStatus('SandboxTemplate', key('t'), { type: 'merge', body: { status: {} } })),
      'invalid',
    );
  });
}

function deletion(add: Add): void {
  add('delete removes; a successor has another uid', async (store) => {
    const first = await store.create(object('Sandbox', 'a', { spec: {} }));
    assert.is(await codeOf(store.delete('Sandbox', key('a'), { uid: 'other' })), 'conflict');
    await store.delete('Sandbox', key('a'), { uid: first.metadata.uid! });
    assert.is(await codeOf(store.get('Sandbox', key('a'))), 'not-found');
    const second = await store.create(object('Sandbox', 'a', { spec: {} }));
    assert.is.not(second.metadata.uid, first.metadata.uid);
    assert.is(second.metadata.generation, 1);
  });
  add('finalizers hold a deletion, and none can be added to it', async (store) => {
    await store.create(object('Sandbox', 'a', { metadata: { finalizers: ['x/a', 'x/b'] }, spec: { n: 1 } }));
    await store.delete('Sandbox', key('a'));
    const going = await store.get('Sandbox', key('a'));
    assert.match(going.metadata.deletionTimestamp ?? '', /Z$/);
    await store.delete('Sandbox', key('a'));
    assert.is((await store.get('Sandbox', key('a'))).metadata.resourceVersion, going.metadata.resourceVersion);
    const add = { metadata: { finalizers: ['x/a', 'x/b', 'x/c'] } };
    assert.is(await codeOf(store.patch('Sandbox', key('a'), { type: 'merge', body: add })), 'invalid');
    await store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { phase: 'Terminating' } } });
    await store.patch('Sandbox', key('a'), { type: 'merge', body: { metadata: { finalizers: ['x/b'] } } });
    assert.equal((await store.get('Sandbox', key('a'))).metadata.finalizers, ['x/b']);
    await store.patch('Sandbox', key('a'), { type: 'merge', body: { metadata: { finalizers: null } } });
    assert.is(await codeOf(store.get('Sandbox', key('a'))), 'not-found');
  });
}

function ownership(add: Add): void {
  const gone = (store: ObjectStore, kind: string, name: string) => async () =>
    (await store.list(kind)).items.every((item) => item.metadata.name !== name);
  const ref = (owner: KubeObject, controller = true) => ({
    apiVersion: owner.apiVersion,
    kind: owner.kind,
    name: owner.metadata.name,
    uid: owner.metadata.uid!,
    controller,
  });
  add('what a controller owns goes with it, through the generations, and stays with its finalizers', async (store) => {
    const set = await store.create(object('SandboxTemplate', 'root'));
    const sandbox = await store.create(object('Sandbox', 'a', { metadata: { ownerReferences: [ref(set)] }, spec: {} }));
    const free = await store.create(object('Sandbox', 'free', { spec: {} }));
    await store.create(object('Pod', 'a', { metadata: { ownerReferences: [ref(sandbox)] } }));
    await store.create(object('Pod', 'held', { metadata: { ownerReferences: [ref(sandbox)], finalizers: ['x/y'] } }));
    await store.create(object('Pod', 'other', { metadata: { ownerReferences: [ref(free)] } }));
    await store.create(
      object('Pod', 'shared', { metadata: { ownerReferences: [ref(sandbox, false), ref(free, false)] } }),
    );
    await store.delete('SandboxTemplate', key('root'));
    await until(gone(store, 'Sandbox', 'a'), 5000, 'Sandbox a gone');
    await until(gone(store, 'Pod', 'a'), 5000, 'Pod a gone');
    await until(async () => (await store.get('Pod', key('held'))).metadata.deletionTimestamp !== undefined);
    assert.equal(
      (await store.list('Pod')).items.map((item) => item.metadata.name),
      ['held', 'other', 'shared'],
    );
    await store.patch('Pod', key('held'), { type: 'json', body: [{ op: 'remove', path: '/metadata/finalizers' }] });
    await until(gone(store, 'Pod', 'held'), 5000, 'Pod held gone');
  });
  add('an object whose owner has gone before it came is removed', async (store) => {
    const owner = await store.create(object('Sandbox', 'a', { spec: {} }));
    await store.delete('Sandbox', key('a'));
    await store.create(object('Sandbox', 'a', { spec: {} }));
    await store.create(object('Pod', 'late', { metadata: { ownerReferences: [ref(owner)] } }));
    await until(gone(store, 'Pod', 'late'), 5000, 'Pod late gone');
  });
}

function watches(add: Add, traits: Traits): void {
  add('a watch gives what is there, a bookmark, and then every change once', async (store) => {
    await store.create(object('Sandbox', 'a', { spec: {} }));
    await store.create(object('Pod', 'p'));
    const watching = new Watching(store, 'Sandbox');
    assert.equal(await watching.initial(), ['added a']);
    await store.create(object('Sandbox', 'b', { spec: {} }));
    await store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { x: 1 } } });
    await store.delete('Sandbox', key('b'));
    const seen: [string, number][] = [];
    for (const want of ['added b', 'modified a', 'deleted b']) {
      const event = await watching.next();
      assert.is(event.type === 'bookmark' ? '' : `${event.type} ${event.object.metadata.name}`, want);
      seen.push([want, Number(event.type === 'bookmark' ? 0 : event.object.metadata.resourceVersion)]);
    }
    assert.ok(seen[0]![1] < seen[1]![1] && seen[1]![1] < seen[2]![1], 'versions go up');
    await watching.end();
  });
  add('a watch continues after a version, and from the end of a list', async (store) => {
    const { resourceVersion } = await store.list('Sandbox');
    const a = await store.create(object('Sandbox', 'a', { spec: {} }));
    await store.create(object('Sandbox', 'b', { spec: {}, metadata: { namespace: 'x' } }));
    const all = new Watching(store, 'Sandbox', { resourceVersion });
    assert.equal([await all.text(), await all.text()], ['added a', 'added b']);
    const later = new Watching(store, 'Sandbox', { resourceVersion: a.metadata.resourceVersion! });
    assert.is(await later.text(), 'added b');
    const narrow = new Watching(store, 'Sandbox', { resourceVersion, namespace: 'x' });
    assert.is(await narrow.text(), 'added b');
    await Promise.all([all.end(), later.end(), narrow.end()]);
  });
  add('a version whose history is gone, or from the future, has expired', async (store) => {
    const { resourceVersion } = await store.create(object('Sandbox', 'a', { spec: {} })).then((made) => made.metadata);
    for (let n = 0; n < traits.expiresAfter; n += 1) {
      await store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { n } } });
    }
    const old = new Watching(store, 'Sandbox', { resourceVersion: resourceVersion! });
    assert.is(await codeOf(() => old.next()), 'expired');
    const future = new Watching(store, 'Sandbox', { resourceVersion: '999999999' });
    assert.is(await codeOf(() => future.next()), 'expired');
    const nonsense = new Watching(store, 'Sandbox', { resourceVersion: 'x' });
    assert.is(await codeOf(() => nonsense.next()), 'invalid');
  });
  if (traits.bookmarks) {
    add('an idle watch gets bookmarks, so that its version stays young', async (store) => {
      const watching = new Watching(store, 'Sandbox');
      await watching.initial();
      const pod = await store.create(object('Pod', 'p'));
      for (;;) {
        const event = await watching.next();
        assert.is(event.type, 'bookmark');
        if (event.type === 'bookmark' && event.resourceVersion === pod.metadata.resourceVersion) {
          assert.is(event.initial, false);
          break;
        }
      }
      await watching.end();
    });
  }
  add('a watch ends when it is aborted, waiting or not', async (store) => {
    const abort = new AbortController();
    const events = store.watch('Sandbox', { signal: abort.signal })[Symbol.asyncIterator]();
    await within(events.next(), 5000, 'the bookmark');
    const waiting = events.next();
    await sleep(20);
    abort.abort();
    assert.is((await within(waiting, 5000, 'the end')).done, true);
  });
}

function concurrency(add: Add): void {
  add('of writers with one version one wins; unconditional patches all count', async (store) => {
    const base = await store.create(object('Sandbox', 'a', { spec: { n: 0 } }));
    const race = await Promise.allSettled(
      Array.from({ length: 10 }, (_, n) => store.replace({ ...base, spec: { n: n + 1 } })),
    );
    assert.is(race.filter((result) => result.status === 'fulfilled').length, 1);
    await Promise.all(
      Array.from({ length: 30 }, (_, n) => {
        const patch = { type: 'merge', body: { metadata: { annotations: { [`k${n}`]: 'v' } } } } as const;
        return n % 2 === 0
          ? store.patch('Sandbox', key('a'), patch)
          : store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { [`s${n}`]: n } } });
      }),
    );
    const end = await store.get('Sandbox', key('a'));
    assert.is(Object.keys(end.metadata.annotations ?? {}).length, 15);
    assert.is(Object.keys(end.status as object).length, 15);
    assert.is(end.metadata.generation, 2);
  });
  add('a watch begun amid changes misses and repeats nothing', async (store) => {
    const writing = (async () => {
      for (let n = 0; n < 60; n += 1) {
        await store.create(object('Pod', `p${n}`));
      }
    })();
    await sleep(3);
    const watching = new Watching(store, 'Pod');
    const seen: string[] = [];
    while (seen.length < 60) {
      const event = await watching.next();
      if (event.type !== 'bookmark') {
        assert.is(event.type, 'added');
        seen.push(event.object.metadata.name);
      }
    }
    await writing;
    assert.is(new Set(seen).size, 60);
    await watching.end();
  });
}
