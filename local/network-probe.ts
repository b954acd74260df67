import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { NodeNamespace } from './node-namespace.ts';

/** A question to a port of a sandbox. */
export interface NetworkProbe {
  readonly kind: 'tcp' | 'http' | 'https';
  readonly host: string;
  readonly port: number;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
}

export interface ProbeResult {
  readonly ok: boolean;
  /** Why, for a person. */
  readonly detail: string;
}

/** Beside this file, with the same suffix, in the sources and in a build alike. */
const HELPER = fileURLToPath(
  new URL(`./probe-helper${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`, import.meta.url),
);

/** Asks ports of sandboxes from inside the node's network, by one helper process that starts with the first question. */
export class NetworkProber {
  readonly #node: NodeNamespace;
  readonly #waiting = new Map<number, (result: ProbeResult) => void>();
  #helper: ChildProcess | null = null;
  #next = 0;

  constructor(node: NodeNamespace) {
    this.#node = node;
  }

  /** Never rejects: whatever goes wrong is an answer that says no. */
  ask(probe: NetworkProbe): Promise<ProbeResult> {
    return new Promise((done) => {
      const id = this.#next++;
      const timer = setTimeout(() => this.#answer(id, { ok: false, detail: 'timeout' }), probe.timeoutMs + 2000);
      this.#waiting.set(id, (result) => {
        clearTimeout(timer);
        done(result);
      });
      try {
        this.#helper ??= this.#start();
        this.#helper.stdin!.write(`${JSON.stringify({ id, probe })}\n`);
      } catch {
        this.#answer(id, { ok: false, detail: 'the probe could not be sent' });
      }
    });
  }

  close(): void {
    this.#helper?.kill('SIGKILL');
    this.#helper = null;
    this.#failAll();
  }

  #start(): ChildProcess {
    const argv = this.#node.wrap([process.execPath, '--max-old-space-size=32', '--max-semi-space-size=1', HELPER]);
    const helper = spawn(argv[0]!, argv.slice(1), { stdio: ['pipe', 'pipe', 'ignore'], env: {}, detached: true });
    helper.stdin.on('error', () => {});
    createInterface({ input: helper.stdout }).on('line', (line) => {
      const { id, ok, detail } = JSON.parse(line) as ProbeResult & { id: number };
      this.#answer(id, { ok, detail });
    });
    const gone = (): void => {
      if (this.#helper === helper) {
        this.#helper = null;
        this.#failAll();
      }
    };
    helper.once('exit', gone).once('error', gone);
    return helper;
  }

  #answer(id: number, result: ProbeResult): void {
    this.#waiting.get(id)?.(result);
    this.#waiting.delete(id);
  }

  #failAll(): void {
    for (const id of [...this.#waiting.keys()]) {
      this.#answer(id, { ok: false, detail: 'the probe process has ended' });
    }
  }
}
