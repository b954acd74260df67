import { connect, createServer, type Server, type Socket } from 'node:net';
import { joinHostPort } from '../base/addresses.ts';
import { CodedError } from '../base/errors.ts';

/** A relay that listens. */
export interface Relay {
  /** `host:port` as bound. */
  readonly address: string;
  readonly port: number;
  /** Stops listening and ends the connections that are open. */
  close(): Promise<void>;
}

/** Connections beyond this wait in the kernel's queue. */
const MAX_CONNECTIONS = 10_000;

/**
 * Relays TCP connections to a UNIX socket, such as `--ingress HOST:PORT` to `run/ingress.sock`: bytes in both
 * directions with back-pressure, half-closes passed on, an abort on one side an abort on the other. A socket that nobody
 * serves resets the connection. Throws `address-in-use` and `address-unavailable`.
 */
export async function startRelay(options: {
  readonly host: string;
  readonly port: number;
  readonly socketPath: string;
}): Promise<Relay> {
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (client) => {
    const upstream = connect({ path: options.socketPath, allowHalfOpen: true });
    join(client, upstream, open);
  });
  server.maxConnections = MAX_CONNECTIONS;
  await listen(server, options.host, options.port);
  const bound = server.address() as { readonly port: number };
  return {
    address: joinHostPort(options.host, bound.port),
    port: bound.port,
    close: async () => {
      const closed = new Promise<void>((done) => server.close(() => done()));
      for (const socket of open) {
        socket.destroy();
      }
      await closed;
    },
  };
}

function join(client: Socket, upstream: Socket, open: Set<Socket>): void {
  for (const [from, to] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    open.add(from);
    from.on('error', () => {}); // `close` follows and says that it failed.
    from.once('close', (failed) => {
      open.delete(from);
      if (failed) {
        abort(to);
      }
    });
  }
  upstream.once('connect', () => {
    client.pipe(upstream);
    upstream.pipe(client);
  });
}

/** A UNIX socket knows no reset; destroying it is as near as it gets. */
function abort(socket: Socket): void {
  if (!socket.destroyed) {
    try {
      socket.resetAndDestroy();
    } catch {
      socket.destroy();
    }
  }
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((done, failed) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const at = joinHostPort(host, port);
      failed(
        error.code === 'EADDRINUSE'
          ? new CodedError('address-in-use', `${at} is in use by another program`)
          : new CodedError('address-unavailable', `cannot listen on ${at}: ${error.message}`),
      );
    });
    server.listen({ host, port, backlog: 1024 }, done);
  });
}
