import { statSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { type DirectoryStore, openDirectoryStore } from '../../store/directory.ts';
import { Informer } from '../../store/informer.ts';
import { SocketStore } from '../../store/socket-client.ts';
import { type StoreServer, serveStore } from '../../store/socket-server.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { codeOf, folder, key, kinds, object, sleep, until, Watching, within } from './support.ts';

interface Plane {
  readonly socket: string;
  store: DirectoryStore;
  server: StoreServer;
  readonly client: SocketStore;
  stop(): Promise<void>;
  start(): Promise<void>;
}

/** A store that can be taken away and brought back under a client that stays. */
async function withPlane(body: (plane: Plane) => Promise<void>, history = 4096, callTimeoutMs = 400): Promise<void> {
  const { path, remove } = folder();
  const socket = join(path, '.sandgate/run/s.sock');
  const open = () => openDirectoryStore(path, { kinds, history });
  const serve = (store: DirectoryStore) => serveStore({ store, path: socket, incarnation: store.incarnation });
  const store = await open();
  const client = new SocketStore({ path: socket, callTimeoutMs, maxBackoffMs: 50 });
  const plane: Plane = {
    socket,
    client,
    store,
    server: await serve(store),
    stop: async () => {
      await plane.server.close();
      await plane.store.close();
    },
    start: async () => {
      plane.store = await open();
      plane.server = await serve(plane.store);
    },
  };
  try {
    await within(body(plane), 30_000, 'the test');
  } finally {
    await client.close();
    await plane.stop();
    remove();
  }
}

test('the socket is for its owner only, and a path that is too long is refused', async () => {
  await withPlane(async ({ socket, store }) => {
    assert.is(statSync(socket).mode & 0o777, 0o600);
    const long = join('/tmp', 'x'.repeat(110));
    assert.is(await codeOf(serveStore({ store, path: long, incarnation: 'x' })), 'invalid');
    assert.throws(() => new SocketStore({ path: long }), /longer than 107/);
  });
});

test('a watch goes on after the server came back, without gaps or repetitions', async () => {
  await withPlane(async (plane) => {
    await plane.client.create(object('Pod', 'a'));
    const watching = new Watching(plane.client, 'Pod');
    assert.equal(await watching.initial(), ['added a']);
    await plane.server.close();
    // Changed while the client is cut off from a store that lives on.
    await plane.store.create(object('Pod', 'b'));
    await plane.store.patchStatus('Pod', key('a'), { type: 'merge', body: { status: { x: 1 } } });
    plane.server = await serveStore({ store: plane.store, path: plane.socket, incarnation: plane.store.incarnation });
    assert.equal([await watching.text(), await watching.text()], ['added b', 'modified a']);
    await plane.stop();
    await plane.start();
    await plane.store.create(object('Pod', 'c'));
    assert.is(await watching.text(), 'added c');
    await watching.end();
  });
});

test('an expired watch lists again and tells what differs, deletions too', async () => {
  await withPlane(async (plane) => {
    for (const name of ['a', 'b', 'c']) {
      await plane.client.create(object('Pod', name));
    }
    const watching = new Watching(plane.client, 'Pod');
    assert.equal(await watching.initial(), ['added a', 'added b', 'added c']);
    await plane.server.close();
    await plane.store.delete('Pod', key('b'));
    await plane.store.delete('Pod', key('c'));
    await plane.store.create(object('Pod', 'c'));
    for (let n = 0; n < 30; n += 1) {
      await plane.store.patchStatus('Pod', key('a'), { type: 'merge', body: { status: { n } } });
    }
    await plane.store.create(object('Pod', 'd'));
    plane.server = await serveStore({ store: plane.store, path: plane.socket, incarnation: plane.store.incarnation });
    assert.equal(await watching.initial(), ['modified a', 'deleted c', 'added c', 'added d', 'deleted b']);
    await watching.end();
  }, 8);
});

test('versions of another life of the store are not believed', async () => {
  const socket = folder();
  const path = join(socket.path, 's.sock');
  const first = new MemoryStore({ kinds });
  const second = new MemoryStore({ kinds });
  const client = new SocketStore({ path, maxBackoffMs: 20 });
  let server = await serveStore({ store: first, path, incarnation: 'one' });
  try {
    await first.create(object('Pod', 'old'));
    const watching = new Watching(client, 'Pod');
    assert.equal(await watching.initial(), ['added old']);
    await server.close();
    await second.create(object('Pod', 'new'));
    await second.create(object('Pod', 'newer'));
    server = await serveStore({ store: second, path, incarnation: 'two' });
    assert.equal(await watching.initial(), ['added new', 'added newer', 'deleted old']);
    await watching.end();
  } finally {
    await client.close();
    await server.close();
    await first.close();
    await second.close();
    socket.remove();
  }
});

test('without a server calls fail in bounded time, or wait for one that comes', async () => {
  await withPlane(async (plane) => {
    await plane.stop();
    const begun = performance.now();
    assert.is(await codeOf(plane.client.get('Pod', key('a'))), 'unavailable');
    assert.is(await codeOf(plane.client.create(object('Pod', 'a'))), 'unavailable');
    assert.ok(performance.now() - begun < 2000);
    const waiting = plane.client.create(object('Pod', 'a'));
    await sleep(60);
    await plane.start();
    assert.is((await within(waiting, 3000, 'create')).metadata.name, 'a');
  });
});

test('a server that hangs does not hang its callers', async () => {
  const place = folder();
  const path = join(place.path, 's.sock');
  const store = new MemoryStore({ kinds });
  store.get = () => new Promise(() => {});
  store.create = () => new Promise(() => {});
  const server = await serveStore({ store, path, incarnation: 'x' });
  const client = new SocketStore({ path, callTimeoutMs: 200 });
  const failed = await client.create(object('Pod', 'a')).catch((error: Error) => error);
  assert.match((failed as Error).message, /may have been done/);
  assert.is(await codeOf(client.get('Pod', key('a'))), 'unavailable');
  await client.close();
  assert.is(await codeOf(client.get('Pod', key('a'))), 'unavailable');
  await server.close();
  await store.close();
  place.remove();
});

test('bodies up to 16 MiB pass, larger ones are refused on both sides', async () => {
  await withPlane(
    async (plane) => {
      const big = await plane.client.create(object('Lease', 'big', { spec: 'x'.repeat(15 * 1024 * 1024) }));
      assert.is((big.spec as string).length, 15 * 1024 * 1024);
      const larger = object('Lease', 'larger', { spec: 'x'.repeat(17 * 1024 * 1024) });
      assert.is(await codeOf(plane.client.create(larger)), 'invalid');
      const answer = await raw(plane.socket, Buffer.alloc(17 * 1024 * 1024, 'x'));
      assert.match(answer, /larger than 16 MiB/);
    },
    4096,
    10_000,
  );
});

test('garbage gets an answer and harms nobody', async () => {
  await withPlane(async (plane) => {
    for (const body of ['', '[]', 'nonsense', '{"kind":"Pod"}', '{"kind":"Pod","key":{"name":7}}']) {
      assert.match(await raw(plane.socket, Buffer.from(body)), /HTTP\/1.1 400[\s\S]*"code":"(invalid|not-found)"/);
    }
    assert.equal((await plane.client.list('Pod')).items, []);
  });
});

test('an informer follows through a restart, whatever its listeners do and objects look like', async () => {
  await withPlane(async (plane) => {
    await plane.store.create(object('Sandbox', 'odd', { spec: 'text', metadata: { labels: [1] } }));
    const informer = new Informer(plane.client, 'Sandbox');
    const told: string[] = [];
    informer.onChange(() => {
      throw new Error('a bad listener');
    });
    informer.onChange(({ type, object: changed, previous }) => {
      told.push(`${type} ${changed.metadata.name} ${previous === undefined ? '-' : 'was'}`);
    });
    await within(informer.synced, 3000, 'synced');
    assert.is(informer.get(key('odd'))?.spec, 'text');
    await plane.client.create(object('Sandbox', 'b', { spec: {} }));
    await until(() => informer.size === 2);
    await plane.stop();
    assert.equal(
      informer.list().map((item) => item.metadata.name),
      ['b', 'odd'],
    );
    await plane.start();
    await plane.client.delete('Sandbox', key('odd'));
    await until(() => informer.size === 1);
    assert.equal(told, ['added odd -', 'added b -', 'deleted odd was']);
    await informer.close();
  });
});

test('an event comes through the socket within 5 ms (median)', async () => {
  await withPlane(async (plane) => {
    await plane.client.create(object('Sandbox', 'a', { spec: {} }));
    const watching = new Watching(plane.client, 'Sandbox');
    await watching.initial();
    const times: number[] = [];
    for (let n = 0; n < 50; n += 1) {
      const begun = performance.now();
      void plane.store.patchStatus('Sandbox', key('a'), { type: 'merge', body: { status: { n } } });
      await watching.next();
      times.push(performance.now() - begun);
    }
    times.sort((a, b) => a - b);
    assert.ok(times[25]! < 5, `median ${times[25]!.toFixed(2)} ms`);
    await watching.end();
  });
});

/** Posts bytes as they are and gives the whole answer. */
function raw(path: string, body: Buffer): Promise<string> {
  const exchange = new Promise<string>((resolve, reject) => {
    const socket = createConnection(path);
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk.toString();
    });
    socket.on('end', () => resolve(answer));
    socket.on('error', reject);
    socket.write(`POST /v1/get HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n`);
    socket.write(body);
  });
  return within(exchange, 10_000, 'an answer');
}

test.run();
