import { lstatSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { LRUCache } from 'lru-cache';
import type { KubeObject } from '../api/object.ts';
import { CodedError, errorText, isCoded } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import { expired } from './history.ts';
import { isMap } from './json.ts';
import type { ObjectKey, ObjectStore, Patch, WatchEvent } from './object-store.ts';
import { INCARNATION, MAX_BODY_BYTES, requireSocketPath, toWire, type WatchRequest } from './socket-protocol.ts';

export interface StoreServerOptions {
  readonly store: ObjectStore;
  /** Where to listen. A socket of that name is replaced: the caller holds the store's lock, so nobody listens on it. */
  readonly path: string;
  /** Names the life of the store's state; versions of another life are answered with `expired`. */
  readonly incarnation: string;
  readonly logger?: Logger;
}

/** A running server. */
export interface StoreServer {
  /** Ends every watch and connection and removes the socket; the store stays open. */
  close(): Promise<void>;
}

/**
 * Serves a store on a UNIX socket of mode 0600 (D32): who may open it is trusted. Throws `invalid` when the path is too
 * long, `unavailable` when it cannot be listened on.
 */
export async function serveStore(options: StoreServerOptions): Promise<StoreServer> {
  const { path } = options;
  requireSocketPath(path);
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket()) {
    rmSync(path);
  }
  const handler = new Handler(options);
  const server = createServer({ requestTimeout: 0, keepAliveTimeout: 0 }, (request, response) => {
    void handler.handle(request, response);
  });
  await listen(server, path);
  return {
    close: async () => {
      handler.close();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

async function listen(server: Server, path: string): Promise<void> {
  // The socket is made inside `listen`, with no moment at which others could connect.
  const umask = process.umask(0o177);
  const listening = new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => resolve());
  });
  process.umask(umask);
  try {
    await listening;
  } catch (error) {
    throw new CodedError('unavailable', `cannot listen on ${path}: ${errorText(error)}`, { cause: error });
  }
}

/** Bytes that a watch collects before it writes; less is written in the next turn of the event loop. */
const CHUNK_BYTES = 64 * 1024;

class Handler {
  readonly #options: StoreServerOptions;
  readonly #logger: Logger;
  readonly #abort = new AbortController();
  /** Several processes watch the same kinds: each object is made to text once. */
  readonly #texts = new LRUCache<KubeObject, string>({ max: 256 });

  constructor(options: StoreServerOptions) {
    this.#options = options;
    this.#logger = options.logger ?? silentLogger;
  }

  close(): void {
    this.#abort.abort();
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.setHeader('content-type', 'application/json');
    response.setHeader(INCARNATION, this.#options.incarnation);
    try {
      const method = /^\/v1\/([a-zA-Z]+)$/.exec(request.url ?? '')?.[1] ?? '';
      if (request.method !== 'POST') {
        throw new CodedError('invalid', 'the store is asked by POST /v1/<method>');
      }
      const body = await readBody(request);
      if (method === 'watch') {
        await this.#watch(body as unknown as WatchRequest, response);
      } else {
        const result = await this.#call(method, body);
        response.end(JSON.stringify(result ?? null));
      }
    } catch (error) {
      this.#fail(response, error);
    }
  }

  #fail(response: ServerResponse, error: unknown): void {
    if (!isCoded(error)) {
      this.#logger.error({ error: errorText(error) }, 'a request to the store failed');
    }
    const text = JSON.stringify(toWire(error));
    if (response.headersSent) {
      response.end(`${text}\n`);
    } else {
      response.statusCode = 400;
      response.end(text);
    }
  }

  async #call(method: string, body: Readonly<Record<string, unknown>>): Promise<unknown> {
    const { store } = this.#options;
    const kind = String(body['kind']);
    const options = isMap(body['options']) ? body['options'] : {};
    switch (method) {
      case 'list':
        return store.list(kind, options);
      case 'get':
        return store.get(kind, keyOf(body));
      case 'create':
        return store.create(body['object'] as KubeObject);
      case 'replace':
        return store.replace(body['object'] as KubeObject);
      case 'patch':
        return store.patch(kind, keyOf(body), body['patch'] as Patch);
      case 'patchStatus':
        return store.patchStatus(kind, keyOf(body), body['patch'] as Patch);
      case 'delete':
        return store.delete(kind, keyOf(body), options);
      default:
        throw new CodedError('invalid', `the store has no method ${JSON.stringify(method)}`);
    }
  }

  async #watch(body: WatchRequest, response: ServerResponse): Promise<void> {
    const { store, incarnation } = this.#options;
    const { kind, namespace, resourceVersion } = body;
    if (resourceVersion !== undefined && body.incarnation !== undefined && body.incarnation !== incarnation) {
      throw expired(resourceVersion);
    }
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const signal = AbortSignal.any([gone.signal, this.#abort.signal]);
    const writer = new LineWriter(response);
    const events = store.watch(kind, {
      signal,
      ...(namespace === undefined ? {} : { namespace }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    });
    response.flushHeaders();
    for await (const event of events) {
      await writer.write(this.#line(event));
    }
    writer.flush();
    response.end();
  }

  #line(event: WatchEvent): string {
    if (event.type === 'bookmark') {
      return `${JSON.stringify(event)}\n`;
    }
    let text = this.#texts.get(event.object);
    if (text === undefined) {
      text = JSON.stringify(event.object);
      this.#texts.set(event.object, text);
    }
    return `{"type":"${event.type}","object":${text}}\n`;
  }
}

/** Joins the lines of one turn of the event loop into one write, and waits while the reader is slow. */
class LineWriter {
  readonly #response: ServerResponse;
  #lines = '';
  #scheduled = false;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  async write(line: string): Promise<void> {
    this.#lines += line;
    if (this.#lines.length >= CHUNK_BYTES) {
      this.flush();
    } else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(() => this.flush());
    }
    await this.#drained();
  }

  flush(): void {
    this.#scheduled = false;
    if (this.#lines !== '' && !this.#response.destroyed && !this.#response.writableEnded) {
      this.#response.write(this.#lines);
    }
    this.#lines = '';
  }

  async #drained(): Promise<void> {
    const response = this.#response;
    if (response.writableNeedDrain && !response.destroyed) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          response.off('drain', done);
          response.off('close', done);
          resolve();
        };
        response.on('drain', done);
        response.on('close', done);
      });
    }
  }
}

function keyOf(body: Readonly<Record<string, unknown>>): ObjectKey {
  const key = body['key'];
  if (!isMap(key) || typeof key['name'] !== 'string') {
    throw new CodedError('invalid', 'key: {namespace, name} expected');
  }
  return { namespace: typeof key['namespace'] === 'string' ? key['namespace'] : '', name: key['name'] };
}

async function readBody(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    // The rest is read and dropped, so that the client gets the answer and not a broken pipe.
    if (length <= MAX_BODY_BYTES) {
      chunks.push(chunk);
    } else {
      chunks.length = 0;
    }
  }
  if (length > MAX_BODY_BYTES) {
    throw new CodedError('invalid', 'the request is larger than 16 MiB');
  }
  let body: unknown;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw new CodedError('invalid', 'the request is not JSON');
  }
  if (!isMap(body)) {
    throw new CodedError('invalid', 'the request must be a map');
  }
  return body;
}
