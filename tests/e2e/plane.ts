/** A whole local mode as a process, for tests: `sandgate up` in a directory of its own, with an upstream. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { layoutOf } from '../../local/layout.ts';
import { SocketStore } from '../../store/socket-client.ts';

const root = join(import.meta.dirname, '..', '..');

export interface PlaneOptions {
  /** Manifests by file name. */
  readonly files: Readonly<Record<string, string>>;
  readonly without?: readonly string[];
  /** Use this directory instead of a new one, which then stays. */
  readonly dir?: string;
}

export interface Ran {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running local mode. */
export class TestPlane {
  readonly dir: string;
  readonly process: ChildProcess;
  readonly store: SocketStore;
  /** Port of the ingress on 127.0.0.1. */
  readonly port: number;
  readonly log: () => string;
  readonly #keep: boolean;

  private constructor(dir: string, child: ChildProcess, port: number, log: () => string, keep: boolean) {
    this.dir = dir;
    this.process = child;
    this.port = port;
    this.log = log;
    this.#keep = keep;
    this.store = new SocketStore({ path: layoutOf(dir).socket('store') });
  }

  /** Starts `up` and waits until it says that it is ready. */
  static async start({ files, without = [], dir }: PlaneOptions): Promise<TestPlane> {
    const home = dir ?? (await mkdtemp(join(tmpdir(), 'sg-e2e-')));
    for (const [name, text] of Object.entries(files)) {
      await writeFile(join(home, name), text, { mode: 0o600 });
    }
    const roles = without.flatMap((role) => ['--without', role]);
    const child = spawn(
      process.execPath,
      [join(root, 'cli', 'main.ts'), 'up', '--dir', home, '--ingress', '127.0.0.1:0', '-o', 'json', ...roles],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    let log = '';
    child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      log += text;
    });
    const port = await ready(child, () => log);
    return new TestPlane(home, child, port, () => log, dir !== undefined);
  }

  /** Runs `sandgate …` against this plane. */
  sandgate(...args: readonly string[]): Promise<Ran> {
    return run(process.execPath, [join(root, 'cli', 'main.ts'), ...args], { SANDGATE_DIR: this.dir });
  }

  /** Runs a command inside a sandbox of namespace `default`. */
  async exec(sandbox: string, ...command: readonly string[]): Promise<Ran> {
    const { argv, env } = await this.execSpec(sandbox, command);
    return run(argv[0]!, argv.slice(1), env);
  }

  /** The command line and environment that `sandgate exec` would spawn. */
  async execSpec(
    sandbox: string,
    command: readonly string[],
  ): Promise<{ readonly argv: readonly string[]; readonly env: Readonly<Record<string, string>> }> {
    const answer = await this.admin('POST', '/exec', { sandbox: `default/${sandbox}`, command, tty: false });
    if ((answer as { error?: unknown }).error !== undefined) {
      throw new Error(JSON.stringify(answer));
    }
    return answer as { argv: readonly string[]; env: Record<string, string> };
  }

  /** A request to the admin API. */
  async admin(method: string, path: string, body?: unknown): Promise<unknown> {
    return JSON.parse(await adminText(layoutOf(this.dir).socket('admin'), method, path, body)) as unknown;
  }

  /** Waits until a Sandbox of namespace `default` is in a phase, and Ready unless it is paused. */
  async phase(name: string, phase: string, timeoutMs = 30_000): Promise<void> {
    await until(`Sandbox ${name} to be ${phase}`, timeoutMs, async () => {
      const sandbox = await this.store.get('Sandbox', { namespace: 'default', name });
      const status = sandbox.status as { phase?: string; conditions?: { type: string; status: string }[] } | undefined;
      const holds = (type: string) =>
        status?.conditions?.some((entry) => entry.type === type && entry.status === 'True');
      return status?.phase === phase && holds(phase === 'Paused' ? 'SandboxPaused' : 'Ready') === true;
    });
  }

  /** Ends it in order, and removes its directory unless it was given. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    await this.store.close();
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise<void>((resolve) => this.process.once('exit', () => resolve()));
      this.process.kill(signal);
      await within('the plane to end', 30_000, ended);
    }
    if (!this.#keep && signal !== 'SIGKILL') {
      await rm(this.dir, { recursive: true, force: true });
    }
  }
}

function ready(child: ChildProcess, log: () => string): Promise<number> {
  const said = new Promise<number>((resolve, reject) => {
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const event = JSON.parse(line) as { ready?: boolean; ingress?: string };
      if (event.ready === true) {
        resolve(Number(event.ingress?.split(':').at(-1)));
      }
    });
    child.once('exit', (code) => reject(new Error(`up ended with ${code}\n${log()}`)));
  });
  return within('up to be ready', 60_000, said);
}

/** Runs a program to its end. */
export async function run(
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  timeoutMs = 60_000,
): Promise<Ran> {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const ended = new Promise<number>((resolve) => child.once('close', (code) => resolve(code ?? -1)));
  const status = await within(`${command} to end`, timeoutMs, ended).finally(() => child.kill('SIGKILL'));
  return { status, stdout, stderr };
}

/** Waits for a promise, but no longer than the time. */
export async function within<T>(what: string, timeoutMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${timeoutMs} ms for ${what}`)), timeoutMs);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Asks again and again until it holds. */
export async function until(what: string, timeoutMs: number, holds: () => Promise<boolean> | boolean): Promise<void> {
  const end = Date.now() + timeoutMs;
  while (!(await holds())) {
    if (Date.now() > end) {
      throw new Error(`waited ${timeoutMs} ms for ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

function adminText(socketPath: string, method: string, path: string, body?: unknown): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, method, path, headers: { 'content-type': 'application/json' } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      answer.once('end', () => resolve(text));
    });
    call.once('error', reject);
    call.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
