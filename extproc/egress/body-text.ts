import { gunzipSync, inflateRawSync, inflateSync } from 'node:zlib';

/** A body above this size, as sent or after any decoding step, cannot be read (egress-policy §4). */
export const MAX_BODY_BYTES = 8 * 1024 * 1024;

const MAX_CODINGS = 2;

/**
 * The text of a request body, or null when it cannot be read: content codings undone from right to left, at most two
 * and each within the size limit; then UTF-8 without or with a byte order mark, or UTF-16 with one (egress-policy §4
 * steps 2–3). `contentEncoding` holds the values of every such header, in order.
 */
export function bodyText(body: Uint8Array, contentEncoding: readonly string[]): string | null {
  const codings = contentEncoding.flatMap((value) => value.split(',')).map((coding) => coding.trim().toLowerCase());
  if (codings.length > MAX_CODINGS || body.length > MAX_BODY_BYTES) {
    return null;
  }
  try {
    const decoded = codings.toReversed().reduce(undo, body);
    return decodeText(decoded);
  } catch {
    return null;
  }
}

function undo(body: Uint8Array, coding: string): Uint8Array {
  switch (coding) {
    case '':
    case 'identity':
      return body;
    case 'gzip':
    case 'x-gzip':
      return inflateAll(gunzipSync, body);
    case 'deflate':
      return inflateAll(hasZlibHeader(body) ? inflateSync : inflateRawSync, body);
    default:
      throw new Error(`unknown content coding ${coding}`);
  }
}

/**
 * Decoders stop at different places: Node's ends a gzip stream at padding behind which others look for the next member.
 * What one does not read another may, so a stream must end with the body.
 */
function inflateAll(inflate: typeof gunzipSync, body: Uint8Array): Uint8Array {
  // With `info` the engine comes beside the output, which the types do not tell.
  const { buffer, engine } = inflate(body, { maxOutputLength: MAX_BODY_BYTES, info: true }) as unknown as {
    readonly buffer: Uint8Array;
    readonly engine: { readonly bytesWritten: number };
  };
  if (engine.bytesWritten !== body.length) {
    throw new Error('bytes behind the end of the stream');
  }
  return buffer;
}

/** RFC 1950: method 8, window at most 32 KiB, and a header checksum; anything else is raw deflate. */
function hasZlibHeader(body: Uint8Array): boolean {
  const [first = 0, second = 0] = body;
  return (first & 0x0f) === 8 && first >> 4 <= 7 && ((first << 8) | second) % 31 === 0;
}

function decodeText(bytes: Uint8Array): string {
  const [first, second] = bytes;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) {
    if (bytes.length % 2 !== 0) {
      throw new Error('half a UTF-16 unit');
    }
    return new TextDecoder(first === 0xff ? 'utf-16le' : 'utf-16be').decode(bytes);
  }
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}
