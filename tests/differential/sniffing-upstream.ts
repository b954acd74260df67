import { once } from 'node:events';
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { isLeafName } from '../../identity/certificates.ts';
import type { Pki } from '../../identity/pki-directory.ts';

/** A request as it arrived. */
export interface Arrived {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

/**
 * One upstream for everything: on every port it takes HTTP, TLS with HTTP inside, or raw bytes, whichever comes, and
 * counts connections that showed any bytes.
 */
export class SniffingUpstream {
  readonly #http = createHttp({ keepAlive: false }, answer);
  readonly #servers: Server[] = [];
  readonly #contexts = new Map<string, Promise<SecureContext>>();
  readonly #pki: Pki;
  #arrivals = 0;

  constructor(pki: Pki) {
    this.#pki = pki;
  }

  /** Connections whose first bytes have arrived. */
  get arrivals(): number {
    return this.#arrivals;
  }

  /** Listens on these ports of every address, 0 for a free one; answers the ports taken. */
  async listen(ports: readonly number[]): Promise<readonly number[]> {
    const taken: number[] = [];
    for (const port of ports) {
      const server = createServer((socket) => this.#take(socket));
      server.listen(port, '::');
      await once(server, 'listening');
      this.#servers.push(server);
      taken.push((server.address() as AddressInfo).port);
    }
    return taken;
  }

  close(): void {
    this.#http.closeAllConnections();
    for (const server of this.#servers) {
      server.close();
    }
  }

  #take(socket: Socket): void {
    socket.on('error', () => {});
    socket.once('data', (first: Buffer) => {
      this.#arrivals += 1;
      socket.pause();
      socket.unshift(first);
      if (first[0] === 0x16) {
        void this.#secure(socket);
      } else if (/^[A-Z]+ [^ ]+ HTTP\/1\.[01]\r?\n/.test(first.toString('latin1'))) {
        this.#http.emit('connection', socket);
        socket.resume();
      } else {
        socket.resume();
        socket.on('data', (data: Buffer) => socket.write(Buffer.concat([Buffer.from('echo '), data])));
      }
    });
  }

  async #secure(socket: Socket): Promise<void> {
    const secure = new TLSSocket(socket, {
      isServer: true,
      secureContext: await this.#context('origin.test'),
      SNICallback: (name, done) => {
        this.#context(leafNameOf(name)).then(
          (context) => done(null, context),
          (error: Error) => done(error),
        );
      },
    });
    secure.on('error', () => {});
    this.#http.emit('connection', secure);
  }

  #context(name: string): Promise<SecureContext> {
    const known = this.#contexts.get(name);
    if (known !== undefined) {
      return known;
    }
    const made = this.#pki
      .issueLeaf(name)
      .then(({ certificatePem, keyPem }) => createSecureContext({ cert: certificatePem, key: keyPem.reveal() }));
    this.#contexts.set(name, made);
    return made;
  }
}

/** A server knows its names in any case. */
function leafNameOf(name: string): string {
  const lower = name.toLowerCase();
  return isLeafName(lower) ? lower : 'origin.test';
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  request.resume();
  request.once('end', () => {
    const { method = '', url = '', headers } = request;
    const text = JSON.stringify({ method, url, headers } satisfies Arrived);
    response.setHeader('content-length', Buffer.byteLength(text));
    response.end(text);
  });
}
