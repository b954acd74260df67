import { createHash } from 'node:crypto';

/** JSON with sorted keys and no undefined members: equal values give equal text. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(sorted(value));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(sorted);
  }
  if (value === null || typeof value !== 'object') {
    return value;
  }
  const plain = 'toJSON' in value && typeof value.toJSON === 'function' ? (value.toJSON() as unknown) : value;
  if (plain === null || typeof plain !== 'object' || Array.isArray(plain)) {
    return sorted(plain);
  }
  const entries = Object.entries(plain).filter(([, member]) => member !== undefined);
  entries.sort(([a], [b]) => compareText(a, b));
  return Object.fromEntries(entries.map(([key, member]) => [key, sorted(member)]));
}

/** Orders by UTF-16 code units, independent of any locale. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The first `length` hexadecimal characters of the SHA-256 of a text, bytes, or the canonical JSON of a value. */
export function contentHash(value: unknown, length = 16): string {
  const input = typeof value === 'string' || value instanceof Uint8Array ? value : canonicalJson(value);
  return createHash('sha256').update(input).digest('hex').slice(0, length);
}
