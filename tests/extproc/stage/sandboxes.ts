/** Stand-ins for sandboxes: plain servers on addresses of their own, HTTP/1 on one port and HTTP/2 on another. */
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';

export const HTTP_PORT = 34_517;
export const GRPC_PORT = 34_518;

/** What a stand-in tells of a request. */
export interface Echo {
  readonly address: string;
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export class Sandboxes {
  readonly #servers: (Server | Http2Server)[] = [];
  readonly #sessions = new Set<ServerHttp2Session>();
  /** Requests that arrived, by address. */
  readonly arrivals = new Map<string, number>();
  /** Connections that brought HTTP/1 requests, by address. */
  readonly sockets = new Map<string, Set<Socket>>();

  async start(address: string): Promise<void> {
    const http = createServer((request, response) => {
      this.#arrived(address);
      this.sockets.set(address, (this.sockets.get(address) ?? new Set()).add(request.socket));
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const { method = '', url = '', headers } = request;
        const echo: Echo = { address, method, url, headers, body: Buffer.concat(chunks).toString() };
        response.end(JSON.stringify(echo));
      });
    });
    http.on('upgrade', (_, socket) => {
      this.#arrived(address);
      socket.on('error', () => {});
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
      socket.on('data', (chunk: Buffer) => socket.write(`${address} ${chunk}`));
    });
    const grpc = createHttp2Server();
    grpc.on('session', (session) => {
      this.#sessions.add(session);
      session.on('error', () => {});
    });
    grpc.on('stream', (stream) => {
      this.#arrived(address);
      stream.on('error', () => {});
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'x-at': address }));
      stream.resume().on('end', () => stream.end('reply'));
    });
    await listen(http, HTTP_PORT, address);
    await listen(grpc, GRPC_PORT, address);
    this.#servers.push(http, grpc);
  }

  #arrived(address: string): void {
    this.arrivals.set(address, (this.arrivals.get(address) ?? 0) + 1);
  }

  close(): void {
    for (const server of this.#servers) {
      server.close();
      if ('closeAllConnections' in server) {
        server.closeAllConnections();
      }
    }
    for (const session of this.#sessions) {
      session.destroy();
    }
  }
}

function listen(server: Server | Http2Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host, backlog: 4096 }, resolve);
  });
}
