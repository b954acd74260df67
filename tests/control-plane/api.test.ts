import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { CodedError } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { type ApiRequest, type ApiServer, serveApi } from '../../control-plane/api.ts';
import { ask } from './ask.ts';

const api = suite('API plumbing');
let directory: string;
let server: ApiServer;
let path: string;
let followed: ApiRequest | null = null;

api.before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sg-api-'));
  path = join(directory, 'api.sock');
  await writeFile(path, 'what a crash left');
  server = await serveApi({
    address: { kind: 'unix', path },
    logger: silentLogger,
    routes: {
      'GET /echo': async ({ query }) => ({ query: Object.fromEntries(query) }),
      'POST /echo': async ({ body }) => ({ body }),
      'GET /lines': async ({ line }) => {
        line({ n: 1 });
        line({ n: 2 });
      },
      'GET /follow': async (request) => {
        followed = request;
        request.line({ n: 1 });
        await new Promise<void>((resolve) => request.signal.addEventListener('abort', () => resolve()));
      },
      'GET /half': async ({ line }) => {
        line({ n: 1 });
        throw new CodedError('invalid', 'too late to say so');
      },
      'GET /invalid': async () => {
        throw new CodedError('invalid', 'url: no', { fields: [{ path: 'url', reason: 'no' }] });
      },
      'GET /broken': async () => {
        throw new Error('boom');
      },
    },
  });
});

api.after(async () => {
  await server?.close();
  await rm(directory, { recursive: true, force: true });
});

const at = () => ({ socketPath: path });

api('is a socket of mode 0600 in the place of a stale one', async () => {
  const { mode } = await stat(path);
  assert.is(mode & 0o777, 0o600);
  assert.is(server.address, `unix:${path}`);
});

api('gives routes their query and their body', async () => {
  assert.equal(await ask(at(), 'GET', '/echo?a=1&b=%2F'), { status: 200, json: { query: { a: '1', b: '/' } } });
  assert.equal(await ask(at(), 'POST', '/echo', { x: [1] }), { status: 200, json: { body: { x: [1] } } });
  assert.equal(await ask(at(), 'POST', '/echo'), { status: 200, json: { body: null } });
});

api('streams lines', async () => {
  const { status, text } = await ask(at(), 'GET', '/lines');
  assert.equal([status, text], [200, '{"n":1}\n{"n":2}\n']);
});

api('tells a route when its caller has gone', async () => {
  const socket = connect(path);
  socket.write('GET /follow HTTP/1.1\r\nHost: x\r\n\r\n');
  await new Promise((resolve) => socket.once('data', resolve));
  assert.is(followed?.signal.aborted, false);
  const aborted = new Promise((resolve) => followed?.signal.addEventListener('abort', resolve));
  socket.destroy();
  await aborted;
});

api('answers errors with code, message and fields, and nothing of an unexpected one but its message', async () => {
  const { status, json } = await ask(at(), 'GET', '/invalid');
  assert.equal(
    [status, json],
    [400, { error: { code: 'invalid', message: 'url: no', fields: [{ path: 'url', reason: 'no' }] } }],
  );
  assert.is((await ask(at(), 'GET', '/broken')).status, 500);
  assert.is((await ask(at(), 'GET', '/nothing')).status, 404);
  assert.is((await ask(at(), 'GET', '/constructor')).status, 404);
  assert.is((await ask(at(), 'DELETE', '/echo')).status, 404);
});

api('cuts an answer off that fails after it has begun', async () => {
  const answer = await ask(at(), 'GET', '/half').then(
    () => 'whole',
    () => 'cut off',
  );
  assert.is(answer, 'cut off');
});

api('survives a request line that is no URL, a body that is no JSON and one that is too large', async () => {
  const first = await new Promise<string>((resolve) => {
    const socket = connect(path);
    socket.write('GET // HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    socket.once('data', (data) => resolve(String(data).split('\r\n')[0] ?? ''));
  });
  assert.is(first, 'HTTP/1.1 404 Not Found');
  assert.is((await ask(at(), 'POST', '/echo', undefined, { raw: '{' })).status, 400);
  const large = await ask(at(), 'POST', '/echo', undefined, { raw: 'x'.repeat(17 * 1024 * 1024) });
  assert.is(large.status, 413);
  assert.is((await ask(at(), 'GET', '/echo')).status, 200);
});

api('says which address is taken', async () => {
  const blocker = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => blocker.once('listening', resolve));
  const { port } = blocker.address() as { port: number };
  const failed = await serveApi({
    address: { kind: 'tcp', host: '127.0.0.1', port },
    routes: {},
    logger: silentLogger,
  }).catch((error: CodedError) => error);
  assert.equal((failed as CodedError).code, 'address-in-use');
  assert.match((failed as CodedError).message, `127.0.0.1:${port}`);
  blocker.close();
});

api.run();
