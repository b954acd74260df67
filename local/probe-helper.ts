/**
 * Runs in the node's network, where sandboxes have addresses: reads one JSON probe per line, writes one JSON answer per
 * line, ends with its standard input. See `network-probe.ts`.
 */
import { Agent as HttpAgent, get as httpGet, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, get as httpsGet } from 'node:https';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { errorText } from '../base/errors.ts';
import type { NetworkProbe, ProbeResult } from './network-probe.ts';

/** Every probe has a connection of its own: a kept one would say nothing about the port. */
const httpAgent = new HttpAgent({ keepAlive: false });
// As on Kubernetes, a probe does not look at the certificate.
const httpsAgent = new HttpsAgent({ keepAlive: false, rejectUnauthorized: false });

function probeTcp({ host, port, timeoutMs }: NetworkProbe): Promise<ProbeResult> {
  return new Promise((done) => {
    const socket = connect({ host, port, timeout: timeoutMs });
    const end = (ok: boolean, detail: string): void => {
      socket.destroy();
      done({ ok, detail });
    };
    socket.once('connect', () => end(true, 'connected'));
    socket.once('timeout', () => end(false, 'timeout'));
    socket.once('error', (error) => end(false, errorText(error)));
  });
}

function probeHttp(probe: NetworkProbe): Promise<ProbeResult> {
  return new Promise((done) => {
    const { host, port, path = '/', headers = {}, timeoutMs } = probe;
    const answered = (response: IncomingMessage): void => {
      const status = response.statusCode ?? 0;
      response.destroy();
      done({ ok: status >= 200 && status < 400, detail: `HTTP status ${status}` });
    };
    const options = { host, port, path, headers };
    const request =
      probe.kind === 'https'
        ? httpsGet({ ...options, agent: httpsAgent }, answered)
        : httpGet({ ...options, agent: httpAgent }, answered);
    const timer = setTimeout(() => request.destroy(new Error('timeout')), timeoutMs);
    request.once('close', () => clearTimeout(timer));
    request.once('error', (error) => done({ ok: false, detail: errorText(error) }));
  });
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, probe } = JSON.parse(line) as { id: number; probe: NetworkProbe };
  const answer = probe.kind === 'tcp' ? probeTcp(probe) : probeHttp(probe);
  void answer
    .catch((error: unknown): ProbeResult => ({ ok: false, detail: errorText(error) }))
    .then((result) => process.stdout.write(`${JSON.stringify({ id, ...result })}\n`));
}
process.exit(0);
