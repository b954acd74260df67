// What every npm script does first, on whatever Node started it: install the dependencies when the lock file has
// changed, and find the Node 24 that runs TypeScript. Plain JavaScript on purpose.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import module from 'node:module';
import { constants, homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const say = (text) => process.stderr.write(`sandgate: ${text}\n`);

/** Installs the dependencies with `npm ci` when `node_modules` does not belong to the present lock file. */
export function prepare() {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  const stamp = join(root, 'node_modules', '.sandgate-lock');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) {
    return;
  }
  say('installing the dependencies (npm ci), about 15 seconds …');
  // A variable of the outer npm run would make the inner one believe that it is a script.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('npm_lifecycle')));
  const done = spawnSync('npm', ['ci', '--no-fund', '--no-audit', '--loglevel=error'], {
    cwd: root,
    env,
    stdio: ['ignore', 2, 2],
  });
  if (done.status !== 0) {
    say(`npm ci failed (${done.error?.message ?? `exit status ${done.status}`}); run it by hand to see why`);
    process.exit(1);
  }
  writeFileSync(stamp, lock);
  say('dependencies installed');
}

/** The Node of at least version 24: this one, or the one that came with the dependencies. */
export function node24() {
  if (Number(process.versions.node.split('.')[0]) >= 24) {
    return process.execPath;
  }
  const bundled = join(root, 'node_modules', `node-linux-${process.arch}`, 'bin', 'node');
  if (!existsSync(bundled)) {
    say(`Node 24 is needed and no build of it is bundled for ${process.platform} ${process.arch}: install Node 24`);
    process.exit(1);
  }
  return bundled;
}

/**
 * Has Node keep stripped and compiled code from one start to the next (`NODE_COMPILE_CACHE`, for this process and those
 * that it starts). Without it every process loads the compiler that strips types, 15 MB each, and takes twice as long
 * to start. Beside the Envoy that was downloaded (`cacheFolder` in `envoy/find.ts`): never below `/tmp`, where others
 * could put code.
 */
function keepCompiledCode() {
  const { SANDGATE_CACHE: own = '', XDG_CACHE_HOME: shared = '', HOME: home = homedir() } = process.env;
  const folder = own.startsWith('/') ? own : join(shared.startsWith('/') ? shared : join(home, '.cache'), 'sandgate');
  process.env.NODE_COMPILE_CACHE ??= join(folder, 'node');
}

/** What keeps the heap of a Node process small that runs for months; `cli/components.ts` starts its children so. */
const SMALL = ['--max-semi-space-size=4'];

/** Runs a TypeScript file of the project in this process when it is Node 24, else in a child that gets our signals. */
export async function runNode(entry, args) {
  const file = join(root, entry);
  const node = node24();
  keepCompiledCode();
  if (node === process.execPath) {
    module.enableCompileCache(process.env.NODE_COMPILE_CACHE);
    process.argv = [process.argv[0], file, ...args];
    await import(pathToFileURL(file).href);
    return;
  }
  const child = spawn(node, [...SMALL, file, ...args], { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => child.kill(signal));
  }
  child.on('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
