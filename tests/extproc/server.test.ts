/** The gRPC side over a real socket. */
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { silentLogger } from '../../base/logger.ts';
import { registry } from '../../base/metrics.ts';
import type { Handler } from '../../extproc/exchange.ts';
import { type ExtProcServer, serveExtProc } from '../../extproc/server.ts';
import { service } from '../../proto/service.ts';
import { until } from '../xds/plane.ts';

const { path, requestSerialize, responseDeserialize } = service('envoy.service.ext_proc.v3.ExternalProcessor')[
  'Process'
]!;

const test = suite('ext_proc server');
let directory: string;
let server: ExtProcServer;
let client: grpc.Client;
let held: PromiseWithResolvers<void>;
let holding = 0;
let left = 0;

/** Answers `/fail` by failing, `/hold` when the test says so, everything else at once. */
const handler: Handler = async (head, { signal }) => {
  if (head.path === '/fail') {
    throw new Error('broken');
  }
  if (head.path === '/hold') {
    holding += 1;
    signal.addEventListener('abort', () => {
      left += 1;
    });
    await held.promise;
  }
  return { kind: 'respond', status: 451, body: head.authority, details: 'x' };
};

test.before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sg-extproc-'));
  held = Promise.withResolvers();
  server = await serveExtProc({ socketPath: join(directory, 'p.sock'), handler, logger: silentLogger });
  client = new grpc.Client(`unix:${join(directory, 'p.sock')}`, grpc.credentials.createInsecure());
});

test.after(async () => {
  client?.close();
  await server?.close();
  await rm(directory, { recursive: true, force: true });
});

interface Call {
  readonly call: grpc.ClientDuplexStream<object, Record<string, unknown>>;
  /** Names of the messages that came, then the name of the status. */
  readonly end: Promise<string>;
}

function open(...messages: object[]): Call {
  const call = client.makeBidiStreamRequest<object, Record<string, unknown>>(
    path,
    requestSerialize,
    responseDeserialize,
  );
  const seen: string[] = [];
  const end = new Promise<string>((resolve) => {
    call.on('data', (message: { immediateResponse?: { status: { code: string | number }; body: Buffer } }) => {
      const { immediateResponse } = message;
      seen.push(immediateResponse === undefined || immediateResponse === null ? 'other' : `${immediateResponse.body}`);
    });
    call.on('error', () => {});
    call.on('status', ({ code }: grpc.StatusObject) => resolve([...seen, grpc.status[code]].join(' ')));
  });
  for (const message of messages) {
    call.write(message);
  }
  return { call, end };
}

const head = (target: string, authority = 'a.test') => ({
  requestHeaders: {
    headers: {
      headers: [
        { key: ':path', rawValue: Buffer.from(target) },
        { key: ':authority', rawValue: Buffer.from(authority) },
      ],
    },
    endOfStream: true,
  },
});

async function streams(result: string): Promise<number> {
  const metric = await registry.getSingleMetric('sandgate_ext_proc_streams_total')!.get();
  return metric.values.find(({ labels }) => labels['result'] === result)?.value ?? 0;
}

test('only this user may open the socket', async () => {
  assert.is((await stat(join(directory, 'p.sock'))).mode & 0o777, 0o600);
});

test('the stream is closed by the server after its answer, without waiting for the client', async () => {
  const before = await streams('answered');
  assert.is(await open(head('/')).end, 'a.test OK');
  await until(async () => (await streams('answered')) === before + 1, 2000, 'count of the answer');
});

test('a failed decision is answered as a refusal and counted', async () => {
  const before = await streams('failed');
  assert.match(await open(head('/fail')).end, /^\{"error":"processor_failed".*\} OK$/);
  await until(async () => (await streams('failed')) === before + 1, 2000, 'count of the failure');
});

test('a message out of order ends the stream with an error', async () => {
  assert.is(await open({}).end, 'FAILED_PRECONDITION');
  assert.is(await open({ requestBody: { body: Buffer.from('x') } }).end, 'FAILED_PRECONDITION');
  assert.is(await open({ responseHeaders: { endOfStream: true } }).end, 'FAILED_PRECONDITION');
  assert.is(await open(head('/')).end, 'a.test OK', 'the next stream of the connection');
});

test('1,800 of 2,000 held streams are reset at once: the other 200 are answered', async () => {
  const leaving = Array.from({ length: 1800 }, () => open(head('/hold')));
  const staying = Array.from({ length: 200 }, (_, index) => open(head('/hold', `s${index}`)));
  await until(() => holding === 2000, 20_000, 'hold of all streams');
  for (const { call } of leaving) {
    call.cancel();
  }
  await until(() => left === 1800, 10_000, 'departure of 1,800');
  held.resolve();
  const ends = await Promise.all(staying.map(({ end }) => end));
  assert.equal(
    ends,
    staying.map((_, index) => `s${index} OK`),
  );
  assert.ok((await Promise.all(leaving.map(({ end }) => end))).every((end) => end === 'CANCELLED'));
  await until(async () => (await openStreams()) === 0, 2000, 'end of all streams');
});

async function openStreams(): Promise<number> {
  return (await registry.getSingleMetric('sandgate_ext_proc_streams')!.get()).values[0]?.value ?? -1;
}

test('what lies in the place of the socket is replaced; a closed server leaves nothing there', async () => {
  const socketPath = join(directory, 'q.sock');
  await writeFile(socketPath, 'left over');
  const second = await serveExtProc({ socketPath, handler, logger: silentLogger });
  assert.ok((await stat(socketPath)).isSocket());
  await second.close();
  assert.is(await stat(socketPath).catch(() => null), null);
});

test.run();
