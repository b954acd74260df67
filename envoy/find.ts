/**
 * The room `envoy/` runs the data plane: finding the pinned binary, one bootstrap per role, supervising the process,
 * its admin interface, the capture rules of a pod. It knows no policy.
 */
import { access, constants } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { CodedError } from '../base/errors.ts';
import { SingleFlight } from '../base/single-flight.ts';
import { ENVOY_RELEASES, ENVOY_VERSION, envoyVersion, installEnvoy, isInstalled } from './install.ts';

export interface FindEnvoyOptions {
  /** Gets one line for every step that takes time or deserves notice; default: standard error. */
  readonly onProgress?: (line: string) => void;
  /** Default: the environment of this process. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

const flights = new SingleFlight<string, string>();

/**
 * The path of an Envoy 1.40.0 binary: `SANDGATE_ENVOY`, else `envoy` in `PATH` if it has that version, else the copy in
 * the cache folder, which is downloaded when it is missing (D26). Throws `envoy-version`, `envoy-download`,
 * `envoy-checksum` or `envoy-platform`, each saying what to do.
 */
export function findEnvoy(options: FindEnvoyOptions = {}): Promise<string> {
  const environment = options.environment ?? process.env;
  const onProgress = options.onProgress ?? ((line: string) => void process.stderr.write(`${line}\n`));
  const key = ['SANDGATE_ENVOY', 'SANDGATE_CACHE', 'XDG_CACHE_HOME', 'HOME', 'PATH'].map((name) => environment[name]);
  return flights.run(JSON.stringify(key), () => find(environment, onProgress));
}

/**
 * Where {@link findEnvoy} finds the binary without a download; null: it would download it. Throws `envoy-version` or
 * `envoy-platform`.
 */
export async function locateEnvoy(options: FindEnvoyOptions = {}): Promise<string | null> {
  const { path, isInstalled: isThere } = await locate(
    options.environment ?? process.env,
    options.onProgress ?? (() => {}),
  );
  return isThere ? path : null;
}

type Environment = Readonly<Record<string, string | undefined>>;

async function find(environment: Environment, onProgress: (line: string) => void): Promise<string> {
  const { path, isInstalled: isThere, install } = await locate(environment, onProgress);
  if (!isThere) {
    await install();
  }
  return path;
}

interface Place {
  readonly path: string;
  readonly isInstalled: boolean;
  /** Downloads it to there. */
  install(): Promise<void>;
}

async function locate(environment: Environment, onProgress: (line: string) => void): Promise<Place> {
  const given = environment['SANDGATE_ENVOY'] ?? '';
  if (given !== '') {
    const version = await envoyVersion(given);
    if (version !== ENVOY_VERSION) {
      const what = version === null ? 'cannot be run as an Envoy' : `is Envoy ${version}`;
      throw new CodedError('envoy-version', `SANDGATE_ENVOY: ${given} ${what}; Sandgate needs Envoy ${ENVOY_VERSION}`);
    }
    return here(given);
  }
  const inPath = await findInPath(environment['PATH'] ?? '', onProgress);
  if (inPath !== null) {
    return here(inPath);
  }
  const release = ENVOY_RELEASES.get(`${process.platform}-${process.arch}`);
  if (release === undefined) {
    throw new CodedError(
      'envoy-platform',
      `there is no Envoy build for ${process.platform} ${process.arch}: set SANDGATE_ENVOY to an Envoy ${ENVOY_VERSION}`,
    );
  }
  const folder = join(cacheFolder(environment), `envoy-${ENVOY_VERSION}-${process.arch}`);
  return {
    path: join(folder, 'envoy'),
    isInstalled: await isInstalled(folder),
    install: () => installEnvoy(folder, release, onProgress),
  };
}

function here(path: string): Place {
  return { path, isInstalled: true, install: async () => {} };
}

async function findInPath(path: string, onProgress: (line: string) => void): Promise<string | null> {
  for (const folder of path.split(delimiter).filter((entry) => entry.startsWith('/'))) {
    const file = join(folder, 'envoy');
    if (await isExecutable(file)) {
      const version = await envoyVersion(file);
      if (version === ENVOY_VERSION) {
        return file;
      }
      onProgress(`envoy: ${file} is not used, its version is ${version ?? 'unknown'} and not ${ENVOY_VERSION}`);
    }
  }
  return null;
}

async function isExecutable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** `SANDGATE_CACHE`, else `$XDG_CACHE_HOME/sandgate`, else `~/.cache/sandgate`; relative values are ignored. */
export function cacheFolder(environment: Environment): string {
  const own = environment['SANDGATE_CACHE'] ?? '';
  if (own.startsWith('/')) {
    return own;
  }
  const shared = environment['XDG_CACHE_HOME'] ?? '';
  return join(shared.startsWith('/') ? shared : join(environment['HOME'] ?? homedir(), '.cache'), 'sandgate');
}

if (import.meta.main) {
  process.stdout.write(`${await findEnvoy()}\n`);
}
