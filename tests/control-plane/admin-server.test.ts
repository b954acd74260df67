import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { kindNamed } from '../../api/kinds.ts';
import { silentLogger } from '../../base/logger.ts';
import { type AdminServer, parseAdminAddress, startAdminServer } from '../../cli/admin-server.ts';
import { type ApiRequest, type ApiServer, serveApi } from '../../control-plane/api.ts';
import { createLayout, type Layout, layoutOf } from '../../local/layout.ts';
import { type DirectoryStore, openDirectoryStore } from '../../store/directory.ts';
import { ask } from './ask.ts';

const admin = suite('admin API');
let layout: Layout;
let store: DirectoryStore;
let local: AdminServer;
let remote: AdminServer;
let plane: ApiServer | null = null;
let port: number;
const seen: ApiRequest[] = [];

admin.before(async () => {
  layout = layoutOf(await mkdtemp(join(tmpdir(), 'sg-admin-')));
  await createLayout(layout);
  store = await openDirectoryStore(layout.dir, { kinds: kindNamed, logger: silentLogger });
  const common = { layout, store, components: () => [{ name: 'controller' }], logger: silentLogger };
  local = await startAdminServer({ ...common, address: parseAdminAddress(`unix:${layout.socket('admin')}`) });
  remote = await startAdminServer({ ...common, address: parseAdminAddress('127.0.0.1:0') });
  port = Number(remote.address.split(':').at(-1));
});

admin.after(async () => {
  await Promise.all([local, remote, plane].map((server) => server?.close()));
  await store?.close();
  await rm(layout.dir, { recursive: true, force: true });
});

const unix = () => ({ socketPath: layout.socket('admin') });
const tcp = () => ({ host: '127.0.0.1', port });

admin('listens on a socket of this user alone, without a token', async () => {
  assert.is((await stat(layout.socket('admin'))).mode & 0o777, 0o600);
  assert.is(local.token, null);
  assert.equal(await ask(unix(), 'GET', '/components'), {
    status: 200,
    json: { components: [{ name: 'controller' }] },
  });
  assert.equal((await ask(unix(), 'GET', '/problems')).json, { problems: [] });
});

admin('over TCP it wants its token, a loopback Host and no Origin', async () => {
  const token = remote.token!.reveal();
  assert.ok(token.length >= 40);
  const status = async (headers: Record<string, string>, path = '/components') =>
    (await ask(tcp(), 'GET', path, undefined, { headers })).status;
  const authorization = `Bearer ${token}`;
  assert.is(await status({ authorization }), 200);
  assert.is(await status({ authorization, host: 'localhost:1' }), 200);
  assert.is(await status({ authorization, host: '[::1]:1' }), 200);
  assert.is(await status({}), 403);
  assert.is(await status({ authorization: `Bearer ${token.slice(1)}` }), 403);
  assert.is(await status({ authorization: `Bearer ${token}x` }), 403);
  assert.is(await status({ authorization: token }), 403);
  assert.is(await status({ authorization, host: 'evil.test' }), 403);
  assert.is(await status({ authorization, host: '127.0.0.1.evil.test' }), 403);
  assert.is(await status({ authorization, origin: 'http://localhost' }), 403);
  assert.is(await status({ authorization, host: 'evil.test' }, '/explain'), 403);
});

admin('its address is a socket or loopback', () => {
  assert.equal(parseAdminAddress('[::1]:80'), { kind: 'tcp', host: '::1', port: 80 });
  assert.equal(parseAdminAddress('unix:/a/b'), { kind: 'unix', path: '/a/b' });
  for (const wrong of ['0.0.0.0:80', '10.0.0.1:80', 'example.com:80', '127.0.0.1', '127.0.0.1:70000', 'unix:a', '']) {
    assert.throws(() => parseAdminAddress(wrong), /--admin/, wrong);
  }
});

admin('exec names the wrong field, and what is not there', async () => {
  const fields = async (body: unknown) => {
    const { status, json } = await ask(unix(), 'POST', '/exec', body);
    return [status, (json as { error: { fields: { path: string }[] } }).error.fields.map((field) => field.path)];
  };
  assert.equal(await fields(undefined), [400, ['sandbox', 'command']]);
  assert.equal(await fields({ sandbox: 'one', command: ['ls'] }), [400, ['sandbox']]);
  assert.equal(await fields({ sandbox: 'a/b/c', command: ['ls'] }), [400, ['sandbox']]);
  assert.equal(await fields({ sandbox: 'a/b', command: [] }), [400, ['command']]);
  assert.equal(await fields({ sandbox: 'a/b', command: 'ls' }), [400, ['command']]);
  assert.equal(await fields({ sandbox: 'a/b', command: [1] }), [400, ['command']]);
  assert.equal(await fields({ sandbox: 'a/b', command: ['ls'], container: 1, tty: 'yes' }), [
    400,
    ['container', 'tty'],
  ]);
  const { status, json } = await ask(unix(), 'POST', '/exec', { sandbox: 'a/b', command: ['ls'] });
  assert.equal([status, (json as { error: { code: string } }).error.code], [404, 'not-found']);
});

admin('says that the control plane does not answer', async () => {
  const { status, json } = await ask(unix(), 'GET', '/status');
  assert.equal([status, (json as { error: { code: string } }).error.code], [503, 'unavailable']);
});

admin('passes everything else to the control plane, without its own token', async () => {
  let authorization: string | undefined = 'not asked';
  plane = await serveApi({
    address: { kind: 'unix', path: layout.socket('control-plane') },
    logger: silentLogger,
    admit: (incoming) => {
      authorization = incoming.headers.authorization;
    },
    routes: {
      'POST /explain': async (request) => {
        seen.push(request);
        return { body: request.body, query: request.query.get('q') };
      },
      'GET /logs': async ({ line, signal }) => {
        line({ n: 1 });
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      },
    },
  });
  const headers = { authorization: `Bearer ${remote.token!.reveal()}` };
  const answer = await ask(tcp(), 'POST', '/explain?q=1', { a: 1 }, { headers });
  assert.equal(answer, { status: 200, json: { body: { a: 1 }, query: '1' } });
  assert.is(authorization, undefined);
  assert.is((await ask(unix(), 'GET', '/nothing')).status, 404);
});

admin.run();
