import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { joinHostPort } from '../base/addresses.ts';
import { CodedError, errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';

/** A request of a route: its parameters and its parsed JSON body. */
export interface ApiRequest {
  readonly query: URLSearchParams;
  readonly body: unknown;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
  /** Writes one JSON line of a streaming answer; the first call sends the headers. */
  line(value: unknown): void;
}

/** Gives the JSON answer, or undefined after it has streamed lines. */
export type ApiHandler = (request: ApiRequest) => Promise<unknown>;

/** Where an API listens: a UNIX socket that only this user may enter (mode 0600), or TCP. */
export type ApiAddress =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

export interface ApiOptions {
  readonly address: ApiAddress;
  /** By `METHOD /path`. */
  readonly routes: Readonly<Record<string, ApiHandler>>;
  readonly logger: Logger;
  /** Throws for a caller that may not ask; called before anything of the request is read. */
  readonly admit?: (incoming: IncomingMessage) => void;
  /** Answers what no route answers; without it that is `not-found`. */
  readonly otherwise?: (incoming: IncomingMessage, response: ServerResponse) => Promise<void>;
}

export interface ApiServer {
  /** `unix:PATH` or `HOST:PORT`, as bound. */
  readonly address: string;
  close(): Promise<void>;
}

const MAX_BODY_BYTES = 16 * 1024 * 1024;

const STATUS: Readonly<Record<string, number>> = {
  invalid: 400,
  'no-terminal': 400,
  forbidden: 403,
  'not-found': 404,
  conflict: 409,
  paused: 409,
  'not-running': 409,
  'too-large': 413,
  unavailable: 503,
};

/**
 * Serves JSON routes. An error is answered as `{"error": {code, message, fields}}`. Throws `address-in-use` or
 * `address-unavailable`.
 */
export async function serveApi(options: ApiOptions): Promise<ApiServer> {
  const { address } = options;
  const server = createServer((incoming, response) => void respond(options, incoming, response));
  await listen(server, address);
  return {
    address: boundAddress(server, address),
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      if (address.kind === 'unix') {
        await rm(address.path, { force: true });
      }
    },
  };
}

async function listen(server: Server, address: ApiAddress): Promise<void> {
  if (address.kind === 'unix') {
    await rm(address.path, { force: true });
  }
  const where = address.kind === 'unix' ? `unix:${address.path}` : joinHostPort(address.host, address.port);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(
        error.code === 'EADDRINUSE'
          ? new CodedError('address-in-use', `${where} is in use by another program`)
          : new CodedError('address-unavailable', `cannot listen on ${where}: ${error.message}`),
      );
    });
    // The socket is made within this call; there is no moment in which another user could enter it.
    const mask = process.umask(0o177);
    server.listen(address.kind === 'unix' ? { path: address.path } : address, resolve);
    process.umask(mask);
  });
}

function boundAddress(server: Server, address: ApiAddress): string {
  const bound = server.address();
  return address.kind === 'unix'
    ? `unix:${address.path}`
    : joinHostPort(address.host, typeof bound === 'object' && bound !== null ? bound.port : address.port);
}

async function respond(options: ApiOptions, incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const { routes, logger, admit, otherwise } = options;
  const [path = '', query = ''] = (incoming.url ?? '/').split('?', 2);
  const key = `${incoming.method} ${path}`;
  try {
    admit?.(incoming);
    const handler = Object.hasOwn(routes, key) ? routes[key] : undefined;
    if (handler !== undefined) {
      await run(handler, query, incoming, response);
    } else if (otherwise !== undefined) {
      await otherwise(incoming, response);
    } else {
      throw new CodedError('not-found', `there is no ${key}`);
    }
  } catch (error) {
    if (!(error instanceof CodedError)) {
      logger.error({ route: key, error: errorText(error) }, 'a request of the API failed');
    }
    sendError(response, error);
  }
}

async function run(
  handler: ApiHandler,
  query: string,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const abort = new AbortController();
  response.on('close', () => abort.abort());
  const value = await handler({
    query: new URLSearchParams(query),
    body: await readJson(incoming),
    signal: abort.signal,
    line(entry) {
      if (!response.headersSent) {
        response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      }
      response.write(`${JSON.stringify(entry)}\n`);
    },
  });
  if (value === undefined) {
    response.end();
  } else {
    sendJson(response, 200, value);
  }
}

/** An answer that has begun cannot become an error any more: it is cut off, so that nobody takes it for whole. */
function sendError(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const coded = error instanceof CodedError ? error : null;
  const code = coded?.code ?? 'internal';
  sendJson(response, STATUS[code] ?? 500, { error: { code, message: errorText(error), fields: coded?.fields ?? [] } });
}

function sendJson(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

async function readJson(incoming: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of incoming) {
    size += (chunk as Buffer).length;
    if (size > MAX_BODY_BYTES) {
      throw new CodedError('too-large', `the body is larger than ${MAX_BODY_BYTES} bytes`);
    }
    chunks.push(chunk as Buffer);
  }
  const text = Buffer.concat(chunks).toString('utf8');
  if (text === '') {
    return null;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new CodedError('invalid', 'the body is no JSON');
  }
}
