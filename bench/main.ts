/**
 * `npm run bench -- [SUITE…] [-o json] [--rounds N] [--seconds N] [--raw FILE]`: figures on standard output, progress
 * and every raw round on standard error. Each suite is a process of its own, and a suite that sends load has a network
 * namespace of its own, so that nothing of the machine is in its way and it needs no free ports.
 */
import { spawn } from 'node:child_process';
import { createWriteStream, type WriteStream } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { findEnvoy } from '../envoy/find.ts';
import { guarded } from '../envoy/guard.ts';
import { findProgram, findTools } from '../local/tools.ts';
import { asJson, asTable, keepsLimit, type Metrics, unmeasured } from './report.ts';
import { SUITES } from './run-suite.ts';
import { findWrk } from './wrk.ts';

interface Options {
  readonly output: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly raw?: string;
}

const program = new Command('bench')
  .description('Measures the product against a bare Envoy; see docs/benchmarks.md')
  .argument('[suite...]', `of ${Object.keys(SUITES).join(', ')}; all of them by default`)
  .option('-o, --output <format>', 'table or json', format, 'table')
  .option('--rounds <n>', 'interleaved rounds of each measurement', count, 5)
  .option('--seconds <n>', 'length of one loaded run', count, 5)
  .option('--raw <file>', 'write the raw rounds to a file instead of standard error')
  .addHelpText('after', '\nExample:\n  $ npm run bench -- egress ingress --rounds 7 -o json')
  .action(async (names: readonly string[], options: Options) => {
    await bench(names, options);
  });

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) {
    throw new InvalidArgumentError('must be a whole number of at least 1');
  }
  return value;
}

function format(text: string): string {
  if (text !== 'table' && text !== 'json') {
    throw new InvalidArgumentError('must be table or json');
  }
  return text;
}

const say = (line: string): void => void process.stderr.write(`bench: ${line}\n`);

async function bench(names: readonly string[], { output, rounds, seconds, raw }: Options): Promise<void> {
  const unknown = names.find((name) => !Object.hasOwn(SUITES, name));
  if (unknown !== undefined) {
    program.error(`error: there is no suite ${unknown}; there are ${Object.keys(SUITES).join(', ')}`, { exitCode: 2 });
  }
  const wanted = Object.keys(SUITES).filter((name) => names.length === 0 || names.includes(name));
  findTools();
  await findEnvoy();
  const loads = wanted.some((name) => SUITES[name]!.loads);
  const wrk = loads ? await findWrk(say) : '';
  if (loads && findProgram('taskset') === null) {
    throw new Error('taskset is missing: install util-linux');
  }
  say(`${machine()}; ${rounds} rounds of ${seconds} s`);
  const log = raw === undefined ? process.stderr : createWriteStream(raw);
  const metrics: Record<string, Metrics[string]> = {};
  for (const name of wanted) {
    say(`suite ${name}`);
    Object.assign(metrics, await runSuite(name, { rounds, seconds, wrk }, log));
  }
  process.stdout.write(`${output === 'json' ? asJson(metrics) : asTable(metrics)}\n`);
  const missed = Object.entries(metrics).filter(([name, entry]) => !keepsLimit(name, entry));
  for (const [name, { value, unit }] of missed) {
    say(`${name} misses its limit: ${value} ${unit}`);
  }
  const absent = wanted.flatMap((name) => unmeasured(name, metrics));
  for (const name of absent) {
    say(`${name} could not be measured; the reason is above`);
  }
  process.exitCode = missed.length + absent.length > 0 ? 1 : 0;
}

/** Runs a suite to its end. A signal that ends the bench reaches it too, and it clears its stage. */
function runSuite(name: string, options: object, log: WriteStream | NodeJS.WriteStream): Promise<Metrics> {
  const isolated = SUITES[name]!.loads;
  const entry = join(import.meta.dirname, 'run-suite.ts');
  const apart = process.getuid?.() === 0 ? ['--net'] : ['--user', '--map-root-user', '--net'];
  const { argv, needsPipe } = guarded(
    [process.execPath, entry, name, JSON.stringify({ ...options, isolated })],
    isolated ? (inner) => [findProgram('unshare')!, ...apart, ...inner] : undefined,
  );
  const child = spawn(argv[0]!, argv.slice(1), {
    stdio: ['ignore', 'pipe', 'pipe', ...(needsPipe ? ['pipe' as const] : [])],
    // A terminal's Ctrl-C is passed on once, by the handler below.
    detached: true,
  });
  let text = '';
  child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  child.stderr!.on('data', (chunk: Buffer) => void log.write(chunk));
  const pass = (signal: NodeJS.Signals) => child.kill(signal);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, pass);
  }
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      process.off('SIGINT', pass).off('SIGTERM', pass);
      if (code === 0) {
        resolve(JSON.parse(text) as Metrics);
      } else {
        reject(new Error(`suite ${name} failed (${signal ?? `status ${code}`}); its last words are above`));
      }
    });
  });
}

function machine(): string {
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${availableParallelism()} cores of ${cpus()[0]?.model.trim() ?? 'unknown'}, ${memory} GiB, Linux ${release()}`;
}

try {
  await program.parseAsync();
} catch (error) {
  say(`error: ${(error as Error).message}`);
  process.exitCode = 1;
}
