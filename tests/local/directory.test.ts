import { lstatSync, readlinkSync, statSync } from 'node:fs';
import { appendFile, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ManualClock } from '../../base/clock.ts';
import { isCoded } from '../../base/errors.ts';
import { AddressPool, QUARANTINE_MS } from '../../local/addresses.ts';
import { detectCapabilities } from '../../local/capabilities.ts';
import { createLayout, layoutOf, planeDirectory, recordRunningPlane } from '../../local/layout.ts';
import { ContainerLog } from '../../local/log-file.ts';
import { isRunning, killAndWait, recordOf } from '../../local/process-record.ts';
import { parseSettings, readSettings } from '../../local/settings.ts';

const test = suite<{ dir: string }>('local directory');
const known = { cwd: process.cwd(), runtime: process.env['XDG_RUNTIME_DIR'], dir: process.env['SANDGATE_DIR'] };

test.before.each(async (context) => {
  context.dir = await mkdtemp(join(tmpdir(), 'sg-'));
  process.env['XDG_RUNTIME_DIR'] = join(context.dir, 'runtime');
  delete process.env['SANDGATE_DIR'];
  await mkdir(join(context.dir, 'runtime'), { mode: 0o700 });
});

test.after.each(async ({ dir }) => {
  process.chdir(known.cwd);
  for (const [name, value] of [
    ['XDG_RUNTIME_DIR', known.runtime],
    ['SANDGATE_DIR', known.dir],
  ] as const) {
    if (value === undefined) {
      delete process.env[name];
    } else {
      process.env[name] = value;
    }
  }
  await rm(dir, { recursive: true, force: true });
});

const rejection = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (error: unknown) => error,
  );

test('the layout is private and made as often as wanted', async ({ dir }) => {
  const layout = layoutOf(dir);
  await createLayout(layout);
  await createLayout(layout);
  for (const folder of [layout.data, layout.state, layout.pki, layout.sandboxes, layout.run]) {
    assert.is(statSync(folder).mode & 0o777, 0o700, folder);
  }
  assert.is(layout.run, join(dir, '.sandgate', 'run'));
});

test('sockets of a deep directory lie elsewhere, behind a link, and can be served', async ({ dir }) => {
  const deep = join(dir, 'd'.repeat(100));
  await mkdir(deep);
  const layout = layoutOf(deep);
  await createLayout(layout);
  assert.ok(lstatSync(join(deep, '.sandgate', 'run')).isSymbolicLink());
  assert.is(readlinkSync(join(deep, '.sandgate', 'run')), layout.run);
  assert.is(statSync(layout.run).mode & 0o777, 0o700);
  const path = layout.socket('envoy-egress-processor');
  assert.ok(Buffer.byteLength(path) <= 107, path);
  const server = createServer().listen(path);
  await new Promise((done, failed) => server.once('listening', () => done(null)).once('error', failed));
  server.close();
  assert.is(layoutOf(deep).run, layout.run);
  assert.is.not(layoutOf(join(dir, 'e'.repeat(100))).run, layout.run);
});

test('a run-time directory that others may enter is refused', async ({ dir }) => {
  await mkdir(join(dir, 'runtime', 'sandgate'), { mode: 0o755 });
  assert.ok(isCoded(await rejection(recordRunningPlane(layoutOf(dir))), 'directory-exposed'));
});

test('a command finds its plane in this order: option, variable, working directory, the one that runs', async ({
  dir,
}) => {
  process.chdir(dir);
  assert.ok(isCoded(await rejection(planeDirectory()), 'no-plane'));
  const forget = await recordRunningPlane(layoutOf(join(dir, 'running')));
  assert.is(await planeDirectory(), join(dir, 'running'));
  const forgetOther = await recordRunningPlane(layoutOf(join(dir, 'other')));
  const several = (await rejection(planeDirectory())) as Error;
  assert.match(several.message, join(dir, 'other'));
  assert.match(several.message, join(dir, 'running'));
  await forgetOther();
  assert.is(await planeDirectory(), join(dir, 'running'));
  await mkdir('.sandgate');
  assert.is(await planeDirectory(), process.cwd());
  process.env['SANDGATE_DIR'] = join(dir, 'variable');
  assert.is(await planeDirectory(), join(dir, 'variable'));
  assert.is(await planeDirectory('given'), join(process.cwd(), 'given'));
  await forget();
});

test('a plane that was killed is not found', async ({ dir }) => {
  process.chdir(dir);
  await recordRunningPlane(layoutOf(join(dir, 'dead')));
  const folder = join(dir, 'runtime', 'sandgate', 'planes');
  const [file] = (await import('node:fs')).readdirSync(folder);
  const record = JSON.parse(await readFile(join(folder, file!), 'utf8')) as object;
  await writeFile(join(folder, file!), JSON.stringify({ ...record, startTime: '1' }));
  assert.ok(isCoded(await rejection(planeDirectory()), 'no-plane'));
});

