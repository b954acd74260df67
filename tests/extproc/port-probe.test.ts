import { createServer, type Server } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PortProbe } from '../../extproc/ingress/port-probe.ts';

const HOST = '127.0.78.1';
const PORT = 34_519;

async function timed(work: Promise<void>): Promise<number> {
  const start = performance.now();
  await work;
  return performance.now() - start;
}

const probe = new PortProbe();
const never = new AbortController().signal;

let connections = 0;

function listen(): Promise<Server> {
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  return new Promise((resolve) => server.listen(PORT, HOST, () => resolve(server)));
}

test('a port that listens is no wait; one that comes to listen is waited for', async () => {
  let server = await listen();
  assert.ok((await timed(probe.awaitPort(HOST, PORT, never))) < 200);
  await new Promise((resolve) => server.close(resolve));
  const waited = timed(probe.awaitPort(HOST, PORT, never));
  await new Promise((resolve) => setTimeout(resolve, 300));
  server = await listen();
  const milliseconds = await waited;
  assert.ok(milliseconds >= 290 && milliseconds < 900, `${milliseconds} ms`);
  await new Promise((resolve) => server.close(resolve));
});

test('a port where nothing ever listens is given up after two seconds, without an error', async () => {
  const milliseconds = await timed(probe.awaitPort(HOST, PORT, never));
  assert.ok(milliseconds >= 1950 && milliseconds < 3000, `${milliseconds} ms`);
});

test('it ends with its caller, and goes on for the others', async () => {
  const leaving = new AbortController();
  const other = timed(probe.awaitPort(HOST, PORT, never));
  setTimeout(() => leaving.abort(), 50);
  assert.ok((await timed(probe.awaitPort(HOST, PORT, leaving.signal))) < 600);
  assert.ok((await timed(probe.awaitPort(HOST, PORT, AbortSignal.abort()))) < 100);
  assert.ok((await other) >= 1950);
});

test('a thousand who wait for one port are one try', async () => {
  const server = await listen();
  connections = 0;
  await Promise.all(Array.from({ length: 1000 }, () => probe.awaitPort(HOST, PORT, never)));
  assert.is(connections, 1);
  await new Promise((resolve) => server.close(resolve));
});

test.run();
