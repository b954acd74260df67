/** The load generator: wrk, from PATH or unpacked from Debian's package without root. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from '../envoy/find.ts';
import { findProgram } from '../local/tools.ts';
import { pinned } from './processes.ts';

const execute = promisify(execFile);

/** Finds wrk, or gets it: `say` is told what is done. Throws with the ways to get it when there is none. */
export async function findWrk(say: (line: string) => void): Promise<string> {
  const found = findProgram('wrk');
  if (found !== null) {
    return found;
  }
  const folder = join(cacheFolder(process.env), 'wrk');
  const binary = join(folder, 'usr/bin/wrk');
  if (!existsSync(binary)) {
    say('wrk is not in PATH: getting the package of this machine’s distribution (apt-get download, no root needed) …');
    await unpack(folder).catch((error: Error) => {
      const why = error.message.trim().split('\n').at(-1);
      throw new Error(`the load generator wrk is missing and could not be had by apt-get (${why}): install wrk`);
    });
    say(`wrk is in ${binary}`);
  }
  await execute(binary, ['-v']).catch((error: { code?: unknown; stderr?: string; message: string }) => {
    // `wrk -v` prints its version and ends with status 1.
    if (error.code !== 1) {
      throw new Error(`${binary} cannot be run (${error.stderr?.trim() || error.message}): install wrk`);
    }
  });
  return binary;
}

async function unpack(folder: string): Promise<void> {
  const temporary = `${folder}.new`;
  await rm(temporary, { recursive: true, force: true });
  await mkdir(temporary, { recursive: true });
  await execute('apt-get', ['download', 'wrk'], { cwd: temporary });
  const [file] = (await readdir(temporary)).filter((name) => name.endsWith('.deb'));
  if (file === undefined) {
    throw new Error('apt-get brought no package');
  }
  await execute('dpkg', ['-x', join(temporary, file), temporary]);
  await rm(folder, { recursive: true, force: true });
  await rename(temporary, folder);
}

export interface Load {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly connections: number;
  readonly seconds: number;
}

export interface LoadResult {
  readonly requests: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Answers with a status of 400 or more, and failures of sockets. */
  readonly errors: number;
}

/** Runs wrk with one thread, apart from the Envoys under test. `prefix` puts it into another namespace. */
export async function runWrk(binary: string, load: Load, prefix: readonly string[] = []): Promise<LoadResult> {
  const headers = Object.entries(load.headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
  const size = ['-t', '1', '-c', String(load.connections), '-d', `${load.seconds}s`];
  const argv = pinned('rest', [...prefix, binary, ...size, '--latency', ...headers, load.url]);
  const { stdout } = await execute(argv[0]!, argv.slice(1));
  return parseWrk(stdout);
}

/** Reads what wrk printed. Throws when it is not a result. */
export function parseWrk(text: string): LoadResult {
  const number = (pattern: RegExp): number => {
    const match = pattern.exec(text);
    if (match === null) {
      throw new Error(`wrk printed no result: ${text.trim().split('\n').at(-1)}`);
    }
    return Number(match[1]);
  };
  const time = (name: string): number => {
    const match = new RegExp(`^\\s+${name}%\\s+([0-9.]+)(us|ms|s)$`, 'm').exec(text);
    return match === null
      ? Number.NaN
      : Number(match[1]) * { us: 0.001, ms: 1, s: 1000 }[match[2] as 'us' | 'ms' | 's'];
  };
  const failures = [...text.matchAll(/(?:connect|read|write|timeout) (\d+)/g)].map((match) => Number(match[1]));
  return {
    requests: number(/^\s+(\d+) requests in /m),
    perSecond: number(/^Requests\/sec:\s+([0-9.]+)/m),
    p50Ms: time('50'),
    p99Ms: time('99'),
    errors: failures.reduce(
      (sum, count) => sum + count,
      Number(/Non-2xx or 3xx responses: (\d+)/.exec(text)?.[1] ?? 0),
    ),
  };
}
