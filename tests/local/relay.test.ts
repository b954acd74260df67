import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { type Relay, startRelay } from '../../local/relay.ts';
import { eventually } from './harness.ts';

const test = suite<{ dir: string; path: string; relay: Relay; server: Server; accepted: Socket[] }>('relay');

test.before.each(async (context) => {
  context.dir = await mkdtemp(join(tmpdir(), 'sg-'));
  context.path = join(context.dir, 'up.sock');
  context.accepted = [];
  context.server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    context.accepted.push(socket);
  });
  context.server.listen(context.path);
  await once(context.server, 'listening');
  context.relay = await startRelay({ host: '127.0.0.1', port: 0, socketPath: context.path });
});

test.after.each(async ({ dir, relay, server, accepted }) => {
  await relay.close();
  for (const socket of accepted) {
    socket.destroy();
  }
  server.close();
  await rm(dir, { recursive: true, force: true });
});

function dial(port: number): Socket {
  return connect({ host: '127.0.0.1', port, allowHalfOpen: true }).on('error', () => {});
}

async function readAll(socket: Socket): Promise<string> {
  let text = '';
  for await (const chunk of socket) {
    text += String(chunk);
  }
  return text;
}

test('an answer still comes after the request has ended', async ({ relay, accepted }) => {
  const client = dial(relay.port);
  client.end('request');
  const upstream = await eventually('a connection', () => accepted[0] ?? null);
  assert.is(await readAll(upstream), 'request');
  upstream.end('answer');
  assert.is(await readAll(client), 'answer');
  await eventually('the end of both', () => (client.destroyed && upstream.destroyed ? true : null));
});

test('many connections at once keep their bytes apart', async ({ relay, server }) => {
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => socket.pipe(socket));
  const answers = await Promise.all(
    Array.from({ length: 300 }, async (_, index) => {
      const client = dial(relay.port);
      client.end(`${index}:`.repeat(1000));
      return readAll(client);
    }),
  );
  assert.ok(answers.every((text, index) => text === `${index}:`.repeat(1000)));
});

test('a reader that waits makes the writer wait', async ({ relay, accepted }) => {
  const client = dial(relay.port);
  await once(client, 'connect');
  const upstream = await eventually('a connection', () => accepted[0] ?? null);
  const chunk = Buffer.alloc(1 << 20);
  let written = 0;
  while (
    client.write(chunk) ||
    (await Promise.race([once(client, 'drain'), new Promise((late) => setTimeout(late, 300, null))])) !== null
  ) {
    written += chunk.length;
    assert.ok(written < 200 * chunk.length, 'the relay buffers without end');
  }
  let read = 0;
  upstream.on('data', (data: Buffer) => {
    read += data.length;
  });
  client.end();
  await eventually('everything', () => (read >= written + chunk.length ? true : null));
});

test('an abort on one side is one on the other', async ({ relay, accepted }) => {
  const client = dial(relay.port);
  client.write('x');
  const upstream = await eventually('a connection', () => accepted[0] ?? null);
  upstream.resume();
  client.resetAndDestroy();
  await eventually('the end upstream', () => (upstream.destroyed || upstream.readableEnded ? true : null));
  const second = dial(relay.port);
  second.write('x');
  const other = await eventually('another connection', () => accepted[1] ?? null);
  other.destroy();
  second.resume();
  await eventually('the end of the client', () => (second.destroyed || second.readableEnded ? true : null));
});

test('without a server behind it a connection is reset, and works again once there is one', async ({
  relay,
  server,
  path,
}) => {
  await new Promise((done) => server.close(done));
  const client = dial(relay.port);
  client.write('x');
  const [error] = (await once(client, 'error')) as [NodeJS.ErrnoException];
  assert.is(error.code, 'ECONNRESET');
  server.listen(path);
  await once(server, 'listening');
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => socket.end('back'));
  assert.is(await readAll(dial(relay.port)), 'back');
});

test('a taken port is said, and close ends open connections', async ({ relay, path, accepted }) => {
  const failure = await startRelay({ host: '127.0.0.1', port: relay.port, socketPath: path }).catch(
    (error: unknown) => error,
  );
  assert.ok(isCoded(failure, 'address-in-use'));
  const client = dial(relay.port);
  client.write('x');
  await eventually('a connection', () => accepted[0] ?? null);
  client.resume();
  await relay.close();
  await eventually('the end of the client', () => (client.destroyed || client.readableEnded ? true : null));
  client.destroy();
  relay.close = async () => {};
});

test.run();
