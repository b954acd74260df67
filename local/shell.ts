import { spawn } from 'node:child_process';
import { CodedError } from '../base/errors.ts';

/** A word for a POSIX shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** A command line for a POSIX shell. */
export function quoteAll(words: readonly string[]): string {
  return words.map(quote).join(' ');
}

/** The environment of helper programs: nothing of a workload's environment ever reaches them. */
export const TOOL_ENVIRONMENT = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' };

/**
 * Runs a helper program to its end and returns its standard output. Throws `command-failed` with what it wrote to
 * standard error; the input is never part of a message.
 */
export async function run(argv: readonly string[], input = '', timeoutMs = 10_000): Promise<string> {
  const [file, ...rest] = argv;
  const child = spawn(file!, rest, { env: TOOL_ENVIRONMENT, stdio: ['pipe', 'pipe', 'pipe'], timeout: timeoutMs });
  const output = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.err += text;
  });
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const status = await new Promise<number | string>((done, failed) => {
    child.on('error', failed).on('close', (code, signal) => done(code ?? signal ?? 'unknown'));
  });
  if (status !== 0) {
    throw new CodedError('command-failed', `${file}: ${output.err.trim() || `ended with ${status}`}`);
  }
  return output.out;
}
