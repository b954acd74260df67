import { inspect } from 'node:util';
import { decodeJwt, decodeProtectedHeader, importJWK, SignJWT } from 'jose';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ManualClock } from '../../base/clock.ts';
import { isCoded } from '../../base/errors.ts';
import { Redacted } from '../../base/redacted.ts';
import {
  createTokenKey,
  parseTokenKeys,
  rotateTokenKeys,
  SandboxTokens,
  serializeTokenKeys,
} from '../../identity/sandbox-token.ts';
import { parseSpiffeId, sandboxId, spiffeIdOfAltNames } from '../../identity/spiffe.ts';

const START = Date.parse('2026-12-01T00:00:00Z');
const MINUTE = 60_000;
const UID = '6f9c3f0e-0000-4000-8000-000000000001';
const SUBJECT = { uid: UID, pod: 'pod-1', spiffeId: sandboxId({ namespace: 'team-a', uid: UID }) };

async function refused(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'accepted';
  } catch (error) {
    return isCoded(error) ? `${error.code}: ${error.message}` : `uncoded ${String(error)}`;
  }
}

test('a token says what docs/architecture.md promises', async () => {
  const clock = new ManualClock(START);
  const tokens = new SandboxTokens([await createTokenKey(0)], clock);
  const { token, expiresAt, renewAt } = await tokens.issue(SUBJECT);
  const claims = decodeJwt(token.reveal());
  assert.is(claims.iss, 'sandgate');
  assert.is(claims.aud, 'egress');
  assert.is(claims.sub, UID);
  assert.is(claims['pod'], 'pod-1');
  assert.is(claims['spiffe'], SUBJECT.spiffeId);
  assert.is(claims.nbf, claims.iat);
  assert.is(claims.exp! - claims.iat!, 900);
  assert.is(expiresAt, claims.exp! * 1000);
  assert.is(renewAt, claims.iat! * 1000 + 10 * MINUTE);
  assert.ok(START >= claims.iat! * 1000 && START < renewAt);
  const header = decodeProtectedHeader(token.reveal());
  assert.equal([header.alg, header.kid], ['EdDSA', tokens.publicJwks().keys[0]!.kid]);
  assert.equal(await tokens.verify(token), SUBJECT);
  assert.not.match(inspect(await tokens.issue(SUBJECT)), /eyJ/);
  assert.not.ok(JSON.stringify(tokens.publicJwks()).includes('"d"'));
});

test('within a period a second issuer gives the same bytes; the next period another token', async () => {
  const clock = new ManualClock(START);
  const keys = [await createTokenKey(0)];
  const first = await new SandboxTokens(keys, clock).issue(SUBJECT);
  const again = await new SandboxTokens(parseTokenKeys(serializeTokenKeys(keys)), clock).issue(SUBJECT);
  assert.is(again.token.reveal(), first.token.reveal());
  clock.advance(first.renewAt - START);
  const next = await new SandboxTokens(keys, clock).issue(SUBJECT);
  assert.is.not(next.token.reveal(), first.token.reveal());
  assert.equal(await new SandboxTokens(keys, clock).verify(first.token), SUBJECT);
});

test('renewals of many sandboxes are spread over the period', async () => {
  const tokens = new SandboxTokens([await createTokenKey(0)], new ManualClock(START));
  const times = new Set<number>();
  for (let index = 0; index < 40; index += 1) {
    const uid = `u-${index}`;
    times.add((await tokens.issue({ uid, pod: 'p', spiffeId: sandboxId({ namespace: 'a', uid }) })).renewAt);
  }
  assert.ok(times.size > 30, `${times.size} moments`);
});

test('only uids are signed, and only with their own SPIFFE id', async () => {
  const tokens = new SandboxTokens([await createTokenKey(0)], new ManualClock(START));
  for (const uid of ['!pin-s1', 'i:u-1', '', 'a,b', 'A', 'a'.repeat(64), '*', 'a b', 'u-1\n']) {
    assert.match(await refused(tokens.issue({ ...SUBJECT, uid })), /^invalid-subject/, JSON.stringify(uid));
  }
  assert.match(await refused(tokens.issue({ ...SUBJECT, uid: 'u-2' })), /^invalid-subject/);
  const role = 'spiffe://sandgate.local/role/egress';
  assert.match(await refused(tokens.issue({ ...SUBJECT, spiffeId: role })), /^invalid-subject/);
});

