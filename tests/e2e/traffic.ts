/** Traffic that runs inside a sandbox while a test does something to the plane. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { API, securityProfile, trafficPolicy, yaml } from './manifests.ts';
import type { TestPlane } from './plane.ts';

/** Name of the idle connection's host. */
export const IDLE = 'other.example.test';

/** One request with its answer; status 0: none. */
export interface Tick {
  readonly at: number;
  readonly what: string;
  readonly status: number;
}

/** What each kind of request is answered under {@link workerPolicies} of `/blocked`. */
export const EXPECTED: Readonly<Record<string, number>> = {
  kept: 200,
  fresh: 200,
  blocked: 403,
  'mcp-read': 200,
  'mcp-write': 403,
};

/** Policies for a sandbox `worker`: one path is blocked, and of the MCP tools only `read` may be called. */
export function workerPolicies(blocked: string): string {
  const mcp = { defaultAction: 'deny', rules: [{ method: 'tools/call', toolNames: ['read'], action: 'allow' }] };
  const at = (type: string, value: string) => [{ domains: [API], paths: [{ type, value }] }];
  return yaml(
    trafficPolicy('egress', 'worker', [{ action: 'allow', to: [{ fqdn: API }, { fqdn: IDLE }] }]),
    securityProfile('requests', 'worker', [
      { name: 'stop', match: at('Exact', blocked), actions: { block: {} } },
      { name: 'tools', match: at('Prefix', '/mcp'), actions: { mcpToolPolicy: mcp } },
    ]),
  );
}

/**
 * Runs inside the sandbox: requests on one kept connection, on a connection of their own, to a blocked path, and MCP
 * calls that the processor allows and denies; and one idle connection.
 */
function script(port: number): string {
  return `
const http = require('node:http'), net = require('node:net');
const kept = new http.Agent({ keepAlive: true, maxSockets: 1 });
function ask(what, path, pause, agent, tool) {
  const at = Date.now();
  const body = tool && JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool } });
  const headers = body ? { 'content-type': 'application/json', 'content-length': body.length,
    'mcp-protocol-version': '2025-11-25' } : {};
  const again = () => ask(what, path, pause, agent, tool);
  const done = (status) => { console.log('tick', what, at, status); setTimeout(again, pause); };
  const options = { host: '${API}', port: ${port}, path, agent, headers, method: body ? 'POST' : 'GET' };
  const call = http.request(options, (answer) => {
    answer.resume();
    answer.on('end', () => done(answer.statusCode));
  });
  call.setTimeout(5000, () => call.destroy());
  call.on('error', () => done(0));
  call.end(body);
}
ask('kept', '/kept', 20, kept);
ask('fresh', '/fresh', 50, false);
ask('blocked', '/blocked', 100, false);
ask('mcp-read', '/mcp', 100, false, 'read');
ask('mcp-write', '/mcp', 100, false, 'write');
const socket = net.connect(${port}, '${IDLE}');
socket.on('connect', () => socket.write('GET /idle HTTP/1.1\\r\\nHost: ${IDLE}:${port}\\r\\n\\r\\n'));
socket.once('data', () => console.log('idle open'));
socket.on('error', () => {});
socket.on('close', () => console.log('idle closed'));`;
}

export class Traffic {
  /** In the order of their answers. */
  readonly ticks: Tick[] = [];
  /** What became of the idle connection: `open`, then perhaps `closed`. */
  readonly idle: string[] = [];
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess) {
    this.#process = process;
    createInterface({ input: process.stdout! }).on('line', (line) => {
      const [kind = '', what = '', at = '', status = ''] = line.split(' ');
      if (kind === 'tick') {
        this.ticks.push({ at: Number(at), what, status: Number(status) });
      } else {
        this.idle.push(what);
      }
    });
  }

  /** Starts it in sandbox `worker`. */
  static async start(plane: TestPlane, port: number): Promise<Traffic> {
    const { argv, env } = await plane.execSpec('worker', ['/opt/sandgate/node', '-e', script(port)]);
    return new Traffic(spawn(argv[0]!, argv.slice(1), { env, stdio: ['ignore', 'pipe', 'inherit'] }));
  }

  /** Whether every kind of request has had an answer and the idle connection is there. */
  get isRunning(): boolean {
    return Object.keys(this.counts(0)).length === Object.keys(EXPECTED).length && this.idle.length > 0;
  }

  /** Requests since a moment that were answered otherwise than expected. */
  wrong(from: number): Tick[] {
    return this.ticks.filter(({ at, what, status }) => at >= from && status !== EXPECTED[what]);
  }

  /** Number of answers since a moment, by kind. */
  counts(from: number): Record<string, number> {
    const seen = Map.groupBy(
      this.ticks.filter(({ at }) => at >= from),
      ({ what }) => what,
    );
    return Object.fromEntries([...seen].map(([what, list]) => [what, list.length]));
  }

  /** The latest status of a kind. */
  last(what: string): number | undefined {
    return this.ticks.findLast((tick) => tick.what === what)?.status;
  }

  stop(): void {
    this.#process.kill('SIGKILL');
  }
}
