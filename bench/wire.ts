/** A relay between an Envoy and the control plane that notes when how many bytes came. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** Bytes that arrived from the server; `at` as `performance.now()`. */
export interface Arrival {
  readonly at: number;
  readonly bytes: number;
}

export interface Wire {
  readonly path: string;
  /** What arrived since the last call. */
  take(): readonly Arrival[];
  close(): Promise<void>;
}

/** Relays a new UNIX socket to an existing one. What passes is TLS and stays unread. */
export async function openWire(path: string, target: string): Promise<Wire> {
  let arrivals: Arrival[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(target);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => sockets.delete(from));
      from.pipe(to);
    }
    upstream.on('data', (data) => arrivals.push({ at: performance.now(), bytes: data.length }));
  });
  server.listen(path);
  await once(server, 'listening');
  return {
    path,
    take() {
      const taken = arrivals;
      arrivals = [];
      return taken;
    },
    async close() {
      for (const socket of sockets) {
        socket.destroy();
      }
      server.close();
      await once(server, 'close');
    },
  };
}

/** A silence this long ends what one change caused; old resources go a second after the new ones. */
const SILENCE_MS = 400;

/** The first arrivals up to a silence. */
export function firstBurst(arrivals: readonly Arrival[]): readonly Arrival[] {
  const end = arrivals.findIndex(({ at }, index) => index > 0 && at - arrivals[index - 1]!.at > SILENCE_MS);
  return end < 0 ? arrivals : arrivals.slice(0, end);
}
