import { createHash } from 'node:crypto';
import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, type JWK, jwtVerify, SignJWT } from 'jose';
import type { Clock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';
import { Redacted } from '../base/redacted.ts';
import { isUid, parseSpiffeId } from './spiffe.ts';

export const TOKEN_ISSUER = 'sandgate';
export const TOKEN_AUDIENCE = 'egress';

const LIFETIME_MS = 15 * 60_000;
const PERIOD_MS = (LIFETIME_MS * 2) / 3;

/** Envoy's `jwt_authn` accepts a token this much longer than it says. */
const SKEW_MS = 60_000;

/** A new key is public this long before it signs, so that gateways know it by then. */
const LEAD_MS = 2 * 60_000;

/** Whose token: the Sandbox uid, its Pod's uid, and the id in its sidecar's certificate. */
export interface TokenSubject {
  readonly uid: string;
  readonly pod: string;
  readonly spiffeId: string;
}

/** A signed token; times are milliseconds since the epoch. */
export interface SandboxToken {
  readonly token: Redacted;
  readonly expiresAt: number;
  /** When the next call of `issue` will give another token. */
  readonly renewAt: number;
}

/** One signing key. `signsFrom` and `publicUntil` are milliseconds since the epoch; the last key has no end. */
export interface TokenKey {
  readonly kid: string;
  readonly jwk: Redacted<JWK>;
  readonly signsFrom: number;
  readonly publicUntil: number | null;
}

/** A new Ed25519 key, named by its thumbprint (RFC 7638). */
export async function createTokenKey(signsFrom: number): Promise<TokenKey> {
  const { privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true });
  const jwk = await exportJWK(privateKey);
  return { kid: await calculateJwkThumbprint(jwk), jwk: new Redacted(jwk), signsFrom, publicUntil: null };
}

/**
 * The keys after a rotation at `now`: the new one is public at once and signs two minutes later; the old one stays
 * public until its last token has expired. Throws `rotation-pending` while an earlier rotation still overlaps, so at
 * most two keys are public.
 */
export async function rotateTokenKeys(keys: readonly TokenKey[], now: number): Promise<TokenKey[]> {
  const live = keys.filter((key) => key.publicUntil === null || key.publicUntil > now);
  if (live.length > 1) {
    throw new CodedError('rotation-pending', 'the last rotation of the token key is not over');
  }
  const signsFrom = now + LEAD_MS;
  const publicUntil = signsFrom + LIFETIME_MS + SKEW_MS;
  return [...live.map((key) => ({ ...key, publicUntil })), await createTokenKey(signsFrom)];
}

/** The keys as text for a private file, and back. */
export function serializeTokenKeys(keys: readonly TokenKey[]): string {
  const members = keys.map(({ kid, jwk, signsFrom, publicUntil }) => ({
    ...jwk.reveal(),
    kid,
    signsFrom,
    publicUntil,
  }));
  return `${JSON.stringify({ keys: members }, null, 2)}\n`;
}

/** Reads {@link serializeTokenKeys}; throws `invalid-token-key` without quoting the text. */
export function parseTokenKeys(text: string): TokenKey[] {
  try {
    const { keys } = JSON.parse(text) as { keys: (JWK & { signsFrom: number; publicUntil: number | null })[] };
    const parsed = keys.map(({ signsFrom, publicUntil, ...jwk }) => {
      const known = typeof jwk.kid === 'string' && jwk.crv === 'Ed25519' && typeof jwk.d === 'string';
      if (!known || typeof signsFrom !== 'number' || !(publicUntil === null || typeof publicUntil === 'number')) {
        throw new Error('not a token key');
      }
      return { kid: jwk.kid!, jwk: new Redacted<JWK>(jwk), signsFrom, publicUntil };
    });
    if (parsed.length === 0) {
      throw new Error('no key');
    }
    return parsed;
  } catch {
    throw new CodedError('invalid-token-key', 'the token signing key cannot be read');
  }
}

/**
 * Signs and verifies sandbox tokens (docs/architecture.md, Identities). Issuing needs no memory: a sandbox's token is a
 * function of the key, its subject and the ten-minute period that its uid is in, so a restarted issuer, or a second
 * one, gives the same bytes and nothing has to be sent again.
 */
export class SandboxTokens {
  readonly #keys: readonly TokenKey[];
  readonly #clock: Clock;

