import { gunzipSync, inflateRawSync, inflateSync } from 'node:zlib';

/** A body above this size, as sent or after any decoding step, cannot be read (egress-policy §4). */
export const MAX_BODY_BYTES = 8 * 1024 * 1024;

const MAX_CODINGS = 2;

/** The headers that say how a body is written: the values of every header of that name, in order. */
export interface BodyHeaders {
  readonly contentEncoding: readonly string[];
  readonly contentType: readonly string[];
}

/**
 * The text of a request body, or null when it cannot be read: content codings undone from right to left, at most two
 * and each within the size limit; then UTF-8 without or with a byte order mark, or UTF-16 with one (egress-policy §4
 * steps 2–3), unless a `charset` says something else.
 */
export function bodyText(body: Uint8Array, { contentEncoding, contentType }: BodyHeaders): string | null {
  const codings = contentEncoding.flatMap((value) => value.split(',')).map((coding) => coding.trim().toLowerCase());
  if (codings.length > MAX_CODINGS || body.length > MAX_BODY_BYTES) {
    return null;
  }
  try {
    const decoded = codings.toReversed().reduce(undo, body);
    return decodeText(decoded, declaredCharsets(contentType));
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

/** One well-formed `charset` parameter. */
const CHARSET = /;[ \t]*charset=(?:"([^"\\]*)"|([^\s;,"]+))[ \t]*(?=[;,]|$)/gi;

/** Every charset that a Content-Type names, in lower case. Throws where one is written in a way that can be misread. */
function declaredCharsets(contentType: readonly string[]): readonly string[] {
  return contentType.flatMap((value) => {
    const found = [...value.matchAll(CHARSET)].map(([, quoted, plain]) => (quoted ?? plain ?? '').toLowerCase());
    if (/charset/i.test(value.replaceAll(CHARSET, ''))) {
      throw new Error('an unclear charset');
    }
    return found;
  });
}

/**
 * Servers that obey `charset` read the same bytes as another text, with other members: in UTF-7 plain letters end a
 * string. So every charset that is named must be the one that the bytes are read in here.
 */
function decodeText(bytes: Uint8Array, charsets: readonly string[]): string {
  const [first, second] = bytes;
  const isLittle = first === 0xff && second === 0xfe;
  const isWide = isLittle || (first === 0xfe && second === 0xff);
  const wide = isLittle ? 'utf-16le' : 'utf-16be';
  const names = isWide ? ['utf-16', wide] : ['utf-8', 'utf8'];
  if (charsets.some((charset) => !names.includes(charset))) {
    throw new Error('another charset');
  }
  if (isWide && bytes.length % 2 !== 0) {
    throw new Error('half a UTF-16 unit');
  }
  return isWide ? new TextDecoder(wide).decode(bytes) : new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}
