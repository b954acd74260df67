import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import type { KubeObject } from '../api/object.ts';
import { CodedError, errorText, isCoded } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import type { ListResult, ObjectKey, ObjectStore, Patch, WatchEvent, WatchOptions } from './object-store.ts';
import { Resync } from './resync.ts';
import {
  fromWire,
  INCARNATION,
  MAX_BODY_BYTES,
  type Method,
  requireSocketPath,
  type WatchRequest,
  type WireError,
} from './socket-protocol.ts';

export interface SocketStoreOptions {
  /** The server's socket. It need not be there yet. */
  readonly path: string;
  readonly logger?: Logger;
  /** How long a call waits for a server and its answer before it fails with `unavailable`; default 5 s. */
  readonly callTimeoutMs?: number;
  /** Longest pause between attempts of a watch to connect again; default 1 s. */
  readonly maxBackoffMs?: number;
}

/** Calls at the same time; more wait for their turn. */
const MAX_CALLS = 32;
const FIRST_BACKOFF_MS = 10;

/** The connection never came to be, so the server has seen nothing of the request. */
const NOT_CONNECTED = new Set(['ENOENT', 'ECONNREFUSED', 'EAGAIN', 'EACCES', 'ENOTSOCK']);

/**
 * An {@link ObjectStore} over {@link serveStore}'s socket. While there is no server, calls wait for one and then fail
 * with `unavailable`; a change whose connection broke after it was sent fails at once, since it may have happened.
 * Watches never fail for that: they connect again and go on after the last version that they saw, or list again and
 * tell what differs, deletions included. Only a watch that the caller began at a version ends with `expired`.
 */
export class SocketStore implements ObjectStore {
  readonly #options: SocketStoreOptions;
  readonly #logger: Logger;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: MAX_CALLS });
  readonly #closing = new AbortController();

  /** Throws `invalid` when the path is too long for a socket. */
  constructor(options: SocketStoreOptions) {
    requireSocketPath(options.path);
    this.#options = options;
    this.#logger = options.logger ?? silentLogger;
  }

  async list(kind: string, options: { readonly namespace?: string } = {}): Promise<ListResult> {
    return (await this.#call('list', { kind, options })) as ListResult;
  }

  async get(kind: string, key: ObjectKey): Promise<KubeObject> {
    return (await this.#call('get', { kind, key })) as KubeObject;
  }

  async create(object: KubeObject): Promise<KubeObject> {
    return (await this.#call('create', { object })) as KubeObject;
  }

  async replace(object: KubeObject): Promise<KubeObject> {
    return (await this.#call('replace', { object })) as KubeObject;
  }

  async patch(kind: string, key: ObjectKey, patch: Patch): Promise<KubeObject> {
    return (await this.#call('patch', { kind, key, patch })) as KubeObject;
  }

  async patchStatus(kind: string, key: ObjectKey, patch: Patch): Promise<KubeObject> {
    return (await this.#call('patchStatus', { kind, key, patch })) as KubeObject;
  }

  async delete(kind: string, key: ObjectKey, options: { readonly uid?: string } = {}): Promise<void> {
    await this.#call('delete', { kind, key, options });
  }

  /** Sends a request until a server answers or the time is up. */
  async #call(method: Method, args: object): Promise<unknown> {
    const body = JSON.stringify(args);
    if (Buffer.byteLength(body) > MAX_BODY_BYTES) {
      throw new CodedError('invalid', 'the request is larger than 16 MiB');
    }
    const limit = this.#options.callTimeoutMs ?? 5000;
    const deadline = AbortSignal.timeout(limit);
    const signal = AbortSignal.any([deadline, this.#closing.signal]);
    const reads = method === 'list' || method === 'get';
    for (let pause = FIRST_BACKOFF_MS; ; pause = Math.min(pause * 2, 200)) {
      try {
        return await this.#attempt(method, body, signal);
      } catch (error) {
        if (isCoded(error)) {
          throw error;
        }
        if (signal.aborted || !(reads || isUnsent(error))) {
          throw this.#unavailable(method, error, reads || isUnsent(error));
        }
        await sleep(pause, signal);
        if (signal.aborted) {
          throw this.#unavailable(method, error, true);
        }
      }
    }
  }

  #unavailable(method: Method, cause: unknown, harmless: boolean): CodedError {
    const outcome = harmless ? '' : '; it may have been done';
    const reason = this.#closing.signal.aborted ? 'the client is closed' : errorText(cause);
    return new CodedError('unavailable', `${method}: the store does not answer (${reason})${outcome}`, { cause });
  }

  async #attempt(method: Method, body: string, signal: AbortSignal): Promise<unknown> {
    const response = await this.#send(method, body, signal, this.#agent);
    const chunks: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
    }
    const answer: unknown = JSON.parse(Buffer.concat(chunks).toString());
    if (response.statusCode !== 200) {
      throw fromWire(answer as WireError);
    }
    return answer;
  }

  #send(method: string, body: string, signal: AbortSignal, agent: Agent | false): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const options = {
        socketPath: this.#options.path,
        path: `/v1/${method}`,
        method: 'POST',
        headers: { host: 'store', 'content-length': Buffer.byteLength(body) },
        agent,
        signal,
      };
      const sent: ClientRequest = httpRequest(options, resolve);
      sent.on('error', reject);
      sent.end(body);
    });
  }

