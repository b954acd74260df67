/**
 * The room `proto/` holds the Envoy 1.40 API: the descriptors that are compiled into the pinned binary, TypeScript
 * types made from them, a checked encoder for resources (`resource.ts`) and gRPC service definitions (`service.ts`).
 * It knows nothing of policy.
 *
 * This file takes the descriptors out of an Envoy binary: `node proto/extract.ts ENVOY_BINARY` rewrites
 * `proto/envoy-1.40.0.fds.gz` and prints the checksum that belongs into `proto/descriptor-files.ts`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescriptorProto, FieldDescriptorProto, FileDescriptorProto } from '@bufbuild/protobuf/wkt';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import { framedFiles, readVarint } from './wire.ts';

/**
 * The section of the C++ descriptor tables. Other sections hold copies made for another protobuf implementation,
 * which are longer and must not be taken.
 */
const SECTION = 'protodesc_cold';

/** FileDescriptorProto: field number → wire type. Anything else ends a descriptor. */
const FILE_FIELDS: ReadonlyMap<number, number> = new Map([
  [1, 2],
  [2, 2],
  [3, 2],
  [4, 2],
  [5, 2],
  [6, 2],
  [7, 2],
  [8, 2],
  [9, 2],
  [10, 0],
  [11, 0],
  [12, 2],
  [14, 0],
]);

function fail(message: string): CodedError {
  return new CodedError('descriptor-extraction', message);
}

/** Bytes of a section of a little-endian 64-bit ELF file; throws `descriptor-extraction`. */
export function elfSection(file: Buffer, name: string): Buffer {
  if (file.length < 64 || file.readUInt32BE(0) !== 0x7f454c46 || file[4] !== 2 || file[5] !== 1) {
    throw fail('not a little-endian 64-bit ELF file');
  }
  const table = Number(file.readBigUInt64LE(0x28));
  const [size, count, namesIndex] = [file.readUInt16LE(0x3a), file.readUInt16LE(0x3c), file.readUInt16LE(0x3e)];
  const bounds = (index: number): [number, number] => {
    const header = table + index * size;
    const start = Number(file.readBigUInt64LE(header + 0x18));
    return [start, start + Number(file.readBigUInt64LE(header + 0x20))];
  };
  const names = file.subarray(...bounds(namesIndex));
  for (let index = 0; index < count; index++) {
    const at = file.readUInt32LE(table + index * size);
    if (names.toString('latin1', at, names.indexOf(0, at)) === name) {
      return file.subarray(...bounds(index));
    }
  }
  throw fail(`the file has no section ${name}`);
}

/** End of the FileDescriptorProto that starts at `start`: fields in ascending order, up to the first impossible one. */
function descriptorEnd(bytes: Uint8Array, start: number): number {
  let [at, last] = [start, 0];
  for (;;) {
    const tag = readVarint(bytes, at);
    const field = (tag?.value ?? 0) >>> 3;
    const type = (tag?.value ?? 0) & 7;
    if (tag === null || field < last || (field === 1 && last === 1) || FILE_FIELDS.get(field) !== type) {
      return at;
    }
    const value = readVarint(bytes, tag.next);
    const end = value === null ? Infinity : type === 2 ? value.next + value.value : value.next;
    if (end > bytes.length) {
      return at;
    }
    [at, last] = [end, field];
  }
}

/** The serialized descriptors of a section by file name; throws when one name has two contents. */
export function scanDescriptors(section: Uint8Array): Map<string, Uint8Array> {
  const found = new Map<string, Uint8Array>();
  const bytes = Buffer.from(section.buffer, section.byteOffset, section.byteLength);
  for (let at = bytes.indexOf(0x0a); at >= 0; at = bytes.indexOf(0x0a, at)) {
    const length = readVarint(bytes, at + 1);
    const name = length === null ? '' : bytes.toString('latin1', length.next, length.next + length.value);
    if (!/^[\w./-]+\.proto$/.test(name)) {
      at++;
      continue;
    }
    const end = descriptorEnd(bytes, at);
    const known = found.get(name);
    const content = bytes.subarray(at, end);
    if (known !== undefined && !content.equals(known)) {
      throw fail(`${name} is there twice with different content`);
    }
    found.set(name, content);
    at = end;
  }
  return found;
}

/** protoc's rule for the JSON name of a field; the compiled-in descriptors leave it out and the codecs need it. */
function jsonName(name: string): string {
  return name.replace(/_+(.?)/g, (_, next: string) => next.toUpperCase());
}

function fillJsonNames(fields: readonly FieldDescriptorProto[]): void {
  for (const field of fields) {
    field.jsonName = field.jsonName === '' ? jsonName(field.name) : field.jsonName;
  }
}

function fillMessage(message: DescriptorProto): void {
  fillJsonNames(message.field);
  fillJsonNames(message.extension);
  message.nestedType.forEach(fillMessage);
}

/** Files sorted by name, each after the files that it imports; throws when an import is missing. */
function dependencyOrder(files: ReadonlyMap<string, FileDescriptorProto>): FileDescriptorProto[] {
  const ordered = new Set<FileDescriptorProto>();
  const visit = (name: string, by: string): void => {
    const file = files.get(name);
    if (file === undefined) {
      throw fail(`${by} imports ${name}, which is missing`);
    }
    if (!ordered.has(file)) {
      for (const dependency of file.dependency) {
        visit(dependency, name);
      }
      ordered.add(file);
    }
  };
  for (const name of [...files.keys()].sort()) {
    visit(name, 'the list');
  }
  return [...ordered];
}

/** A serialized FileDescriptorSet of everything in the binary, JSON names filled; equal binaries give equal bytes. */
export function extractDescriptors(binary: Buffer): Buffer {
  const files = new Map<string, FileDescriptorProto>();
  for (const [name, bytes] of scanDescriptors(elfSection(binary, SECTION))) {
    const file = fromBinary(FileDescriptorProtoSchema, bytes);
    fillJsonNames(file.extension);
    file.messageType.forEach(fillMessage);
    files.set(name, file);
  }
  return framedFiles(dependencyOrder(files).map((file) => toBinary(FileDescriptorProtoSchema, file)));
}

if (import.meta.main) {
  const [binary] = process.argv.slice(2);
  if (binary === undefined) {
    process.stderr.write('usage: extract.ts ENVOY_BINARY\n');
    process.exit(2);
  }
  const set = extractDescriptors(readFileSync(binary));
  // Level, operating system and time are fixed in the header, so that the file changes only with its content.
  const packed = gzipSync(set, { level: 9 });
  packed[9] = 0xff;
  writeFileSync(join(import.meta.dirname, 'envoy-1.40.0.fds.gz'), packed);
  process.stdout.write(`${contentHash(set, 64)}\n`);
}
