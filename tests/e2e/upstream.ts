import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { CertificateAuthority } from '../../identity/certificates.ts';

/** A request that arrived at the upstream. */
export interface Seen {
  readonly scheme: string;
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
}

/** An upstream on loopback that counts what reaches it. */
export interface Upstream {
  readonly httpPort: number;
  readonly httpsPort: number;
  readonly caPem: string;
  readonly seen: Seen[];
  /** Connections that were accepted, and bytes that arrived on them. */
  connections(): number;
  bytes(): number;
  close(): Promise<void>;
}

const DAY_MS = 86_400_000;

/** Starts an HTTP and an HTTPS server whose certificate holds `name`; both answer `{"path": …}`. */
export async function startUpstream(name: string): Promise<Upstream> {
  const now = Date.now();
  const authority = await CertificateAuthority.create('test upstream', { now, lifetimeMs: DAY_MS });
  const leaf = await authority.issueLeaf(name, { now, lifetimeMs: DAY_MS });
  const seen: Seen[] = [];
  let connections = 0;
  let ended = 0;
  const sockets = new Set<Socket>();
  const count = (server: Server, scheme: string) => {
    server.keepAliveTimeout = 0; // Whoever ends an idle connection, it is not this server.
    server.on('connection', (socket: Socket) => {
      connections += 1;
      sockets.add(socket);
      socket.once('close', () => {
        ended += socket.bytesRead;
        sockets.delete(socket);
      });
    });
    server.on('request', (request, response) => {
      seen.push({ scheme, method: request.method ?? '', path: request.url ?? '', headers: request.headers });
      request.resume();
      request.once('end', () => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ scheme, path: request.url, headers: request.headers }));
      });
    });
  };
  const plain = createServer();
  const secure = createSecureServer({ cert: leaf.certificatePem, key: leaf.keyPem.reveal() });
  count(plain, 'http');
  count(secure as unknown as Server, 'https');
  const ports = await Promise.all([plain, secure].map(listen));
  return {
    httpPort: ports[0]!,
    httpsPort: ports[1]!,
    caPem: authority.certificatePem,
    seen,
    connections: () => connections,
    bytes: () => ended + [...sockets].reduce((sum, socket) => sum + socket.bytesRead, 0),
    async close() {
      for (const socket of sockets) {
        socket.destroy();
      }
      await Promise.all([plain, secure].map((server) => new Promise((resolve) => server.close(resolve))));
    },
  };
}

function listen(server: {
  listen(port: number, host: string, done: () => void): unknown;
  address(): unknown;
}): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}
