import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { kindNamed } from '../../api/kinds.ts';
import { isCoded } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { adminCall } from '../../cli/admin-client.ts';
import { writeAdminRecord } from '../../cli/admin-record.ts';
import { parseAdminAddress, startAdminServer } from '../../cli/admin-server.ts';
import { createLayout, type Layout, layoutOf } from '../../local/layout.ts';
import { type DirectoryStore, openDirectoryStore } from '../../store/directory.ts';

/** How a command finds the admin API of a running plane, wherever `up --admin` put it (D22). */
const client = suite('admin client');
let layout: Layout;
let store: DirectoryStore;

client.before(async () => {
  layout = layoutOf(await mkdtemp(join(tmpdir(), 'sg-client-')));
  await createLayout(layout);
  store = await openDirectoryStore(layout.dir, { kinds: kindNamed, logger: silentLogger });
});

client.after(async () => {
  await store?.close();
  await rm(layout.dir, { recursive: true, force: true });
});

for (const [where, address] of [
  ['a UNIX socket', () => `unix:${layout.socket('admin')}`],
  ['TCP, with the token', () => '127.0.0.1:0'],
  ['TCP over IPv6', () => '[::1]:0'],
] as const) {
  client(`asks over ${where}`, async () => {
    const components = () => [{ name: 'controller' }];
    const options = { layout, store, components, logger: silentLogger };
    const server = await startAdminServer({ ...options, address: parseAdminAddress(address()) });
    const forget = await writeAdminRecord(layout, server);
    try {
      assert.equal(await adminCall(layout.dir, 'GET', '/components'), { components: [{ name: 'controller' }] });
      assert.is((await stat(join(layout.run, 'admin.json'))).mode & 0o777, 0o600);
    } finally {
      await forget();
      await server.close();
    }
  });
}

const refusal = async () => {
  const error = await adminCall(layout.dir, 'GET', '/components').catch((caught: unknown) => caught);
  return isCoded(error) ? [error.code, error.message] : error;
};

client('without a record, or where nobody listens any more, no plane runs', async () => {
  const expected = [
    'unavailable',
    `no plane is running in ${layout.dir}: start it with sandgate up --dir ${layout.dir}`,
  ];
  assert.equal(await refusal(), expected);
  const forget = await writeAdminRecord(layout, { address: `unix:${layout.socket('admin')}`, token: null });
  assert.equal(await refusal(), expected);
  await forget();
});

client.run();
