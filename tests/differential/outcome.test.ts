import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Decision, DecisionRequest } from '../../api/decision.ts';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { call, factsOf, profile, rule } from '../vectors/facts.ts';
import { bytesOf, expected, mismatch } from './outcome.ts';
import { SniffingUpstream } from './sniffing-upstream.ts';

/** The judge of the differential test through Envoys, without any Envoy: it has to notice what a wrong one would do. */

const SECRETS = { 'team-a/key': 'the-value' };
const HOST = 'a.test';

interface Ground {
  directory: string;
  pki: Pki;
  upstream: SniffingUpstream;
  port: number;
}

const judge = suite<Ground>('judge');

judge.before(async (ground) => {
  ground.directory = await mkdtemp(join(tmpdir(), 'outcome-'));
  ground.pki = await openPki(join(ground.directory, 'pki'));
  ground.upstream = new SniffingUpstream(ground.pki);
  ground.port = (await ground.upstream.listen([0]))[0]!;
});

judge.after(async ({ directory, upstream }) => {
  upstream.close();
  await rm(directory, { recursive: true });
});

/** Sends a request straight to the upstream, as if there were no policy, with changed bytes if wanted. */
async function answerTo(
  { port, pki }: Ground,
  request: DecisionRequest,
  change = (bytes: string) => bytes,
): Promise<string> {
  const secure = request.scheme === 'https';
  const options = { host: '127.0.0.1', port, timeout: 5000 };
  const socket = secure
    ? connectTls({ ...options, servername: request.sni ?? '', ca: pki.mitmCaPem })
    : connect(options);
  socket.once('timeout', () => socket.destroy(new Error('no answer')));
  await once(socket, secure ? 'secureConnect' : 'connect');
  const sent = change(bytesOf(request));
  socket.write(Buffer.from(sent.replace('\r\n', '\r\nconnection: close\r\n'), 'latin1'));
  const chunks: Buffer[] = [];
  for await (const chunk of socket) {
    chunks.push(chunk as Buffer);
    if (request.scheme === 'tcp') {
      break;
    }
  }
  return `${secure ? 'origin\n' : ''}${Buffer.concat(chunks).toString('latin1')}`;
}

function decisionOf(actions: object | null, request: DecisionRequest): Decision {
  const objects = actions === null ? [] : [profile([rule(actions, { domains: [HOST], schemes: ['http'] })])];
  return decide(factsOf({ objects, secretKeys: { 'team-a/key': ['apiKey'] } }), request);
}

const post = call(`http://${HOST}/v1?id=7`, {
  method: 'POST',
  headers: [
    ['x-a', '1'],
    ['x-a', '2'],
  ],
  body: '{"n":1}',
});
const set = { headerManipulation: { set: [{ name: 'x-a', value: '9' }] } };
const remove = { headerManipulation: { remove: ['x-a'] } };
const token = {
  tokenTransformation: {
    credentialRef: { secret: { name: 'key' } },
    apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
  },
};
const withHeader = (line: string) => (bytes: string) => bytes.replace('\r\n', `\r\n${line}\r\n`);
const withoutXa = (bytes: string) => bytes.replaceAll(/x-a: \d\r\n/g, '');

type Row = readonly [about: string, actions: object | null, change: (bytes: string) => string, wrong: RegExp | null];

const same = (bytes: string) => bytes;
const rows: readonly Row[] = [
  ['forwarded as it was', {}, same, null],
  ['a changed path', {}, (bytes) => bytes.replace('/v1?id=7', '/v1'), /arrived as POST \/v1$/],
  ['a changed method', {}, (bytes) => bytes.replace('POST', 'PUT'), /arrived as PUT/],
  ['a header that nobody removed', {}, withoutXa, /x-a arrived as undefined/],
  ['one value of two', {}, (bytes) => bytes.replace('x-a: 1\r\n', ''), /x-a arrived as 2/],
  ['a header set', set, (bytes) => withHeader('x-a: 9')(withoutXa(bytes)), null],
  ['a header not set', set, same, /x-a arrived as 1, 2/],
  ['a header removed', remove, withoutXa, null],
  ['a header not removed', remove, same, /x-a arrived/],
  ['a credential', token, withHeader('authorization: Bearer the-value'), null],
  ['no credential', token, same, /does not carry the credential/],
  ['a credential for nobody', {}, withHeader('x-other: the-value'), /x-other carries a credential/],
  ['not blocked', { block: {} }, same, /another answer/],
];

for (const [about, actions, change, wrong] of rows) {
  judge(about, async (ground) => {
    const decision = decisionOf(actions, post);
    const why = mismatch(expected(decision), post, decision.tls, await answerTo(ground, post, change), SECRETS);
    assert.ok(wrong === null ? why === null : wrong.test(why ?? ''), `${why}`);
  });
}

judge('an answer of the policy, to its last word', () => {
  const decision = decisionOf({ block: { statusCode: 451, body: 'no' } }, post);
  const answered = (status: number, type: string, body: string) =>
    mismatch(
      expected(decision),
      post,
      decision.tls,
      `HTTP/1.1 ${status} X\r\ncontent-type: ${type}\r\n\r\n${body}`,
      SECRETS,
    );
  assert.is(answered(451, 'text/plain', 'no'), null);
  assert.ok(answered(403, 'text/plain', 'no'));
  assert.ok(answered(451, 'text/plain', 'no!'));
  assert.ok(answered(451, 'application/json', 'no'));
});

judge('TLS that passes, or that should not', async (ground) => {
  const request = call(`https://${HOST}/`);
  const answer = await answerTo(ground, request);
  const passes = decisionOf(null, request);
  assert.is(mismatch(expected(passes), request, passes.tls, answer, SECRETS), null);
  assert.match(mismatch(expected(passes), request, 'intercepted', answer, SECRETS) ?? '', /certificate/);
  assert.is(mismatch({ kind: 'closed' }, request, null, answer, SECRETS), 'it was not closed');
  assert.is(mismatch({ kind: 'closed' }, request, null, 'closed ECONNRESET', SECRETS), null);
});

judge('raw bytes', async (ground) => {
  const request = call('tcp://free.test:80');
  const decision = decisionOf(null, request);
  const before = ground.upstream.arrivals;
  const answer = await answerTo(ground, request);
  assert.is(mismatch(expected(decision), request, decision.tls, answer, SECRETS), null);
  assert.ok(mismatch(expected(decision), request, decision.tls, 'closed', SECRETS));
  assert.is(ground.upstream.arrivals, before + 1);
});

judge.run();
