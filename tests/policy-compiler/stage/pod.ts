/** Run in the network namespace of a pod: makes connections as told, one JSON line in, one JSON line out. */
import { createSocket } from 'node:dgram';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { connect as connectTls, type TLSSocket } from 'node:tls';

interface Command {
  readonly id: number;
  readonly kind: 'http' | 'tls' | 'tcp' | 'dns' | 'open' | 'poll' | 'ping';
  readonly address?: string;
  readonly port?: number;
  /** Raw bytes to send. */
  readonly send?: string;
  readonly sni?: string;
  readonly ca?: string;
  readonly name?: string;
  readonly type?: number;
  /** Names a kept connection. */
  readonly key?: string;
}

const DEADLINE_MS = 4000;
const kept = new Map<string, { readonly socket: Socket; closed: boolean }>();

/** Sends, collects what comes until the end of an HTTP/1.1 answer, the end, an error or the deadline. */
function exchange(socket: Socket, send: string, until: (text: string) => boolean): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    const done = (result: string) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => done(text === '' ? 'timeout' : text), DEADLINE_MS);
    socket.on('data', (data) => {
      text += data.toString('latin1');
      if (until(text)) {
        done(text);
      }
    });
    socket.once('end', () => done(text === '' ? 'closed' : text));
    socket.once('error', (error: NodeJS.ErrnoException) => done(text === '' ? `closed ${error.code}` : text));
    socket.write(send, 'latin1');
  });
}

function answered(text: string): boolean {
  const end = text.indexOf('\r\n\r\n');
  const length = /\r\ncontent-length: ([0-9]+)\r\n/i.exec(text)?.[1];
  return end >= 0 && (length === undefined ? text.endsWith('0\r\n\r\n') : text.length >= end + 4 + Number(length));
}

function tcp(address: string, port: number): Promise<Socket | string> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    socket.once('connect', () => resolve(socket));
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(`closed ${error.code}`));
  });
}

function tls(command: Command): Promise<TLSSocket | string> {
  return new Promise((resolve) => {
    const { address, port, sni, ca } = command;
    const socket = connectTls({
      host: address!,
      port: port!,
      ...(sni === undefined || sni === '' ? {} : { servername: sni }),
      rejectUnauthorized: false,
      ca,
      checkServerIdentity: () => undefined,
      timeout: DEADLINE_MS,
    });
    socket.once('secureConnect', () => resolve(socket));
    socket.once('timeout', () => resolve('timeout'));
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(`closed ${error.code}`));
  });
}

/** One question over UDP; the answers as texts, or the response code. */
function dns(name: string, type: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    const labels = name.split('.').flatMap((label) => [Buffer.from([label.length]), Buffer.from(label)]);
    const header = Buffer.from([0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    const query = Buffer.concat([header, ...labels, Buffer.from([0, 0, type, 0, 1])]);
    const timer = setTimeout(() => done('timeout'), DEADLINE_MS);
    const done = (text: string) => {
      clearTimeout(timer);
      socket.close();
      resolve(text);
    };
    socket.once('message', (answer) => {
      const count = answer.readUInt16BE(6);
      const code = answer[3]! & 15;
      done(count === 0 ? `rcode ${code}` : [...answer.subarray(-4)].join('.'));
    });
    socket.send(query, 53, '9.9.9.9');
  });
}

async function run(command: Command): Promise<string> {
  const { kind, address = '', port = 0, send = '', key = '' } = command;
  switch (kind) {
    case 'ping':
      return 'pong';
    case 'dns':
      return dns(command.name!, command.type!);
    case 'http':
    case 'tcp': {
      const socket = await tcp(address, port);
      return typeof socket === 'string' ? socket : exchange(socket, send, kind === 'http' ? answered : () => true);
    }
    case 'tls': {
      const socket = await tls(command);
      if (typeof socket === 'string') {
        return socket;
      }
      const peer = socket.authorized ? 'intercepted' : 'origin';
      return `${peer}\n${await exchange(socket, send, answered)}`;
    }
    case 'open': {
      const socket = await tcp(address, port);
      if (typeof socket === 'string') {
        return socket;
      }
      const entry = { socket, closed: false };
      kept.set(key, entry);
      socket.on('close', () => {
        entry.closed = true;
      });
      socket.on('error', () => {});
      socket.write(send);
      return new Promise((resolve) => {
        socket.once('data', (data) => resolve(String(data)));
        socket.once('close', () => resolve('closed'));
      });
    }
    case 'poll':
      return kept.get(key)?.closed === true ? 'closed' : 'open';
  }
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const command = JSON.parse(line) as Command;
  void run(command).then((result) => process.stdout.write(`${JSON.stringify({ id: command.id, result })}\n`));
});
