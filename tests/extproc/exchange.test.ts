import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { Answer } from '../../extproc/answer.ts';
import { Exchange, FAILED, type Handler } from '../../extproc/exchange.ts';
import type { ProcessingRequest } from '../../extproc/request.ts';

interface Played {
  readonly exchange: Exchange;
  /** The member of each message that was sent: its type. */
  readonly sent: readonly Record<string, unknown>[];
  readonly ends: readonly (string | null)[];
  readonly failures: readonly unknown[];
}

function play(handler: Handler): Played {
  const sent: Record<string, unknown>[] = [];
  const ends: (string | null)[] = [];
  const failures: unknown[] = [];
  const exchange = new Exchange(handler, {
    send: (message) => void sent.push({ ...message }),
    end: (error) => void ends.push(error),
    failed: (error) => void failures.push(error),
  });
  return { exchange, sent, ends, failures };
}

const kinds = ({ sent }: Played) => sent.map((message) => Object.keys(message).join('+'));
const tick = () => new Promise((resolve) => setImmediate(resolve));

const headers = (endOfStream: boolean): ProcessingRequest => ({
  requestHeaders: { headers: { headers: [{ key: ':path', rawValue: Buffer.from('/x') }] }, endOfStream },
});
const body = (text: string): ProcessingRequest => ({ requestBody: { body: Buffer.from(text), endOfStream: true } });
const PASS: Answer = { kind: 'continue' };
const readsBody: Handler = async (_, { readBody }) => ({
  kind: 'respond',
  status: 451,
  body: Buffer.from(await readBody()).toString(),
  details: 'x',
});

test('one headers message is one answer of its type, and the end', async () => {
  const played = play(async () => PASS);
  played.exchange.receive(headers(true));
  await tick();
  assert.equal(kinds(played), ['requestHeaders']);
  assert.equal(played.ends, [null]);
});

test('a body is asked for by a mode override and answered by a message of its type', async () => {
  const played = play(async (_, { readBody }) => {
    assert.is(Buffer.from(await readBody()).toString(), 'hello');
    return { kind: 'continue', set: { 'x-a': 'b' }, remove: ['x-c'], clearRouteCache: true };
  });
  played.exchange.receive(headers(false));
  await tick();
  assert.equal(kinds(played), ['requestHeaders+modeOverride']);
  assert.equal(played.ends, []);
  assert.is((played.sent[0]!['modeOverride'] as { requestBodyMode: string }).requestBodyMode, 'BUFFERED');
  played.exchange.receive(body('hello'));
  await tick();
  assert.equal(kinds(played), ['requestHeaders+modeOverride', 'requestBody']);
  assert.equal(played.sent[1], {
    requestBody: {
      response: {
        status: 'CONTINUE',
        headerMutation: {
          setHeaders: [
            { header: { key: 'x-a', rawValue: Buffer.from('b') }, appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD' },
          ],
          removeHeaders: ['x-c'],
        },
        clearRouteCache: true,
      },
    },
  });
  assert.equal(played.ends, [null]);
});

test('a request without a body is answered in the headers phase', async () => {
  const played = play(readsBody);
  played.exchange.receive(headers(true));
  await tick();
  assert.equal(kinds(played), ['immediateResponse']);
  assert.is(Buffer.from((played.sent[0]!['immediateResponse'] as { body: Buffer }).body).toString(), '');
});

test('metadata goes out as a struct of texts', async () => {
  const played = play(async () => ({ kind: 'continue', metadata: { 'envoy.lb.original_dst': { host: '[::1]:80' } } }));
  played.exchange.receive(headers(true));
  await tick();
  assert.equal(played.sent[0]!['dynamicMetadata'], {
    fields: { 'envoy.lb.original_dst': { structValue: { fields: { host: { stringValue: '[::1]:80' } } } } },
  });
});

for (const [name, messages] of [
  ['headers twice', [headers(false), headers(false)]],
  ['a body that nobody asked for', [headers(false), body('x')]],
  ['a body first', [body('x')]],
  ['an empty message', [{}]],
  ['response headers', [{ responseHeaders: { endOfStream: true } }]],
  ['trailers while it decides', [headers(false), { requestTrailers: {} }]],
] as const) {
  test(`${name}: the stream ends with an error and without an answer`, async () => {
    const decided = Promise.withResolvers<Answer>();
    const played = play(() => decided.promise);
    for (const message of messages) {
      played.exchange.receive(message);
    }
    decided.resolve(PASS);
    await tick();
    assert.equal(played.sent, []);
    assert.equal(played.ends, ['a message came out of order']);
  });
}

test('a second body is out of order, and the answer that was under way is dropped', async () => {
  const gate = Promise.withResolvers<void>();
  const played = play(async (_, { readBody }) => {
    await readBody();
    await gate.promise;
    return PASS;
  });
  played.exchange.receive(headers(false));
  played.exchange.receive(body('a'));
  played.exchange.receive(body('b'));
  gate.resolve();
  await tick();
  assert.equal(kinds(played), ['requestHeaders+modeOverride']);
  assert.equal(played.ends, ['a message came out of order']);
});

test('a handler that fails is a refusal, never a pass, and says nothing of why', async () => {
  for (const fails of [
    () => Promise.reject(new Error('secret detail')),
    (() => {
      throw new Error('secret detail');
    }) as Handler,
  ]) {
    const played = play(async (head, context) => fails(head, context));
    played.exchange.receive(headers(true));
    await tick();
    assert.equal(kinds(played), ['immediateResponse']);
    assert.equal((played.sent[0]!['immediateResponse'] as { status: object }).status, { code: 500 });
    assert.not.match(JSON.stringify(played.sent), /secret detail/);
    assert.is(played.failures.length, 1);
    assert.equal(played.ends, [null]);
  }
  assert.is(FAILED.kind, 'respond');
});

test('a cancelled stream aborts the handler and is never written to again', async () => {
  let aborted = false;
  let extend: (seconds: number) => void = () => {};
  const played = play(async (_, context) => {
    extend = context.extend;
    await new Promise<void>((resolve) => context.signal.addEventListener('abort', () => resolve()));
    aborted = context.signal.aborted;
    return PASS;
  });
  played.exchange.receive(headers(true));
  played.exchange.cancel();
  await tick();
  extend(10);
  played.exchange.receive(headers(true));
  await tick();
  assert.ok(aborted);
  assert.equal(played.sent, []);
  assert.equal(played.ends, []);
});

test('who waits for a body that never comes is let go', async () => {
  const played = play(readsBody);
  played.exchange.receive(headers(false));
  await tick();
  played.exchange.cancel();
  await tick();
  assert.equal(kinds(played), ['requestHeaders+modeOverride']);
  assert.equal(played.failures, []);
});

test('more time is asked for once', async () => {
  const played = play(async (_, { extend }) => {
    extend(125);
    extend(125);
    return PASS;
  });
  played.exchange.receive(headers(true));
  await tick();
  assert.equal(kinds(played), ['overrideMessageTimeout', 'requestHeaders']);
  assert.equal(played.sent[0], { overrideMessageTimeout: { seconds: '125', nanos: 0 } });
});

test.run();
