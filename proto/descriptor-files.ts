/** The descriptors of Envoy 1.40.0 as bytes, file by file, with an index of what is declared where. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { contentHash } from '../base/canonical.ts';
import { CodedError } from '../base/errors.ts';
import { wireFields } from './wire.ts';

/** SHA-256 of the unpacked `envoy-1.40.0.fds.gz`; `proto/extract.ts` prints it. */
export const DESCRIPTORS_SHA256 = '78f9d0a6e505b31c5f6b5b5d6cceccb410cec827bb7b626af08949d272e6dd5c';

const FILE = join(import.meta.dirname, 'envoy-1.40.0.fds.gz');

interface DescriptorFile {
  readonly bytes: Uint8Array;
  readonly imports: readonly string[];
}

interface DescriptorIndex {
  readonly files: ReadonlyMap<string, DescriptorFile>;
  /** File of each message, enum and service, by full name. */
  readonly fileOf: ReadonlyMap<string, string>;
}

let index: DescriptorIndex | undefined;

function descriptorIndex(): DescriptorIndex {
  index ??= buildIndex(readDescriptorSet());
  return index;
}

function readDescriptorSet(): Uint8Array {
  const set = gunzipSync(readFileSync(FILE));
  if (contentHash(set, 64) !== DESCRIPTORS_SHA256) {
    throw new CodedError('descriptors', `${FILE} does not have the expected checksum: restore it or extract it anew`);
  }
  return set;
}

/** Fields of FileDescriptorProto and DescriptorProto that hold names. */
const FILE_NAME = 1;
const FILE_PACKAGE = 2;
const FILE_IMPORT = 3;
const FILE_MESSAGE = 4;
const FILE_ENUM = 5;
const FILE_SERVICE = 6;
const MESSAGE_NESTED = 3;
const MESSAGE_ENUM = 4;

function buildIndex(set: Uint8Array): DescriptorIndex {
  const files = new Map<string, DescriptorFile>();
  const fileOf = new Map<string, string>();
  const text = new TextDecoder();
  for (const file of wireFields(set, 0, set.length)) {
    const imports: string[] = [];
    const types: string[] = [];
    let [name, scope] = ['', ''];
    for (const field of wireFields(set, file.start, file.end)) {
      const content = (): string => text.decode(set.subarray(field.start, field.end));
      if (field.number === FILE_NAME) {
        name = content();
      } else if (field.number === FILE_PACKAGE) {
        scope = content();
      } else if (field.number === FILE_IMPORT) {
        imports.push(content());
      } else if (field.number === FILE_MESSAGE) {
        collectNames(set, field.start, field.end, scope, types);
      } else if (field.number === FILE_ENUM || field.number === FILE_SERVICE) {
        types.push(`${scope}.${ownName(set, field.start, field.end)}`);
      }
    }
    files.set(name, { bytes: set.subarray(file.start, file.end), imports });
    for (const type of types) {
      fileOf.set(type, name);
    }
  }
  return { files, fileOf };
}

/** `name` (field 1) of a message, enum or service descriptor. */
function ownName(set: Uint8Array, start: number, end: number): string {
  for (const field of wireFields(set, start, end)) {
    if (field.number === 1) {
      return new TextDecoder().decode(set.subarray(field.start, field.end));
    }
  }
  throw new CodedError('descriptors', `a type without a name at byte ${start}`);
}

function collectNames(set: Uint8Array, start: number, end: number, scope: string, into: string[]): void {
  const full = `${scope}.${ownName(set, start, end)}`;
  into.push(full);
  for (const field of wireFields(set, start, end)) {
    if (field.number === MESSAGE_NESTED) {
      collectNames(set, field.start, field.end, full, into);
    } else if (field.number === MESSAGE_ENUM) {
      into.push(`${full}.${ownName(set, field.start, field.end)}`);
    }
  }
}

/** Name of the file that declares a message, enum or service, if there is one. */
export function findFileOfType(type: string): string | undefined {
  return descriptorIndex().fileOf.get(type);
}

/** Name of the file that declares a message, enum or service; throws `unknown-type`. */
export function fileOfType(type: string): string {
  const name = findFileOfType(type);
  if (name === undefined) {
    throw new CodedError('unknown-type', `Envoy 1.40 has no type ${type}`);
  }
  return name;
}

/** Names of all files, each after the files that it imports. */
export function descriptorFiles(): string[] {
  return [...descriptorIndex().files.keys()];
}

/** The files and everything that they import, each after its imports; throws `unknown-file`. */
export function importClosure(roots: readonly string[]): string[] {
  const { files } = descriptorIndex();
  const closure = new Set<string>();
  const visit = (name: string): void => {
    if (!closure.has(name)) {
      for (const dependency of descriptorFile(files, name).imports) {
        visit(dependency);
      }
      closure.add(name);
    }
  };
  roots.forEach(visit);
  return [...closure];
}

/** The serialized FileDescriptorProto of a file; throws `unknown-file`. */
export function descriptorBytes(name: string): Uint8Array {
  return descriptorFile(descriptorIndex().files, name).bytes;
}

function descriptorFile(files: ReadonlyMap<string, DescriptorFile>, name: string): DescriptorFile {
  const file = files.get(name);
  if (file === undefined) {
    throw new CodedError('unknown-file', `Envoy 1.40 has no file ${name}`);
  }
  return file;
}
