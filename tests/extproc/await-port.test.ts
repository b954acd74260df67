import { createServer, type Server } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { awaitPort } from '../../extproc/ingress/wake.ts';

const HOST = '127.0.78.1';
const PORT = 34_519;

async function timed(work: Promise<void>): Promise<number> {
  const start = performance.now();
  await work;
  return performance.now() - start;
}

const never = new AbortController().signal;

function listen(): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => server.listen(PORT, HOST, () => resolve(server)));
}

test('a port that listens is no wait; one that comes to listen is waited for', async () => {
  let server = await listen();
  assert.ok((await timed(awaitPort(HOST, PORT, never))) < 200);
  await new Promise((resolve) => server.close(resolve));
  const waited = timed(awaitPort(HOST, PORT, never));
  await new Promise((resolve) => setTimeout(resolve, 300));
  server = await listen();
  const milliseconds = await waited;
  assert.ok(milliseconds >= 290 && milliseconds < 900, `${milliseconds} ms`);
  await new Promise((resolve) => server.close(resolve));
});

test('a port where nothing ever listens is given up after two seconds, without an error', async () => {
  const milliseconds = await timed(awaitPort(HOST, PORT, never));
  assert.ok(milliseconds >= 1950 && milliseconds < 3000, `${milliseconds} ms`);
});

test('it ends with its caller', async () => {
  const leaving = new AbortController();
  setTimeout(() => leaving.abort(), 50);
  assert.ok((await timed(awaitPort(HOST, PORT, leaving.signal))) < 600);
});

test.run();
