/**
 * The room `dns/` is the only way from a sandbox to the machine's resolver: it answers questions for the addresses of
 * host names that came through the tunnel of a sidecar, and lets nothing else through. It knows no policy: which
 * sandboxes may ask at all is the sidecar's to say.
 */
import { randomInt } from 'node:crypto';
import { chmod, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import type { Logger } from '../base/logger.ts';
import { counter } from '../base/metrics.ts';
import {
  type AddressType,
  type Answer,
  MAX_QUESTION_BYTES,
  NO_ERROR,
  NO_SUCH_NAME,
  type Question,
  readAnswer,
  readQuestion,
  SERVER_FAILURE,
  writeAnswer,
  writeQuestion,
} from './message.ts';

export interface DnsRelayOptions {
  readonly socketPath: string;
  /** Asked over TCP. */
  readonly resolver: { readonly address: string; readonly port: number };
  readonly logger: Logger;
}

export interface DnsRelay {
  close(): Promise<void>;
}

/** Questions of one connection that wait for their answer; a connection with more is not read meanwhile. */
const MAX_WAITING = 64;
/** Questions of all connections at the resolver; more are answered with a failure. */
const MAX_ASKED = 512;
const MAX_CONNECTIONS = 4096;
/** Shorter than the five seconds that a sidecar waits. */
const ANSWER_MS = 4500;
const IDLE_MS = 30_000;
const FAILED: Answer = { code: SERVER_FAILURE, addresses: [] };

const questionsTotal = counter('sandgate_dns_questions_total', 'Questions of sandboxes at the resolver', ['result']);

/**
 * Serves DNS over TCP on a UNIX socket of mode 0600. A connection ends with the first message that is no question for
 * addresses. Throws when the socket cannot be bound.
 */
export async function serveDnsRelay({ socketPath, resolver, logger }: DnsRelayOptions): Promise<DnsRelay> {
  await rm(socketPath, { force: true });
  const open = new Set<Socket>();
  let asked = 0;
  const answerTo = async ({ name, type }: Question): Promise<Answer> => {
    if (name === null) {
      questionsTotal.inc({ result: 'no-host-name' });
      return { code: NO_SUCH_NAME, addresses: [] };
    }
    if (asked >= MAX_ASKED) {
      questionsTotal.inc({ result: 'overload' });
      return FAILED;
    }
    asked += 1;
    const answer = await askResolver(resolver, name, type).finally(() => {
      asked -= 1;
    });
    questionsTotal.inc({ result: answer === null ? 'failed' : 'answered' });
    const isKnown = answer?.code === NO_ERROR || answer?.code === NO_SUCH_NAME;
    return answer !== null && isKnown ? answer : FAILED;
  };
  const server = createServer((socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    serveConnection(socket, answerTo);
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.on('error', (error) => logger.error({ error: error.message }, 'the relay of DNS questions failed'));
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, () => {
      server.off('error', reject);
      resolve();
    });
  });
  await chmod(socketPath, 0o600);
  return {
    async close() {
      const closed = new Promise<void>((done) => server.close(() => done()));
      for (const socket of open) {
        socket.destroy();
      }
      await closed;
      await rm(socketPath, { force: true });
    },
  };
}

function serveConnection(socket: Socket, answerTo: (question: Question) => Promise<Answer>): void {
  let rest = Buffer.alloc(0);
  let waiting = 0;
  socket.on('error', () => {}); // `close` follows.
  socket.setTimeout(IDLE_MS, () => socket.destroy());
  const readOn = () => {
    while (rest.length >= 2 && waiting < MAX_WAITING) {
      const length = rest.readUInt16BE(0);
      if (length <= MAX_QUESTION_BYTES && rest.length < 2 + length) {
        break;
      }
      const question = length > MAX_QUESTION_BYTES ? null : readQuestion(rest.subarray(2, 2 + length));
      if (question === null) {
        questionsTotal.inc({ result: 'malformed' });
        socket.destroy();
        return;
      }
      rest = rest.subarray(2 + length);
      waiting += 1;
      void answerTo(question).then((answer) => {
        waiting -= 1;
        if (!socket.destroyed) {
          socket.write(framed(writeAnswer(question, answer)));
          socket.resume();
          readOn();
        }
      });
    }
    if (waiting >= MAX_WAITING) {
      socket.pause();
    }
  };
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, data]);
    readOn();
  });
}

/** Asks over a connection of its own; null when no proper answer comes in time. */
function askResolver(resolver: DnsRelayOptions['resolver'], name: string, type: AddressType): Promise<Answer | null> {
  const id = randomInt(0x1_0000);
  return new Promise((resolve) => {
    const socket = connect({ host: resolver.address, port: resolver.port, noDelay: true }, () => {
      socket.write(framed(writeQuestion(id, name, type)));
    });
    const finish = (answer: Answer | null) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(finish, ANSWER_MS, null);
    let received = Buffer.alloc(0);
    socket.on('data', (data) => {
      received = Buffer.concat([received, data]);
      if (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        finish(readAnswer(received.subarray(2, 2 + received.readUInt16BE(0)), { id, type }));
      }
    });
    socket.once('error', () => finish(null));
    socket.once('close', () => finish(null));
  });
}

/** DNS over TCP: two bytes of length before each message. */
function framed(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}