  async *watch(kind: string, options: WatchOptions = {}): AsyncGenerator<WatchEvent> {
    const abort = options.signal;
    const signal = abort === undefined ? this.#closing.signal : AbortSignal.any([abort, this.#closing.signal]);
    if (this.#closing.signal.aborted) {
      throw new CodedError('unavailable', 'the client is closed');
    }
    yield* options.resourceVersion === undefined
      ? this.#follow(kind, options.namespace, signal)
      : this.#continue(kind, options, signal);
  }

  /** From all objects on, over any number of connections. */
  async *#follow(kind: string, namespace: string | undefined, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    const resync = new Resync();
    const life = new Life();
    const backoff = new Backoff(this.#options.maxBackoffMs ?? 1000);
    while (!signal.aborted) {
      // Whatever was told of a list that was cut off is told again by the next one, and compared.
      if (resync.version === undefined) {
        resync.restart();
      }
      try {
        for await (const event of this.#stream(kind, namespace, resync.version, life, signal)) {
          backoff.reset();
          yield* resync.take(event);
        }
      } catch (error) {
        if (isCoded(error, 'expired')) {
          resync.restart();
          continue;
        }
        if (isCoded(error) && error.code !== 'unavailable') {
          throw error;
        }
        this.#logger.debug({ kind, error: errorText(error) }, 'a watch lost its connection');
      }
      await backoff.wait(signal);
    }
  }

  /** From a version on: the caller has the objects, so only the caller can list again. */
  async *#continue(kind: string, options: WatchOptions, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    let version = options.resourceVersion;
    const life = new Life();
    const backoff = new Backoff(this.#options.maxBackoffMs ?? 1000);
    while (!signal.aborted) {
      try {
        for await (const event of this.#stream(kind, options.namespace, version, life, signal)) {
          backoff.reset();
          version = event.type === 'bookmark' ? event.resourceVersion : event.object.metadata.resourceVersion;
          yield event;
        }
      } catch (error) {
        if (isCoded(error) && error.code !== 'unavailable') {
          throw error;
        }
        this.#logger.debug({ kind, error: errorText(error) }, 'a watch lost its connection');
      }
      await backoff.wait(signal);
    }
  }

  /** The events of one connection. */
  async *#stream(
    kind: string,
    namespace: string | undefined,
    resourceVersion: string | undefined,
    life: Life,
    signal: AbortSignal,
  ): AsyncGenerator<WatchEvent> {
    const body: WatchRequest = {
      kind,
      ...(namespace === undefined ? {} : { namespace }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(life.id === undefined ? {} : { incarnation: life.id }),
    };
    let response: IncomingMessage | null = null;
    try {
      response = await this.#send('watch', JSON.stringify(body), signal, false);
      life.id = String(response.headers[INCARNATION]);
      let text = '';
      for await (const chunk of response.setEncoding('utf8') as AsyncIterable<string>) {
        const lines = (text + chunk).split('\n');
        text = lines.pop() ?? '';
        for (const line of lines) {
          yield eventOf(line);
        }
      }
      if (text !== '') {
        yield eventOf(text);
      }
    } catch (error) {
      if (!signal.aborted) {
        throw error;
      }
    } finally {
      response?.destroy();
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#agent.destroy();
  }
}

function eventOf(line: string): WatchEvent {
  const event = JSON.parse(line) as WatchEvent | WireError;
  if ('error' in event) {
    throw fromWire(event);
  }
  return event;
}

/** The life of the store that a watch's versions are from. */
class Life {
  id: string | undefined;
}

/** Pauses between attempts: short at first, doubled up to a limit, with a random part so that clients spread. */
class Backoff {
  readonly #max: number;
  #pause = FIRST_BACKOFF_MS;

  constructor(max: number) {
    this.#max = max;
  }

  reset(): void {
    this.#pause = FIRST_BACKOFF_MS;
  }

  async wait(signal: AbortSignal): Promise<void> {
    const pause = this.#pause * (0.75 + Math.random() / 2);
    this.#pause = Math.min(this.#pause * 2, this.#max);
    await sleep(pause, signal);
  }
}

/** Waits; an abort ends it early and without an error. */
function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
    if (signal.aborted) {
      done();
    }
  });
}

function isUnsent(error: unknown): boolean {
  return NOT_CONNECTED.has((error as NodeJS.ErrnoException).code ?? '');
}
