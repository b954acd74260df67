/** Speaks to the egress gateway in the place of a sidecar, with whatever certificate and token a test wants. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { connect as connectTls } from 'node:tls';
import type { Certificate } from '../../identity/certificates.ts';

export interface TunnelOptions {
  readonly socketPath: string;
  readonly caPem: string;
  /** null: no client certificate. */
  readonly certificate: Certificate | null;
}

/** One mutual-TLS HTTP/2 connection to the gateway. */
export class Tunnel {
  readonly #session: ClientHttp2Session;

  constructor({ socketPath, caPem, certificate }: TunnelOptions) {
    this.#session = connect('https://gateway', {
      createConnection: () =>
        connectTls({
          path: socketPath,
          ca: caPem,
          ...(certificate === null ? {} : { cert: certificate.certificatePem, key: certificate.keyPem.reveal() }),
          ALPNProtocols: ['h2'],
          minVersion: 'TLSv1.3',
          checkServerIdentity: () => undefined, // The name is a SPIFFE id; what is tested is the other direction.
        }),
      settings: { enablePush: false },
    });
    this.#session.setMaxListeners(0);
    this.#session.on('error', () => {});
  }

  /** Opens a tunnel to `ip:port`. Resolves with its status, 0 when the stream or the connection broke before one. */
  open(
    authority: string,
    headers: Readonly<Record<string, string>>,
  ): Promise<{ status: number; stream: ClientHttp2Stream }> {
    return new Promise((resolve) => {
      const stream = this.#session.request({
        [constants.HTTP2_HEADER_METHOD]: 'CONNECT',
        [constants.HTTP2_HEADER_AUTHORITY]: authority,
        ...headers,
      });
      const done = (status: number) => resolve({ status, stream });
      stream.once('response', (answer) => done(Number(answer[':status'] ?? 0)));
      stream.once('error', () => done(0));
      stream.once('close', () => done(0));
      this.#session.once('close', () => done(0));
      stream.setTimeout(5000, () => stream.close());
    });
  }

  close(): void {
    this.#session.destroy();
  }
}

function isComplete(text: string): boolean {
  const end = text.indexOf('\r\n\r\n');
  const length = /\r\ncontent-length: ([0-9]+)\r\n/i.exec(text)?.[1];
  return end >= 0 && (length === undefined ? text.endsWith('\r\n0\r\n\r\n') : text.length >= end + 4 + Number(length));
}

/**
 * Sends one HTTP/1.1 request through an open tunnel and ends the tunnel after its answer; gives status and body,
 * status 0 when nothing came back.
 */
export function requestThrough(
  stream: ClientHttp2Stream,
  host: string,
  path: string,
): Promise<{ readonly status: number; readonly body: string }> {
  return new Promise((resolve) => {
    let text = '';
    const done = () => {
      const [head = '', ...body] = text.split('\r\n\r\n');
      resolve({ status: Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1] ?? 0), body: body.join('\r\n\r\n') });
    };
    stream.setEncoding('utf8');
    stream.on('data', (chunk: string) => {
      text += chunk;
      if (isComplete(text)) {
        stream.end();
        done();
      }
    });
    stream.once('end', done);
    stream.once('close', done);
    stream.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  });
}
