import { connect } from 'node:net';
import { joinHostPort } from '../../base/addresses.ts';
import { SingleFlight } from '../../base/single-flight.ts';

const PROBE_MS = 2000;
const PROBE_PAUSE_MS = 10;

/** Tries ports of sandboxes that have just woken; those who wait for the same port share one try. */
export class PortProbe {
  readonly #flights = new SingleFlight<string, void>();

  /**
   * Waits until something listens on the port, so that the request that woke a sandbox is answered and not refused; for
   * at most two seconds, since nothing may ever listen there. Ends early for a caller that leaves.
   */
  async awaitPort(address: string, port: number, signal: AbortSignal): Promise<void> {
    const left = Promise.withResolvers<void>();
    const leave = () => left.resolve();
    signal.addEventListener('abort', leave, { once: true });
    if (signal.aborted) {
      leave();
    }
    const probe = this.#flights.run(joinHostPort(address, port), () => untilAccepted(address, port));
    await Promise.race([probe, left.promise]);
    signal.removeEventListener('abort', leave);
  }
}

async function untilAccepted(address: string, port: number): Promise<void> {
  const end = Date.now() + PROBE_MS;
  while (Date.now() < end && !(await accepts(address, port))) {
    await new Promise((resolve) => setTimeout(resolve, PROBE_PAUSE_MS));
  }
}

function accepts(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: 500 });
    const done = (accepted: boolean) => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
    socket.once('timeout', () => done(false));
  });
}
