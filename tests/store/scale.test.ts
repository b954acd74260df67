import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDirectoryStore } from '../../store/directory.ts';
import { Informer } from '../../store/informer.ts';
import { SocketStore } from '../../store/socket-client.ts';
import { serveStore } from '../../store/socket-server.ts';
import { folder, key, kinds, until, Watching, within } from './support.ts';

const COUNT = 10_000;

function manifest(n: number): string {
  return `apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata:
  name: sbx-${n}
  namespace: default
  labels:
    app: demo
    agents.kruise.io/sandbox-id: id${n}
spec:
  paused: false   # awake
  autoPausePolicy:
    resume:
      onIngressTraffic: true
  template:
    spec:
      containers:
      - name: main
        image: python:3.12
        command: ["python3", "-m", "http.server", "3000"]
        ports:
        - containerPort: 3000
`;
}

async function timed<T>(work: () => Promise<T>): Promise<[T, number]> {
  const begun = performance.now();
  const result = await work();
  return [result, performance.now() - begun];
}

const heap = (): number => {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed / 1e6;
};

/** The running log: the only one once a compaction has ended. */
function logOf(path: string): string {
  const folder = join(path, '.sandgate/state/objects');
  return join(folder, readdirSync(folder).filter((name) => name.endsWith('.log'))[0]!);
}

test('10,000 Sandboxes in as many manifests: opening, memory, and what one change costs', async () => {
  const { path, remove } = folder();
  mkdirSync(join(path, 'many'));
  for (let n = 0; n < COUNT; n += 1) {
    writeFileSync(join(path, 'many', `${n}.yaml`), manifest(n));
  }
  const [first, cold] = await timed(() => openDirectoryStore(path, { kinds }));
  assert.is((await first.list('Sandbox')).items.length, COUNT);
  await first.close();

  const before = heap();
  const [store, opening] = await timed(() => openDirectoryStore(path, { kinds }));
  const after = heap();
  const socket = join(path, '.sandgate/run/s.sock');
  const server = await serveStore({ store, path: socket, incarnation: store.incarnation });
  const client = new SocketStore({ path: socket });
  try {
    assert.is((await store.list('Sandbox')).items.length, COUNT);
    const informer = new Informer(client, 'Sandbox');
    const [, synced] = await timed(() => within(informer.synced, 20_000, 'synced'));
    assert.is(informer.size, COUNT);

    const log = logOf(path);
    const bytes = statSync(log).size;
    const status = { type: 'merge', body: { status: { phase: 'Running' } } } as const;
    const [, statusPatch] = await timed(() => store.patchStatus('Sandbox', key('sbx-5000'), status));
    const grown = statSync(log).size - bytes;
    assert.ok(grown > 0 && grown < 4096, `one status wrote ${grown} bytes`);
    const spec = { type: 'merge', body: { spec: { paused: true } } } as const;
    const [, specPatch] = await timed(() => store.patch('Sandbox', key('sbx-5000'), spec));

    const watching = new Watching(client, 'Sandbox', {
      resourceVersion: (await store.list('Sandbox')).resourceVersion,
    });
    const [, edit] = await timed(async () => {
      writeFileSync(join(path, 'many/7.yaml'), manifest(7).replace('paused: false', 'paused: true'));
      await watching.text();
    });
    await watching.end();
    await until(() => JSON.stringify(informer.get(key('sbx-7'))?.spec).includes('"paused":true'));
    await informer.close();
    const shown = [
      `first open ${cold.toFixed(0)} ms`,
      `open ${opening.toFixed(0)} ms`,
      `informer through the socket ${synced.toFixed(0)} ms`,
      `status patch ${statusPatch.toFixed(2)} ms`,
      `spec patch ${specPatch.toFixed(2)} ms`,
      `edit seen ${edit.toFixed(0)} ms`,
      globalThis.gc === undefined ? '' : `heap ${(after - before).toFixed(1)} MB`,
    ];
    console.log(shown.join(', '));
    assert.ok(opening < 3000, `opening took ${opening.toFixed(0)} ms`);
    assert.ok(statusPatch < 50 && specPatch < 200, shown.join(', '));
    assert.ok(edit < 200, `an edit took ${edit.toFixed(0)} ms`);
  } finally {
    await client.close();
    await server.close();
    await store.close();
    remove();
  }
});

test.run();
