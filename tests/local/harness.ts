import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { kindNamed } from '../../api/kinds.ts';
import type { Pod, PodSpec } from '../../api/pod.ts';
import { isCoded } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { exitCode } from '../../local/container-process.ts';
import { type ExecSpec, execSpec } from '../../local/exec.ts';
import { createLayout, type Layout, layoutOf } from '../../local/layout.ts';
import { runNodeAgent } from '../../local/node-agent.ts';
import { type NodeNamespace, openNode } from '../../local/node-namespace.ts';
import { parseSettings, type Settings } from '../../local/settings.ts';
import { MemoryStore } from '../../store/table-store.ts';

export const NAMESPACE = 'default';
/** Fast enough for tests, slow enough to be seen. */
export const BACK_OFF = { firstMs: 50, longestMs: 200, healthyMs: 60_000 };

export interface Output {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A folder of its own below the machine's temporary one. */
export function temporaryFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'sg-'));
}

/** Resolves with the first value that is not null; fails after the time, saying what it waited for. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | null> | T | null,
  timeoutMs = 10_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await look();
    if (value !== null) {
      return value;
    }
    if (Date.now() > deadline) {
      throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    }
    await sleep(20);
  }
}

/** Runs a program to its end. */
export function runProgram(
  spec: { argv: readonly string[]; env: Readonly<Record<string, string>> },
  input = '',
): Promise<Output> {
  const child = spawn(spec.argv[0]!, spec.argv.slice(1), {
    env: spec.env,
    stdio: 'pipe',
    timeout: 20_000,
    killSignal: 'SIGKILL',
  });
  const output = { out: '', err: '' };
  child.stdout.on('data', (chunk: Buffer) => {
    output.out += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    output.err += chunk.toString();
  });
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  return new Promise((done, failed) => {
    child.once('error', failed);
    child.once('close', (code, signal) => done({ code: exitCode(code, signal), ...output }));
    // What it has started in the sandbox may hold its streams open.
    child.once('exit', (_code, signal) => {
      if (signal === 'SIGKILL') {
        child.stdout.destroy();
        child.stderr.destroy();
      }
    });
  });
}

/** What sidecars need. */
export interface Sidecars {
  readonly envoyPath: string;
  readonly pki: Pki;
}

/** A node agent over a store in memory, without sidecars unless it gets what they need. */
export class LocalPlane {
  readonly store = new MemoryStore({ kinds: kindNamed });
  readonly layout: Layout;
  readonly node: NodeNamespace;
  settings: Settings;
  #stop = new AbortController();
  #agent: Promise<void>;

  readonly #sidecars: Sidecars | null;

  static async open(settings = '', sidecars: Sidecars | null = null): Promise<LocalPlane> {
    const layout = layoutOf(await temporaryFolder());
    await createLayout(layout);
    const node = await openNode(layout);
    return new LocalPlane(layout, node, parseSettings(settings, layout.dir), sidecars);
  }

  private constructor(layout: Layout, node: NodeNamespace, settings: Settings, sidecars: Sidecars | null) {
    this.#sidecars = sidecars;
    this.layout = layout;
    this.node = node;
    this.settings = settings;
    this.#agent = this.#run();
  }

  async #run(): Promise<void> {
    const { store, layout, node } = this;
    await runNodeAgent({
      store,
      layout,
      node,
      pki: this.#sidecars?.pki ?? (await openPki(layout.pki)),
      settings: () => this.settings,
      envoyPath: this.#sidecars?.envoyPath ?? null,
      logger: silentLogger,
      signal: this.#stop.signal,
      backOff: BACK_OFF,
    });
  }

  /** Ends the agent and starts another one over the same store. */
  async restartAgent(): Promise<void> {
    this.#stop.abort();
    await this.#agent;
    this.#stop = new AbortController();
    this.#agent = this.#run();
  }

  async createPod(
    name: string,
    spec: Omit<PodSpec, 'containers'> & { containers: object[] },
    metadata: object = {},
  ): Promise<Pod> {
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: NAMESPACE, ...metadata }, spec };
    return (await this.store.create(pod as never)) as Pod;
  }

  async pod(name: string): Promise<Pod | null> {
    try {
      return (await this.store.get('Pod', { namespace: NAMESPACE, name })) as Pod;
    } catch (error) {
      if (isCoded(error, 'not-found')) {
        return null;
      }
      throw error;
    }
  }

  /** Waits until the Pod looks so; fails with its last status. */
  async until(name: string, wanted: (pod: Pod) => boolean, timeoutMs = 15_000): Promise<Pod> {
    let last: Pod | null = null;
    try {
      return await eventually(
        name,
        async () => {
          last = await this.pod(name);
          return last !== null && wanted(last) ? last : null;
        },
        timeoutMs,
      );
    } catch (error) {
      throw new Error(`${(error as Error).message}: ${JSON.stringify((last as Pod | null)?.status)}`);
    }
  }

  ready(name: string): Promise<Pod> {
    return this.until(name, (pod) => conditionOf(pod, 'Ready') === 'True');
  }

  async gone(name: string, timeoutMs = 10_000): Promise<void> {
    await eventually(`the end of ${name}`, async () => ((await this.pod(name)) === null ? true : null), timeoutMs);
  }

  spec(name: string, command: readonly string[], container?: string): Promise<ExecSpec> {
    const target = { namespace: NAMESPACE, name, ...(container === undefined ? {} : { container }) };
    return execSpec(this, target, { command, tty: false });
  }

  /** Runs a command in the Pod, as `sandgate exec` does. */
  async exec(name: string, command: readonly string[], input = '', container?: string): Promise<Output> {
    const { argv, env } = await this.spec(name, command, container);
    return runProgram({ argv, env: env.reveal() }, input);
  }

  sh(name: string, script: string, container?: string): Promise<Output> {
    return this.exec(name, ['/bin/sh', '-c', script], '', container);
  }

  patch(name: string, metadata: object): Promise<unknown> {
    return this.store.patch('Pod', { namespace: NAMESPACE, name }, { type: 'merge', body: { metadata } });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#agent;
    await this.node.close();
    await this.store.close();
    await rm(this.layout.dir, { recursive: true, force: true });
  }
}

/** `True`, `False`, or undefined when the condition is not there. */
export function conditionOf(pod: Pod, type: string): string | undefined {
  return (pod.status?.conditions ?? []).find((condition) => condition.type === type)?.status;
}

/** A container that runs a shell script. */
export function shell(name: string, script: string, more: object = {}): object {
  return { name, command: ['/bin/sh', '-c', script], ...more };
}
