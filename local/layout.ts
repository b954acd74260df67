/**
 * The room `local/` is the node agent: it runs the Pods of any `ObjectStore` as local processes in namespaces of their
 * own, with capture rules and a sidecar (D15, D18–D21), and knows the layout and settings of a local directory (D16).
 * It knows no policy.
 */
import { lstat, mkdir, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import { privateDirectory } from '../identity/files.ts';
import { isRunning, type RecordedProcess, recordOf } from './process-record.ts';

/** A UNIX socket's path has at most this many bytes (sun_path less its terminator). */
const SOCKET_PATH_BYTES = 107;
/** Room for the longest socket name in `run/`. */
const LONGEST_SOCKET = 'envoy-egress-processor.sock'.length;

/** Every path of one local directory (docs/architecture.md, "Processes and files of local mode"). Absolute. */
export interface Layout {
  /** The folder of manifests. */
  readonly dir: string;
  readonly settingsFile: string;
  /** `.sandgate/`: the product's own data. */
  readonly data: string;
  readonly state: string;
  readonly pki: string;
  readonly sandboxes: string;
  /** The folder of sockets, by the path that fits into a socket address. */
  readonly run: string;
  /** Where `run/` really lies when `DIR/.sandgate/run` is a link; otherwise the same. */
  readonly runTarget: string;
  /** `node.json`: the node namespace that is in force. */
  readonly nodeRecord: string;
  /** `run/<name>.sock`. */
  socket(name: string): string;
  /** Folder of one Pod, by its uid. */
  sandbox(podUid: string): string;
}

/** The paths of a directory; nothing is created. */
export function layoutOf(dir: string): Layout {
  const root = resolve(dir);
  const data = join(root, '.sandgate');
  const inside = join(data, 'run');
  const fits = Buffer.byteLength(inside) + 1 + LONGEST_SOCKET <= SOCKET_PATH_BYTES;
  const run = fits ? inside : join(userRuntimeDirectory(), 'run', contentHash(root));
  return {
    dir: root,
    settingsFile: join(root, 'sandgate.yaml'),
    data,
    state: join(data, 'state'),
    pki: join(data, 'pki'),
    sandboxes: join(data, 'sandboxes'),
    run,
    runTarget: run,
    nodeRecord: join(run, 'node.json'),
    socket: (name) => join(run, `${name}.sock`),
    sandbox: (podUid) => join(data, 'sandboxes', podUid),
  };
}

/** Creates the product's folders, mode 0700; `run` becomes a link where the real one had to lie elsewhere. */
export async function createLayout(layout: Layout): Promise<void> {
  for (const folder of [layout.data, layout.state, layout.pki, layout.sandboxes]) {
    await privateDirectory(folder);
  }
  const inside = join(layout.data, 'run');
  if (layout.run === inside) {
    const known = await lstat(inside).catch(() => null);
    if (known?.isSymbolicLink() === true) {
      await rm(inside);
    }
    await privateDirectory(inside);
    return;
  }
  await privateUserDirectory(layout.run);
  if ((await readlink(inside).catch(() => '')) !== layout.run) {
    await rm(inside, { recursive: true, force: true });
    await symlink(layout.run, inside);
  }
}

/** The folder of this user's run-time data: `$XDG_RUNTIME_DIR/sandgate`, else `/run/user/<uid>`, else `/tmp/sandgate-<uid>`. */
export function userRuntimeDirectory(): string {
  const given = process.env['XDG_RUNTIME_DIR'] ?? '';
  const uid = process.getuid?.() ?? 0;
  return given.startsWith('/') ? join(given, 'sandgate') : join('/tmp', `sandgate-${uid}`);
}

/** A folder below the user's run-time directory; refuses one that another user owns or may enter. */
async function privateUserDirectory(path: string): Promise<void> {
  const base = userRuntimeDirectory();
  await mkdir(base, { recursive: true, mode: 0o700 });
  const { uid, mode } = await lstat(base);
  if (uid !== process.getuid?.() || (mode & 0o077) !== 0) {
    throw new CodedError('directory-exposed', `${base} must belong to this user alone (mode 0700)`);
  }
  await mkdir(path, { recursive: true, mode: 0o700 });
}

/** A running plane of this user, as recorded. */
interface RunningPlane extends RecordedProcess {
  readonly dir: string;
}

/**
 * Records that the calling process runs the plane of this directory, so that commands started elsewhere find it (D16).
 * Returns the function that takes the record away.
 */
export async function recordRunningPlane(layout: Layout): Promise<() => Promise<void>> {
  const folder = join(userRuntimeDirectory(), 'planes');
  await privateUserDirectory(folder);
  const file = join(folder, `${contentHash(layout.dir)}.json`);
  const plane: RunningPlane = { dir: layout.dir, ...recordOf(process.pid) };
  await writeFile(file, JSON.stringify(plane), { mode: 0o600 });
  return async () => {
    const stored = await readPlane(file);
    if (stored?.pid === plane.pid && stored.startTime === plane.startTime) {
      await rm(file, { force: true });
    }
  };
}

async function readPlane(file: string): Promise<RunningPlane | null> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as RunningPlane;
  } catch {
    return null;
  }
}

/** Directories of the planes that this user has running, sorted. */
export async function runningPlanes(): Promise<string[]> {
  const folder = join(userRuntimeDirectory(), 'planes');
  const found: string[] = [];
  for (const name of await readdir(folder).catch(() => [])) {
    const plane = await readPlane(join(folder, name));
    if (plane !== null && isRunning(plane)) {
      found.push(plane.dir);
    }
  }
  return found.sort();
}

/**
 * The directory that a command speaks about: the given one, else `SANDGATE_DIR`, else the working directory if it holds
 * `.sandgate/`, or its `.local/`, where `npm start` puts it, else the one plane that this user has running (D16). Throws `no-plane` when there is none or more than one.
 */
export async function planeDirectory(given?: string): Promise<string> {
  const named = given ?? process.env['SANDGATE_DIR'];
  if (named !== undefined && named !== '') {
    return resolve(named);
  }
  if ((await stat('.sandgate').catch(() => null))?.isDirectory() === true) {
    return process.cwd();
  }
  // What `npm start` runs in a checkout.
  if ((await stat(join('.local', '.sandgate')).catch(() => null))?.isDirectory() === true) {
    return resolve('.local');
  }
  const running = await runningPlanes();
  if (running.length === 1) {
    return running[0]!;
  }
  const ways = 'name one with --dir or SANDGATE_DIR, or run the command in a directory that holds .sandgate/';
  throw new CodedError(
    'no-plane',
    running.length === 0
      ? `no running plane was found: ${ways}`
      : `several planes are running (${running.join(', ')}): ${ways}`,
  );
}
