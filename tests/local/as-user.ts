import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** An id that belongs to nobody on the machine. */
const USER = 61_234;
const REPOSITORY = fileURLToPath(new URL('../../', import.meta.url));

/** Whether this process is the second run, as an ordinary user. */
export const isSecondRun = process.env['SANDGATE_TEST_SECOND_RUN'] === '1';
/** Whether the tests of this process should be repeated as an ordinary user. */
export const shouldRepeat = process.getuid?.() === 0 && !isSecondRun;

/**
 * Runs a test file once more as an ordinary user without any group, in a mount namespace in which the checkout lies at a
 * path that everybody may enter. Resolves with its exit code and output.
 */
export async function repeatAsUser(
  file: string,
  { envoy = '/bin/true' }: { readonly envoy?: string } = {},
): Promise<{ readonly code: number | null; readonly output: string }> {
  const home = await mkdtemp(join(tmpdir(), 'sg-user-'));
  const script = [
    'set -e',
    'mount -t tmpfs tmpfs /mnt',
    'mkdir /mnt/checkout /mnt/node',
    `mount --bind "$1" /mnt/checkout`,
    ': > /mnt/node/node; mount --bind "$2" /mnt/node/node',
    ': > /mnt/node/envoy; mount --bind "$5" /mnt/node/envoy',
    `chown ${USER}:${USER} "$3"`,
    'cd /',
    `exec setpriv --reuid ${USER} --regid ${USER} --clear-groups --inh-caps -all -- /mnt/node/node --no-warnings "/mnt/checkout/$4"`,
  ].join('\n');
  const argv = ['--mount', '--propagation', 'private', '--', '/bin/sh', '-c', script, 'repeat'];
  const child = spawn(
    'unshare',
    [...argv, REPOSITORY, process.execPath, home, relative(REPOSITORY, fileURLToPath(file)), envoy],
    {
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: home,
        TMPDIR: home,
        SANDGATE_TEST_SECOND_RUN: '1',
        SANDGATE_ENVOY: '/mnt/node/envoy',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 100_000,
      killSignal: 'SIGKILL',
    },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const code = await new Promise<number | null>((done) => {
    child.once('error', () => done(null));
    child.once('close', (status) => done(status));
  });
  await rm(home, { recursive: true, force: true });
  return { code, output };
}