  constructor(keys: readonly TokenKey[], clock: Clock) {
    this.#keys = keys;
    this.#clock = clock;
  }

  /** Throws `invalid-subject` unless `uid` is a uid, so that no scope key of another meaning is ever signed (D33). */
  async issue(subject: TokenSubject): Promise<SandboxToken> {
    checkSubject(subject);
    const begin = periodBegin(subject.uid, this.#clock.now());
    const key = this.#signer();
    const token = await new SignJWT({ pod: subject.pod, spiffe: subject.spiffeId })
      .setProtectedHeader({ alg: 'EdDSA', kid: key.kid, typ: 'JWT' })
      .setIssuer(TOKEN_ISSUER)
      .setAudience(TOKEN_AUDIENCE)
      .setSubject(subject.uid)
      .setIssuedAt(begin / 1000)
      .setNotBefore(begin / 1000)
      .setExpirationTime((begin + LIFETIME_MS) / 1000)
      .sign(await importJWK(key.jwk.reveal(), 'EdDSA'));
    return { token: new Redacted(token), expiresAt: begin + LIFETIME_MS, renewAt: begin + PERIOD_MS };
  }

  /** The subject of a valid token; throws `invalid-token` with a reason that never quotes it. */
  async verify(token: Redacted): Promise<TokenSubject> {
    try {
      const { payload } = await jwtVerify(
        token.reveal(),
        ({ kid }) => importJWK(publicPart(this.#publicKey(kid)), 'EdDSA'),
        {
          algorithms: ['EdDSA'],
          issuer: TOKEN_ISSUER,
          audience: TOKEN_AUDIENCE,
          requiredClaims: ['sub', 'iat', 'nbf', 'exp'],
          currentDate: new Date(this.#clock.now()),
        },
      );
      const { sub = '', pod, spiffe } = payload;
      const subject = { uid: sub, pod: String(pod), spiffeId: String(spiffe) };
      checkSubject(subject);
      return subject;
    } catch (error) {
      const reason = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
      throw new CodedError('invalid-token', `the sandbox token is not valid: ${reason}`);
    }
  }

  /** The public keys as a JWK Set, sorted by `kid`: what Envoy's `jwt_authn` is given. Changes only with a rotation. */
  publicJwks(): { keys: JWK[] } {
    const live = this.#live().map((key) => publicPart(key));
    return { keys: live.sort((a, b) => (a.kid! < b.kid! ? -1 : 1)) };
  }

  #live(): TokenKey[] {
    const now = this.#clock.now();
    return this.#keys.filter(({ publicUntil }) => publicUntil === null || publicUntil > now);
  }

  #publicKey(kid: string | undefined): TokenKey {
    const key = this.#live().find((candidate) => candidate.kid === kid);
    if (key === undefined) {
      throw Object.assign(new Error('unknown key'), { code: 'unknown-key' });
    }
    return key;
  }

  #signer(): TokenKey {
    const now = this.#clock.now();
    const ready = this.#live().filter(({ signsFrom }) => signsFrom <= now);
    const key = ready.sort((a, b) => b.signsFrom - a.signsFrom)[0];
    if (key === undefined) {
      throw new CodedError('no-token-key', 'no token key signs yet');
    }
    return key;
  }
}

function checkSubject({ uid, pod, spiffeId }: TokenSubject): void {
  const identity = parseSpiffeId(spiffeId);
  if (!isUid(uid) || !isUid(pod)) {
    throw new CodedError('invalid-subject', 'a sandbox token is signed for uids only');
  }
  if (identity?.kind !== 'sandbox' || identity.uid !== uid) {
    throw new CodedError('invalid-subject', 'the SPIFFE id of a sandbox token must name the same uid');
  }
}

function publicPart(key: TokenKey): JWK {
  const { kty, crv, x } = key.jwk.reveal();
  return { kty: kty!, crv: crv!, x: x!, kid: key.kid, alg: 'EdDSA', use: 'sig' };
}

/** Periods begin at a moment of the uid's own, so that not every sandbox renews at once; on a whole second. */
function periodBegin(uid: string, now: number): number {
  const offset = (createHash('sha256').update(uid).digest().readUInt32BE(0) % (PERIOD_MS / 1000)) * 1000;
  return Math.floor((now - offset) / PERIOD_MS) * PERIOD_MS + offset;
}