test('verification refuses every other token and never quotes it', async () => {
  const clock = new ManualClock(START);
  const key = await createTokenKey(0);
  const tokens = new SandboxTokens([key], clock);
  const good = (await tokens.issue(SUBJECT)).token.reveal();
  const foreign = await new SandboxTokens([await createTokenKey(0)], clock).issue(SUBJECT);
  const signed = async (claims: Record<string, unknown>): Promise<string> =>
    new SignJWT({ iss: 'sandgate', aud: 'egress', sub: UID, pod: 'p', spiffe: SUBJECT.spiffeId, ...claims })
      .setProtectedHeader({ alg: 'EdDSA', kid: key.kid })
      .sign(await importJWK(key.jwk.reveal(), 'EdDSA'));
  const times = { iat: START / 1000, nbf: START / 1000, exp: START / 1000 + 900 };
  assert.equal((await tokens.verify(new Redacted(await signed(times)))).uid, UID);
  const cases: Record<string, string> = {
    empty: '',
    garbage: 'abc.def.ghi',
    'changed signature': `${good.slice(0, -6)}AAAAAA`,
    'foreign key': foreign.token.reveal(),
    'other audience': await signed({ ...times, aud: 'ingress' }),
    'other issuer': await signed({ ...times, iss: 'x' }),
    'not yet': await signed({ ...times, nbf: START / 1000 + 100 }),
    'no expiry': await signed({ iat: times.iat, nbf: times.nbf }),
    'a pin key': await signed({ ...times, sub: '!pin-s1' }),
    'another sandbox': await signed({ ...times, sub: 'u-2' }),
  };
  for (const [name, text] of Object.entries(cases)) {
    const message = await refused(tokens.verify(new Redacted(text)));
    assert.match(message, /^invalid-token/, name);
    assert.not.ok(text !== '' && message.includes(text), name);
  }
  clock.advance(15 * MINUTE);
  assert.match(await refused(tokens.verify(new Redacted(good))), /ERR_JWT_EXPIRED/);
});

test('a rotation publishes the new key before it signs and the old one until its last token is over', async () => {
  const clock = new ManualClock(START);
  const old = [await createTokenKey(0)];
  const rotated = await rotateTokenKeys(old, START);
  const tokens = new SandboxTokens(rotated, clock);
  const [oldKid, newKid] = rotated.map(({ kid }) => kid);
  const signer = async (): Promise<string> =>
    decodeProtectedHeader((await tokens.issue(SUBJECT)).token.reveal()).kid as string;
  assert.is(tokens.publicJwks().keys.length, 2);
  assert.is(await signer(), oldKid);
  const last = await tokens.issue(SUBJECT);
  clock.advance(2 * MINUTE);
  assert.is(await signer(), newKid);
  assert.equal(await tokens.verify(last.token), SUBJECT);
  assert.match(await refused(rotateTokenKeys(rotated, clock.now())), /^rotation-pending/);
  clock.advance(16 * MINUTE);
  assert.equal(
    tokens.publicJwks().keys.map(({ kid }) => kid),
    [newKid],
  );
  assert.is((await rotateTokenKeys(rotated, clock.now())).length, 2);
});

test('a SPIFFE id is parsed only when it is exactly one of ours', () => {
  const id = 'spiffe://sandgate.local/ns/a/sandbox/u-1';
  assert.equal(parseSpiffeId(id), { kind: 'sandbox', namespace: 'a', uid: 'u-1' });
  assert.equal(parseSpiffeId('spiffe://sandgate.local/role/egress'), { kind: 'role', role: 'egress' });
  for (const text of [
    '',
    `${id}/`,
    id.replace('sandgate.local', 'evil.test'),
    'spiffe://sandgate.local/role/admin',
    'spiffe://sandgate.local/ns/a/sandbox/',
    'spiffe://sandgate.local/ns/a/sandbox/!pin-x',
    'spiffe://sandgate.local/ns//sandbox/u',
    'SPIFFE://sandgate.local/role/egress',
  ]) {
    assert.is(parseSpiffeId(text), null, text);
  }
  assert.is(spiffeIdOfAltNames(`URI:${id}`), id);
  assert.is(spiffeIdOfAltNames(`DNS:a.test, URI:${id}`), id);
  assert.is(spiffeIdOfAltNames(`URI:${id}, URI:spiffe://sandgate.local/role/egress`), null);
  assert.is(spiffeIdOfAltNames(undefined), null);
});

test.run();
