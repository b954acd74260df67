/** What tests of single commands share: a directory, the command as a process, and a plane that is only its sockets. */
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { kindNamed } from '../../api/kinds.ts';
import { writeAdminRecord } from '../../cli/admin-record.ts';
import { createLayout, type Layout, layoutOf } from '../../local/layout.ts';
import { serveStore } from '../../store/socket-server.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { type Ran, within } from '../e2e/plane.ts';

const bin = join(import.meta.dirname, '..', '..', 'bin', 'sandgate');

/** A new directory with these files; removed by the returned function. */
export async function directory(files: Readonly<Record<string, string>> = {}): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'sg-cli-'));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    await writeFile(join(dir, name), text, { mode: 0o600 });
  }
  return dir;
}

/** Every file below a directory with its text, by relative path. */
export async function contents(dir: string): Promise<Record<string, string>> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Object.fromEntries(
    await Promise.all(files.map(async (file) => [file.slice(dir.length + 1), await readFile(file, 'utf8')] as const)),
  );
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly input?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** Runs `bin/sandgate` to its end, in an environment that names no plane. */
export async function sandgate(args: readonly string[], options: CommandOptions = {}): Promise<Ran> {
  const { SANDGATE_DIR: _, ...inherited } = process.env;
  const child = spawn(process.execPath, [bin, ...args], {
    cwd: options.cwd ?? tmpdir(),
    env: { ...inherited, ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  child.stdin.on('error', () => {}); // It may end without reading.
  child.stdin.end(options.input ?? '');
  const ended = new Promise<number>((resolve) => child.once('close', (code) => resolve(code ?? -1)));
  const status = await within(`sandgate ${args.join(' ')}`, options.timeoutMs ?? 20_000, ended).finally(() =>
    child.kill('SIGKILL'),
  );
  return { status, stdout, stderr };
}

/** One call that the admin API got. */
export interface AdminCall {
  readonly path: string;
  readonly body: unknown;
}

/** The sockets of a running plane with a store in memory behind one and canned answers behind the other. */
export class FakePlane {
  readonly dir: string;
  readonly store: MemoryStore;
  readonly calls: AdminCall[];
  readonly close: () => Promise<void>;

  private constructor(dir: string, store: MemoryStore, calls: AdminCall[], close: () => Promise<void>) {
    this.dir = dir;
    this.store = store;
    this.calls = calls;
    this.close = close;
  }

  /** `answer` writes the answer of the admin API to one call. */
  static async start(answer: (call: AdminCall, response: ServerResponse) => void = () => {}): Promise<FakePlane> {
    const layout: Layout = layoutOf(await directory());
    await createLayout(layout);
    const store = new MemoryStore({ kinds: kindNamed });
    const served = await serveStore({ store, path: layout.socket('store'), incarnation: 'test' });
    const calls: AdminCall[] = [];
    const admin = createServer((request, response) => {
      void readJson(request).then((body) => {
        const call = { path: request.url ?? '', body };
        calls.push(call);
        answer(call, response);
      });
    });
    await new Promise<void>((resolve) => admin.listen(layout.socket('admin'), resolve));
    await writeAdminRecord(layout, { address: `unix:${layout.socket('admin')}`, token: null });
    return new FakePlane(layout.dir, store, calls, async () => {
      admin.closeAllConnections();
      await new Promise<void>((resolve) => admin.close(() => resolve()));
      await served.close();
      await store.close();
      await rm(layout.dir, { recursive: true, force: true });
    });
  }

  sandgate(args: readonly string[], options: CommandOptions = {}): Promise<Ran> {
    return sandgate(args, { ...options, env: { ...options.env, SANDGATE_DIR: this.dir } });
  }
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) {
    text += String(chunk);
  }
  return text === '' ? null : JSON.parse(text);
}