test('settings: defaults, values, and errors that name file and field', async ({ dir }) => {
  assert.equal(await readSettings(dir), {
    domain: 'localhost',
    hosts: {},
    trust: [],
    images: {},
    shortIds: false,
    resolver: null,
  });
  const settings = parseSettings(
    'domain: Box.Example\nhosts: {API.example.com: 127.0.0.1, v6.example: "[::1]:8443", p.example: 10.0.0.1:80}\n' +
      'trust: [ca.pem, /abs/ca.pem]\nimages: {a: {command: [x]}}\nshortIds: true\ndns: {resolver: 192.0.2.53}\n',
    dir,
  );
  assert.equal(settings, {
    domain: 'box.example',
    hosts: {
      'api.example.com': { address: '127.0.0.1' },
      'v6.example': { address: '::1', port: 8443 },
      'p.example': { address: '10.0.0.1', port: 80 },
    },
    trust: [join(dir, 'ca.pem'), '/abs/ca.pem'],
    images: { a: { command: ['x'], env: {} } },
    shortIds: true,
    resolver: { address: '192.0.2.53', port: 53 },
  });
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ['domains: x', 'domains', /did you mean domain/],
    ['domain: not_a_name', 'domain', /no DNS name/],
    ['hosts: {x.example: 999.1.1.1}', 'hosts["x.example"]', /no address/],
    ['hosts: {x.example: "1.2.3.4:99999"}', 'hosts["x.example"]', /no address/],
    ['hosts: {"*.example": 1.2.3.4}', 'hosts["*.example"]', /DNS name/],
    ['images: {a: {command: []}}', 'images.a.command', /at least 1/],
    ['shortIds: "yes"', 'shortIds', /true or false/],
    ['dns: {resolver: none}', 'dns.resolver', /no address/],
    ['- a', '', /object/],
  ];
  for (const [source, path, reason] of cases) {
    try {
      parseSettings(source, dir, 'sandgate.yaml');
      assert.unreachable(source);
    } catch (error) {
      assert.ok(isCoded(error, 'invalid'), source);
      assert.is(error.fields[0]!.path, path, source);
      assert.match(error.message, reason);
      assert.ok(error.message.startsWith('sandgate.yaml: '), error.message);
    }
  }
  assert.throws(() => parseSettings('a: [', dir), /^sandgate.yaml:1: |sandgate.yaml:\d/);
});

test('an address rests after use, and the turn goes on after a restart', async ({ dir }) => {
  const clock = new ManualClock(0);
  const pool = await AddressPool.open(dir, clock);
  const first = await pool.take();
  assert.equal(first, { index: 2, ipv4: '10.244.0.2', ipv6: 'fd53:6174:6e64::2' });
  pool.release(first);
  assert.is((await pool.take()).ipv4, '10.244.0.3');
  assert.is((await (await AddressPool.open(dir, clock)).take()).ipv4, '10.244.0.4');
  await writeFile(join(dir, 'last-address'), String(127 * 256 + 253));
  const late = await AddressPool.open(dir, clock);
  const last = await late.take();
  assert.is(last.ipv4, '10.244.127.254');
  assert.is((await late.take()).ipv4, '10.244.0.2');
  late.release(last);
  await writeFile(join(dir, 'last-address'), '1');
  const seen = new Set<string>();
  for (let count = 0; count < 400; count += 1) {
    seen.add((await late.take()).ipv4);
  }
  assert.ok(!seen.has('10.244.0.0') && !seen.has('10.244.0.255') && !seen.has('10.244.1.0') && !seen.has(last.ipv4));
  assert.ok(QUARANTINE_MS >= 60_000);
});

test('a log is cut, its end kept, and its writers go on', async ({ dir }) => {
  const path = join(dir, 'main.log');
  const log = new ContainerLog(path, null, 100);
  await appendFile(path, `${'a'.repeat(80)}\n`);
  log.rotate();
  assert.is((await stat(path)).size, 81);
  await appendFile(path, 'b'.repeat(500));
  log.rotate();
  assert.is((await stat(path)).size, 0);
  assert.is(await readFile(`${path}.1`, 'utf8'), 'b'.repeat(100));
  await appendFile(path, 'more');
  assert.is(await readFile(path, 'utf8'), 'more');
  log.close();
});

test('a process is only ever killed by its start time', async () => {
  const own = recordOf(process.pid);
  assert.ok(isRunning(own));
  const stranger = { pid: process.pid, startTime: `${Number(own.startTime) - 1}` };
  assert.not.ok(isRunning(stranger));
  await killAndWait(stranger); // Would end this test.
});

test('this machine: namespaces are possible, and trying it leaves nothing', async () => {
  const { mode, list } = await detectCapabilities();
  assert.is(mode, 'namespaces', JSON.stringify(list));
  assert.ok(list.every(({ required, ok }) => ok || !required));
});

test('without its tools a machine is told the one command that brings them', async () => {
  const path = process.env['PATH'];
  try {
    process.env['PATH'] = '';
    const { installCommand } = await import('../../local/tools.ts');
    assert.is(
      installCommand(['nft', 'ip', 'unshare', 'nsenter']),
      'apt-get install --yes iproute2 nftables util-linux',
    );
  } finally {
    process.env['PATH'] = path;
  }
});

test.run();
