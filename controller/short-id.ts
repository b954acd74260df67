import { randomInt } from 'node:crypto';
import type { Clock } from '../base/clock.ts';

const EPOCH = Date.UTC(2025, 0, 1);
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';
const SEQUENCES = 16;
const WORKERS = 2 ** 18;

/** The 13 characters of a 63-bit number: 8 bytes big-endian in base32, lower case, without padding. */
export function encodeShortId(value: bigint): string {
  let bits = value << 1n;
  const characters: string[] = [];
  for (let index = 0; index < 13; index += 1) {
    characters.unshift(BASE32[Number(bits & 31n)]!);
    bits >>= 5n;
  }
  return characters.join('');
}

/**
 * Makes short ids that sort by time: milliseconds since 2025 (41 bits), a sequence (4 bits) and a worker number
 * (18 bits), by default drawn at random (ingress-gateway §1.8). When more than 16 are made in a millisecond, the
 * following milliseconds are used up in advance, so that no id comes twice.
 */
export function shortIdMaker(clock: Clock, worker: number = randomInt(WORKERS)): () => string {
  let last = -1;
  return () => {
    last = Math.max(last + 1, (clock.now() - EPOCH) * SEQUENCES);
    return encodeShortId(BigInt(last) * BigInt(WORKERS) + BigInt(worker));
  };
}
