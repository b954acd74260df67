import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { CodedError } from '../base/errors.ts';

/** A listener as Envoy has it bound: `address:port`, a socket path, or null for an internal listener. */
export interface BoundListener {
  readonly name: string;
  readonly address: string | null;
}

/** Envoy's admin interface over its UNIX socket. Calls reject with `envoy-admin` when it does not answer in time. */
export interface EnvoyAdmin {
  /** Whether Envoy is LIVE; false also when nothing listens. LIVE does not mean that any listener is there. */
  ready(): Promise<boolean>;
  listeners(): Promise<BoundListener[]>;
  /** Counters and gauges whose name matches the RE2 expression; histograms are left out. */
  stats(filter?: string): Promise<Record<string, number>>;
  /**
   * The live configuration. It holds tokens and credentials in clear: never log it (D7). `query` is Envoy's own, such
   * as `{ resource: 'dynamic_listeners' }`.
   */
  configDump(query?: Readonly<Record<string, string>>): Promise<unknown>;
  /** Tells clients to go elsewhere, then stops accepting; open connections go on. */
  drainListeners(): Promise<void>;
  close(): Promise<void>;
}

const TIMEOUT_MS = 2000;

interface ListenerStatus {
  readonly name: string;
  readonly local_address: {
    readonly socket_address?: { readonly address: string; readonly port_value: number };
    readonly pipe?: { readonly path: string };
  };
}

/** A client for one admin socket. The Envoy behind it may come and go. */
export function envoyAdmin(socketPath: string): EnvoyAdmin {
  const agent = new Agent({ maxSockets: 2 });

  async function call(method: 'GET' | 'POST', path: string): Promise<{ status: number; text: string }> {
    try {
      return await send(agent, socketPath, method, path);
    } catch (error) {
      throw new CodedError('envoy-admin', `the admin socket ${socketPath} does not answer`, { cause: error });
    }
  }

  async function fetchText(method: 'GET' | 'POST', path: string): Promise<string> {
    const { status, text } = await call(method, path);
    if (status !== 200) {
      throw new CodedError('envoy-admin', `${method} ${path.split('?')[0]} answered ${status}`);
    }
    return text;
  }

  const query = (members: Readonly<Record<string, string>>): string => new URLSearchParams(members).toString();

  return {
    ready: () =>
      call('GET', '/ready').then(
        ({ status }) => status === 200,
        () => false,
      ),
    async listeners() {
      const { listener_statuses: statuses = [] } = JSON.parse(await fetchText('GET', '/listeners?format=json')) as {
        listener_statuses?: readonly ListenerStatus[];
      };
      return statuses.map(({ name, local_address: { socket_address: socket, pipe } }) => ({
        name,
        address: socket === undefined ? (pipe?.path ?? null) : `${socket.address}:${socket.port_value}`,
      }));
    },
    async stats(filter = '') {
      const { stats } = JSON.parse(await fetchText('GET', `/stats?${query({ format: 'json', filter })}`)) as {
        stats: readonly { readonly name?: string; readonly value?: unknown }[];
      };
      const numbers = stats.filter(({ name, value }) => name !== undefined && typeof value === 'number');
      return Object.fromEntries(numbers.map(({ name, value }) => [name, value])) as Record<string, number>;
    },
    configDump: async (members = {}) => JSON.parse(await fetchText('GET', `/config_dump?${query(members)}`)) as unknown,
    async drainListeners() {
      await fetchText('POST', '/drain_listeners?graceful');
    },
    close: async () => agent.destroy(),
  };
}

/** `node:http`, because every process that supervises an Envoy has it already, and a whole client would stay with it. */
function send(
  agent: Agent,
  socketPath: string,
  method: 'GET' | 'POST',
  path: string,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const call = request({ agent, socketPath, method, path, host: 'envoy', signal }, (answer) => {
      text(answer).then((body) => resolve({ status: answer.statusCode ?? 0, text: body }), reject);
    });
    call.once('error', reject);
    call.end();
  });
}
