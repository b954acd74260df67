import { randomBytes, timingSafeEqual } from 'node:crypto';
import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import { CodedError, type FieldError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Redacted } from '../base/redacted.ts';
import { type ApiAddress, type ApiServer, serveApi } from '../control-plane/api.ts';
import { execSpec } from '../local/exec.ts';
import type { Layout } from '../local/layout.ts';
import { readSettings } from '../local/settings.ts';
import type { DirectoryStore } from '../store/directory.ts';

export interface AdminServer extends ApiServer {
  /** What TCP callers must send as `Authorization: Bearer …`; null on a UNIX socket. */
  readonly token: Redacted | null;
}

export interface AdminOptions {
  /** A UNIX socket of this user, or loopback TCP with a bearer token (D22). */
  readonly address: ApiAddress;
  readonly layout: Layout;
  readonly store: DirectoryStore;
  /** State of the components, for `GET /components`. */
  readonly components: () => unknown;
  readonly logger: Logger;
}

/** Parses `unix:PATH` or `HOST:PORT`; only loopback hosts are accepted. Throws `usage`. */
export function parseAdminAddress(text: string): ApiAddress {
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
 * the control plane's and passed on to its socket. Throws like `serveApi`.
 */
export async function startAdminServer(options: AdminOptions): Promise<AdminServer> {
  const { address, logger, store, layout, components } = options;
  const token = address.kind === 'tcp' ? new Redacted(randomBytes(32).toString('base64url')) : null;
  const server = await serveApi({
    address,
    logger,
    routes: {
      'POST /exec': async ({ body }) => exec(options, body),
      'GET /problems': async () => ({ problems: store.problems() }),
      'GET /components': async () => ({ components: components() }),
    },
    ...(token === null ? {} : { admit: (incoming: IncomingMessage) => admit(incoming, token) }),
    otherwise: (incoming, response) => forward(layout.socket('control-plane'), incoming, response),
  });
  return { ...server, token };
}

/** TCP callers: the token, and no Host or Origin that a page of another site would have (D22). */
function admit(incoming: IncomingMessage, token: Redacted): void {
  const host = (incoming.headers.host ?? '').replace(/:[0-9]+$/, '');
  const given = Buffer.from(incoming.headers.authorization ?? '');
  const wanted = Buffer.from(`Bearer ${token.reveal()}`);
  const isLoopback = /^(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])$/.test(host);
  const isToken = given.length === wanted.length && timingSafeEqual(given, wanted);
  if (!isLoopback || incoming.headers.origin !== undefined || !isToken) {
    throw new CodedError('forbidden', 'the admin API needs its bearer token and a loopback Host');
  }
}

async function exec({ store, layout }: AdminOptions, body: unknown): Promise<unknown> {
  const { sandbox, container, command, tty } = (body ?? {}) as Record<string, unknown>;
  const rules: readonly [path: string, holds: boolean, reason: string][] = [
    ['sandbox', typeof sandbox === 'string' && /^[^/]+\/[^/]+$/.test(sandbox), 'must be namespace/name'],
    ['command', isCommand(command), 'must be a list of at least one text'],
    ['container', container === undefined || typeof container === 'string', 'must be a text'],
    ['tty', tty === undefined || typeof tty === 'boolean', 'must be true or false'],
  ];
  const fields: FieldError[] = rules.filter(([, holds]) => !holds).map(([path, , reason]) => ({ path, reason }));
  if (fields.length > 0) {
    throw new CodedError('invalid', fields.map(({ path, reason }) => `${path}: ${reason}`).join('; '), { fields });
  }
  const [namespace = '', name = ''] = (sandbox as string).split('/');
  const target = { namespace, name, ...(container === undefined ? {} : { container: container as string }) };
  const plane = { store, layout, settings: await readSettings(layout.dir) };
  const { argv, env } = await execSpec(plane, target, { command: command as string[], tty: tty === true });
  return { argv, env: env.reveal() };
}

function isCommand(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === 'string');
}

/** Passes a request on, without what was meant for this server, and its answer back as it comes. */
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
