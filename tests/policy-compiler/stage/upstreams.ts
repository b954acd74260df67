/** What the gateway reaches: HTTP, HTTPS and echo servers that say what arrived, and a TCP name server. */

import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createHttp } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { createServer, type Server } from 'node:net';
import type { Pki } from '../../../identity/pki-directory.ts';

/** Counts and closes what was started. */
export class Upstreams {
  readonly #servers: Server[] = [];
  /** Connections that arrived, as `address:port`. */
  readonly arrivals: string[] = [];

  async #listen(server: Server, address: string, port: number): Promise<void> {
    server.on('connection', () => this.arrivals.push(`${address}:${port}`));
    server.listen(port, address);
    await once(server, 'listening');
    this.#servers.push(server);
  }

  /** Answers with what it received, as JSON. */
  http(address: string, port: number): Promise<void> {
    return this.#listen(createHttp(echo(address, port)), address, port);
  }

  async https(address: string, port: number, names: readonly string[], pki: Pki): Promise<void> {
    const contexts = new Map<string, { cert: string; key: string }>();
    for (const name of names) {
      const { certificatePem, keyPem } = await pki.issueLeaf(name);
      contexts.set(name, { cert: certificatePem, key: keyPem.reveal() });
    }
    const first = contexts.get(names[0]!)!;
    const server = createHttps({ ...first }, echo(address, port));
    for (const [name, context] of contexts) {
      server.addContext(name, context);
    }
    await this.#listen(server, address, port);
  }

  /** Sends back every byte after its own address. */
  echo(address: string, port: number): Promise<void> {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (data) => socket.write(`${address}:${port} ${data.toString('latin1')}`));
    });
    return this.#listen(server, address, port);
  }

  /** Speaks first, as mail servers do. */
  banner(address: string, port: number): Promise<void> {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.write('220 ready');
    });
    return this.#listen(server, address, port);
  }

  /** Answers A questions over TCP from a table; anything else with NXDOMAIN. */
  async names(port: number, table: Readonly<Record<string, string>>): Promise<void> {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      let rest = Buffer.alloc(0);
      socket.on('data', (data) => {
        rest = Buffer.concat([rest, data]);
        while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE(0)) {
          const length = rest.readUInt16BE(0);
          const answer = reply(rest.subarray(2, 2 + length), table);
          const size = Buffer.alloc(2);
          size.writeUInt16BE(answer.length);
          socket.write(Buffer.concat([size, answer]));
          rest = rest.subarray(2 + length);
        }
      });
    });
    await this.#listen(server, '127.0.0.1', port);
  }

  close(): void {
    for (const server of this.#servers) {
      server.close();
      (server as Server & { closeAllConnections?(): void }).closeAllConnections?.();
    }
  }
}

function echo(address: string, port: number) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const { method, url, headers, rawHeaders } = request;
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString('utf8');
      const text = JSON.stringify({ at: `${address}:${port}`, method, url, headers, raw: rawHeaders, body });
      response.setHeader('content-length', Buffer.byteLength(text));
      response.end(text);
    });
  };
}

function reply(query: Buffer, table: Readonly<Record<string, string>>): Buffer {
  const labels: string[] = [];
  let at = 12;
  while (query[at] !== 0) {
    const length = query[at]!;
    labels.push(query.subarray(at + 1, at + 1 + length).toString('latin1'));
    at += length + 1;
  }
  const type = query.readUInt16BE(at + 1);
  const name = labels.join('.').toLowerCase();
  const address = table[name];
  const question = query.subarray(12, at + 5);
  const answers = address !== undefined && type === 1 ? 1 : 0;
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(address === undefined ? 0x8183 : 0x8180, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(answers, 6);
  header.writeUInt32BE(0, 8);
  const record =
    answers === 0
      ? []
      : [Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]), Buffer.from(address!.split('.').map(Number))];
  return Buffer.concat([header, question, ...record]);
}
