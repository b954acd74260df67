/** A node namespace and a node agent in a process of their own, to be killed: `agent-process.ts DIR`. */
import { kindNamed } from '../../api/kinds.ts';
import { silentLogger } from '../../base/logger.ts';
import { openPki } from '../../identity/pki-directory.ts';
import { createLayout, layoutOf } from '../../local/layout.ts';
import { runNodeAgent } from '../../local/node-agent.ts';
import { openNode } from '../../local/node-namespace.ts';
import { parseSettings } from '../../local/settings.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { conditionOf, NAMESPACE } from './harness.ts';

/** Does what it can to outlive whoever started it. */
const STUBBORN = `
import ctypes, os, signal, time
ctypes.CDLL(None).prctl(1, 0)
for name in ("SIGTERM", "SIGHUP", "SIGINT"): signal.signal(getattr(signal, name), signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(1, 0)
print("armed", flush=True)
while True: time.sleep(1)
`;

const layout = layoutOf(process.argv[2]!);
await createLayout(layout);
const store = new MemoryStore({ kinds: kindNamed });
const abort = new AbortController();
const node = await openNode(layout);
const agent = runNodeAgent({
  store,
  layout,
  node,
  pki: await openPki(layout.pki),
  settings: () => parseSettings('', layout.dir),
  envoyPath: null,
  logger: silentLogger,
  signal: abort.signal,
});
const containers = [
  { name: 'main', command: ['/usr/bin/python3', '-c', STUBBORN], readinessProbe: { tcpSocket: { port: 1 } } },
  { name: 'frozen', command: ['sleep', '1000'] },
];
for (const name of ['first', 'second']) {
  await store.create({ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: NAMESPACE }, spec: { containers } });
}
await store.patch('Pod', { namespace: NAMESPACE, name: 'first' }, { type: 'merge', body: {} });
const ready = setInterval(async () => {
  const { items } = await store.list('Pod');
  const running = items.every(
    (pod) =>
      (pod as never as { status?: { containerStatuses?: { started: boolean }[] } }).status?.containerStatuses?.every(
        ({ started }) => started,
      ) === true,
  );
  const paused = items.some((pod) => conditionOf(pod as never, 'ContainersPaused') === 'True');
  if (running && !paused) {
    const body = { metadata: { annotations: { 'sandgate.dev/freeze': 'true' } } };
    await store.patch('Pod', { namespace: NAMESPACE, name: 'second' }, { type: 'merge', body });
  }
  if (paused) {
    clearInterval(ready);
    process.stdout.write('ready\n');
  }
}, 50);
process.once('SIGTERM', async () => {
  abort.abort();
  await agent;
  await node.close();
  await store.close();
  process.exit(0);
});
