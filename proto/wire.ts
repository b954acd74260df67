/** The few bits of the protobuf wire format that are read without a schema: where each field starts and ends. */
import { CodedError } from '../base/errors.ts';

/** One field of a serialized message; `end` is exclusive. A number's bytes or a length-delimited content. */
export interface WireField {
  readonly number: number;
  readonly start: number;
  readonly end: number;
}

/** A base-128 number below 2^35 at `at`: its value and the offset behind it, or null when it is malformed. */
export function readVarint(bytes: Uint8Array, at: number): { readonly value: number; readonly next: number } | null {
  let value = 0;
  for (let index = 0; index < 5; index++) {
    const byte = bytes[at + index];
    if (byte === undefined) {
      return null;
    }
    value += (byte & 0x7f) * 2 ** (7 * index);
    if (byte < 0x80) {
      return { value, next: at + index + 1 };
    }
  }
  return null;
}

/** The length-delimited fields between two offsets in order, numbers skipped; throws `wire` on anything malformed. */
export function* wireFields(bytes: Uint8Array, start: number, end: number): Generator<WireField> {
  for (let at = start; at < end; ) {
    const tag = readVarint(bytes, at);
    const value = tag === null ? null : readVarint(bytes, tag.next);
    const type = (tag?.value ?? 0) & 7;
    if (tag === null || value === null || (type !== 0 && type !== 2)) {
      throw new CodedError('wire', `malformed message at byte ${at}`);
    }
    at = type === 2 ? value.next + value.value : value.next;
    if (at > end) {
      throw new CodedError('wire', `field ${tag.value >>> 3} reaches beyond its message`);
    }
    if (type === 2) {
      yield { number: tag.value >>> 3, start: value.next, end: at };
    }
  }
}

/** A FileDescriptorSet: its files are field 1, each with its length in base 128. */
export function framedFiles(files: readonly Uint8Array[]): Buffer {
  return Buffer.concat(files.flatMap((file) => [frameHeader(file.length), file]));
}

function frameHeader(length: number): Buffer {
  const header = [0x0a];
  let rest = length;
  while (rest > 0x7f) {
    header.push((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  return Buffer.from([...header, rest]);
}
