import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { silentLogger } from '../../base/logger.ts';
import { readAnswer, readQuestion, writeAnswer, writeQuestion } from '../../dns/message.ts';
import { type DnsRelay, serveDnsRelay } from '../../dns/relay.ts';

const test = suite('the relay of DNS questions');
const ADDRESS = Buffer.from([192, 0, 2, 5]);
let folder: string;
let server: Server;
let relay: DnsRelay;
let socketPath: string;
/** How the resolver answers the message of a connection. */
let behave: (message: Buffer, socket: Socket) => void;

function framed(message: Buffer): Buffer {
  return Buffer.concat([Buffer.from([message.length >> 8, message.length & 255]), message]);
}

function reply(message: Buffer, socket: Socket): void {
  const question = readQuestion(message)!;
  socket.write(framed(writeAnswer(question, { code: 0, addresses: [{ bytes: ADDRESS, ttl: 9 }] })));
}

test.before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sg-dns-'));
  socketPath = join(folder, 'resolver.sock');
  server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (data) => behave(data.subarray(2), socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  relay = await serveDnsRelay({ socketPath, resolver: { address: '127.0.0.1', port }, logger: silentLogger });
});

test.after(async () => {
  await relay.close();
  server.close();
  await rm(folder, { recursive: true });
});

test.before.each(() => {
  behave = reply;
});

/** Sends everything at once and gives the messages that come back until as many are there or the connection ends. */
async function ask(...messages: readonly Buffer[]): Promise<readonly Buffer[]> {
  const socket = connect(socketPath, () => socket.write(Buffer.concat(messages)));
  let received = Buffer.alloc(0);
  const found: Buffer[] = [];
  for await (const data of socket) {
    received = Buffer.concat([received, data as Buffer]);
    while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
      const end = 2 + received.readUInt16BE(0);
      found.push(received.subarray(2, end));
      received = received.subarray(end);
    }
    if (found.length === messages.length) {
      socket.destroy();
      break;
    }
  }
  return found;
}

const question = (id: number, name = 'x.test') => framed(writeQuestion(id, name, 'A'));

test('only this user may open the socket', async () => {
  assert.is((await stat(socketPath)).mode & 0o777, 0o600);
});

test('many questions of one connection are answered, each with its own id', async () => {
  const ids = Array.from({ length: 200 }, (_, index) => index);
  const answers = await ask(...ids.map((id) => question(id, `n${id}.test`)));
  const found = ids.filter((id) => answers.some((answer) => readAnswer(answer, { id, type: 'A' })?.addresses.length));
  assert.equal(found, ids);
});

test('a message that is no question for addresses ends the connection', async () => {
  let reached = 0;
  behave = () => {
    reached += 1;
  };
  const answers = await ask(framed(Buffer.from('these are bytes of somebody who is no sidecar')), question(1));
  assert.equal(answers, []);
  assert.equal(await ask(Buffer.from([0xff, 0xff, 1, 2, 3])), []);
  assert.is(reached, 0);
});

test('a name that is no host name is answered without asking', async () => {
  let reached = 0;
  behave = () => {
    reached += 1;
  };
  const message = writeQuestion(3, 'a.test', 'A');
  message[13] = 0x20;
  const [answer] = await ask(framed(message));
  assert.is(readAnswer(answer!, { id: 3, type: 'A' })!.code, 3);
  assert.is(reached, 0);
});

test('a resolver that hangs up, refuses or answers another question is a failure', async () => {
  const code = async () => readAnswer((await ask(question(4)))[0]!, { id: 4, type: 'A' })!.code;
  behave = (_message, socket) => socket.destroy();
  assert.is(await code(), 2);
  behave = (message, socket) => socket.write(framed(writeAnswer(readQuestion(message)!, { code: 5, addresses: [] })));
  assert.is(await code(), 2);
  behave = (message, socket) => {
    message[0] = message[0]! ^ 1;
    reply(message, socket);
  };
  assert.is(await code(), 2);
  behave = (message, socket) => socket.write(framed(writeAnswer(readQuestion(message)!, { code: 3, addresses: [] })));
  assert.is(await code(), 3);
});

test.run();
