/** Clients of the ingress socket. */
import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import type { Echo } from './sandboxes.ts';

export interface Reply {
  /** 0: no answer, because it failed or was cancelled. */
  readonly status: number;
  readonly body: string;
  readonly headers: IncomingHttpHeaders;
}

export interface Sent {
  readonly host: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Sent with POST. */
  readonly body?: string | Buffer;
  readonly signal?: AbortSignal;
}

const agent = new Agent({ keepAlive: false });
const DEADLINE_MS = 30_000;

/** One HTTP/1 request on a connection of its own. */
export function ask(socketPath: string, { host, path = '/', headers = {}, body, signal }: Sent): Promise<Reply> {
  return new Promise((resolve) => {
    const failed = () => resolve({ status: 0, body: '', headers: {} });
    const sent = request(
      {
        socketPath,
        path,
        agent,
        method: body === undefined ? 'GET' : 'POST',
        headers: { host, ...(headers as Record<string, string>) },
        timeout: DEADLINE_MS,
        ...(signal === undefined ? {} : { signal }),
      },
      (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        answer.once('end', () => resolve({ status: answer.statusCode ?? 0, body: text, headers: answer.headers }));
        answer.once('error', failed);
      },
    );
    sent.once('timeout', () => sent.destroy());
    sent.once('error', failed);
    sent.end(body);
  });
}

/** What the sandbox told, or the status and text of the gateway's own answer. */
export function echoOf({ status, body }: Reply): Echo {
  if (status !== 200) {
    throw new Error(`answered ${status} ${body}`);
  }
  return JSON.parse(body) as Echo;
}

/** A gRPC call over HTTP/2: `status grpc-status x-at body`. */
export async function callGrpc(socketPath: string, host: string, token: string): Promise<string> {
  const session = connectHttp2(`http://${host}`, { createConnection: () => connect(socketPath) });
  try {
    return await new Promise<string>((resolve, reject) => {
      session.once('error', reject);
      const stream = session.request({
        ':method': 'POST',
        ':path': '/pkg.Service/Call',
        'content-type': 'application/grpc',
        te: 'trailers',
        'x-access-token': token,
      });
      stream.setTimeout(DEADLINE_MS, () => stream.destroy(new Error('no answer')));
      let seen = '';
      let body = '';
      const note = (headers: IncomingHttpHeaders) => {
        for (const name of [':status', 'grpc-status', 'grpc-message', 'x-at']) {
          seen += headers[name] === undefined ? '' : `${String(headers[name])} `;
        }
      };
      stream.once('response', note);
      stream.once('trailers', note);
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      stream.once('error', reject);
      stream.once('end', () => resolve(seen + body));
      stream.end('request');
    });
  } finally {
    session.destroy();
  }
}

/** A WebSocket handshake and one frame's worth of bytes: the status line and what came back. */
export function upgrade(socketPath: string, host: string, token: string): Promise<readonly [string, string]> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    let text = '';
    let status = '';
    socket.setTimeout(DEADLINE_MS, () => socket.destroy(new Error('no answer')));
    socket.once('error', reject);
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const end = text.indexOf('\r\n\r\n');
      if (status === '' && end >= 0) {
        status = text.slice(0, text.indexOf('\r\n'));
        text = text.slice(end + 4);
        socket.write('hello');
      }
      if (status !== '' && (text !== '' || !status.includes(' 101 '))) {
        socket.destroy();
        resolve([status, text]);
      }
    });
    socket.write(
      `GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-access-token: ${token}\r\n\r\n`,
    );
  });
}
