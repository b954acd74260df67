import { randomBytes, timingSafeEqual } from 'node:crypto';
import { chmod, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { CodedError, errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Redacted } from '../base/redacted.ts';
import { execSpec } from '../local/exec.ts';
import type { Layout } from '../local/layout.ts';
import { readSettings } from '../local/settings.ts';
import type { DirectoryStore } from '../store/directory.ts';

/** Where Sandgate's own API listens (D22): a UNIX socket of this user, or loopback TCP with a bearer token. */
export type AdminAddress =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

export interface AdminServer {
  /** `unix:PATH` or `HOST:PORT`, as bound. */
  readonly address: string;
  /** What TCP callers must send as `Authorization: Bearer …`; null on a UNIX socket. */
  readonly token: Redacted | null;
  close(): Promise<void>;
}

export interface AdminOptions {
  readonly address: AdminAddress;
  readonly layout: Layout;
  readonly store: DirectoryStore;
  /** State of the components, for `GET /components`. */
  readonly components: () => unknown;
  readonly logger: Logger;
}

const MAX_BODY_BYTES = 1024 * 1024;

/** Parses `unix:PATH` or `HOST:PORT`; only loopback hosts are accepted. Throws `usage`. */
export function parseAdminAddress(text: string): AdminAddress {
  if (text.startsWith('unix:/')) {
    return { kind: 'unix', path: text.slice('unix:'.length) };
  }
  const match = /^(localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]):([0-9]{1,5})$/.exec(text);
  if (match === null || Number(match[2]) > 65_535) {
    throw new CodedError('usage', `--admin ${text}: give unix:/PATH, or HOST:PORT on loopback`);
  }
  return { kind: 'tcp', host: match[1]!.replace(/^\[|\]$/g, ''), port: Number(match[2]) };
}

/**
 * Serves Sandgate's own API. `POST /exec`, `GET /problems` and `GET /components` are answered here; everything else is
 * the control plane's and passed on to its socket.
 */
export async function startAdminServer(options: AdminOptions): Promise<AdminServer> {
  const { address, logger } = options;
  const token = address.kind === 'tcp' ? new Redacted(randomBytes(32).toString('base64url')) : null;
  const server = createServer((incoming, response) => {
    handle(options, token, incoming, response).catch((error: unknown) => {
      if (!(error instanceof CodedError)) {
        logger.error({ error: errorText(error) }, 'a request of the admin API failed');
      }
      answerError(response, error);
    });
  });
  await listen(server, address);
  const bound = server.address();
  const at =
    address.kind === 'unix'
      ? `unix:${address.path}`
      : `${address.host}:${typeof bound === 'object' && bound !== null ? bound.port : address.port}`;
  return {
    address: at,
    token,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      if (address.kind === 'unix') {
        await rm(address.path, { force: true });
      }
    },
  };
}

async function listen(server: Server, address: AdminAddress): Promise<void> {
  if (address.kind === 'unix') {
    await rm(address.path, { force: true });
  }
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: Error) => {
      reject(new CodedError('address-unavailable', `the admin API cannot listen: ${error.message}`));
    });
    if (address.kind === 'unix') {
      server.listen(address.path, resolve);
    } else {
      server.listen({ host: address.host, port: address.port }, resolve);
    }
  });
  if (address.kind === 'unix') {
    await chmod(address.path, 0o600);
  }
}

async function handle(
  options: AdminOptions,
  token: Redacted | null,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (token !== null) {
    admit(incoming, token);
  }
  const url = new URL(incoming.url ?? '/', 'http://admin');
  switch (`${incoming.method} ${url.pathname}`) {
    case 'POST /exec':
      return answer(response, await exec(options, await readJson(incoming)));
    case 'GET /problems':
      return answer(response, { problems: options.store.problems() });
    case 'GET /components':
      return answer(response, { components: options.components() });
    default:
      return forward(options.layout.socket('control-plane'), incoming, response);
  }
}

/** TCP callers: the token, and no Host or Origin that a page of another site would have (D22). */
function admit(incoming: IncomingMessage, token: Redacted): void {
  const host = (incoming.headers.host ?? '').replace(/:[0-9]+$/, '');
  const origin = incoming.headers.origin;
  const given = Buffer.from(incoming.headers.authorization ?? '');
  const wanted = Buffer.from(`Bearer ${token.reveal()}`);
  const own = ['localhost', '127.0.0.1', '[::1]'].includes(host);
  if (!own || origin !== undefined || given.length !== wanted.length || !timingSafeEqual(given, wanted)) {
    throw new CodedError('forbidden', 'the admin API needs its bearer token and a loopback Host');
  }
}

async function exec({ store, layout }: AdminOptions, body: unknown): Promise<unknown> {
  const { sandbox, container, command, tty } = (body ?? {}) as Record<string, unknown>;
  const fields: [string, boolean][] = [
    ['sandbox', typeof sandbox === 'string' && sandbox.includes('/')],
    ['command', Array.isArray(command) && command.length > 0 && command.every((word) => typeof word === 'string')],
    ['container', container === undefined || typeof container === 'string'],
  ];
  const wrong = fields.find(([, right]) => !right);
  if (wrong !== undefined) {
    throw new CodedError('invalid', `${wrong[0]}: is missing or has the wrong type`);
  }
  const [namespace = '', name = ''] = (sandbox as string).split('/', 2);
  const target = { namespace, name, ...(container === undefined ? {} : { container: container as string }) };
  const plane = { store, layout, settings: await readSettings(layout.dir) };
  const { argv, env } = await execSpec(plane, target, { command: command as string[], tty: tty === true });
  return { argv, env: env.reveal() };
}

function forward(socketPath: string, incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const { host: _host, authorization: _authorization, ...headers } = incoming.headers;
    const onward = request({ socketPath, method: incoming.method, path: incoming.url, headers }, (answered) => {
      response.writeHead(answered.statusCode ?? 502, answered.headers);
      answered.pipe(response);
      answered.once('end', resolve);
      answered.once('error', reject);
    });
    response.once('close', () => onward.destroy());
    onward.once('error', (error) => {
      reject(new CodedError('unavailable', `the control plane does not answer: ${error.message}`));
    });
    incoming.pipe(onward);
  });
}

async function readJson(incoming: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of incoming) {
    size += (chunk as Buffer).length;
    if (size > MAX_BODY_BYTES) {
      throw new CodedError('invalid', 'the body is too large');
    }
    chunks.push(chunk as Buffer);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
  } catch {
    throw new CodedError('invalid', 'the body is no JSON');
  }
}

function answer(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

const STATUS: Readonly<Record<string, number>> = {
  forbidden: 403,
  'not-found': 404,
  invalid: 400,
  paused: 409,
  'not-running': 409,
  unavailable: 503,
};

function answerError(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const code = error instanceof CodedError ? error.code : 'internal';
  response.writeHead(STATUS[code] ?? 500, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ error: { code, message: errorText(error), fields: [] } }));
}
