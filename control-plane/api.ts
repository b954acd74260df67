import { chmod, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
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

const MAX_BODY_BYTES = 16 * 1024 * 1024;

const STATUS: Readonly<Record<string, number>> = { 'not-found': 404, invalid: 400, conflict: 409, unavailable: 503 };

/**
 * Serves JSON routes (`GET /path`, `POST /path`) on a UNIX socket that only this user may enter. An error is answered
 * as `{"error": {code, message, fields}}`.
 */
export async function serveApi(
  socketPath: string,
  routes: Readonly<Record<string, ApiHandler>>,
  logger: Logger,
): Promise<{ readonly server: Server; close(): Promise<void> }> {
  await rm(socketPath, { force: true });
  const server = createServer((request, response) => {
    void answer(request, response, routes, logger);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, resolve);
  });
  await chmod(socketPath, 0o600);
  return {
    server,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      await rm(socketPath, { force: true });
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  routes: Readonly<Record<string, ApiHandler>>,
  logger: Logger,
): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://local');
  const abort = new AbortController();
  response.on('close', () => abort.abort());
  try {
    const handler = routes[`${request.method} ${url.pathname}`];
    if (handler === undefined) {
      throw new CodedError('not-found', `there is no ${request.method} ${url.pathname}`);
    }
    const value = await handler({
      query: url.searchParams,
      body: await readJson(request),
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
      send(response, 200, value);
    }
  } catch (error) {
    if (!(error instanceof CodedError)) {
      logger.error({ route: url.pathname, error: errorText(error) }, 'a request of the API failed');
    }
    const code = error instanceof CodedError ? error.code : 'internal';
    const fields = error instanceof CodedError ? error.fields : [];
    send(response, STATUS[code] ?? 500, { error: { code, message: errorText(error), fields } });
  }
}

function send(response: ServerResponse, status: number, value: unknown): void {
  if (response.headersSent) {
    response.end();
    return;
  }
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += (chunk as Buffer).length;
    if (size > MAX_BODY_BYTES) {
      throw new CodedError('invalid', `the body is larger than ${MAX_BODY_BYTES} bytes`);
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
