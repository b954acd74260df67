/**
 * Envoy's types for the resource codec, decoded file by file on first use: a process that needs one type does not pay
 * for the other five hundred files.
 */
import type { DescEnum, DescExtension, DescFile, DescMessage, DescService, Registry } from '@bufbuild/protobuf';
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { CodedError } from '../base/errors.ts';
import { descriptorBytes, findFileOfType, importClosure } from './descriptor-files.ts';

/** Files decoded so far. */
const decoded = new Map<string, DescFile>();

/** Decodes a file and its imports. Files are shared, so a type has one descriptor in the whole process. */
function decodeFile(name: string): DescFile {
  for (const file of importClosure([name])) {
    if (!decoded.has(file)) {
      const proto = fromBinary(FileDescriptorProtoSchema, descriptorBytes(file));
      decoded.set(file, createFileRegistry(proto, (imported) => decoded.get(imported)).getFile(file)!);
    }
  }
  return decoded.get(name)!;
}

type NamedDescriptor = DescMessage | DescEnum | DescService;
const byName = new Map<string, NamedDescriptor>();

function* nestedTypes(types: Iterable<DescMessage>): Generator<DescMessage | DescEnum> {
  for (const type of types) {
    yield type;
    yield* type.nestedEnums;
    yield* nestedTypes(type.nestedMessages);
  }
}

function find(name: string): NamedDescriptor | undefined {
  const declaring = byName.has(name) ? undefined : findFileOfType(name);
  if (declaring !== undefined) {
    const file = decodeFile(declaring);
    for (const type of [...file.enums, ...file.services, ...nestedTypes(file.messages)]) {
      byName.set(type.typeName, type);
    }
  }
  return byName.get(name);
}

/** The descriptor of a message; throws `unknown-type`. */
export function messageDescriptor(name: string): DescMessage {
  const found = find(name);
  if (found?.kind !== 'message') {
    throw new CodedError('unknown-type', `Envoy 1.40 has no message ${name}`);
  }
  return found;
}

/** All of Envoy 1.40's types, decoded when they are asked for. Iterating gives those decoded so far. */
export const envoyTypes: Registry = {
  kind: 'registry',
  [Symbol.iterator]: () => byName.values(),
  get: find,
  getMessage(name): DescMessage | undefined {
    const found = find(name);
    return found?.kind === 'message' ? found : undefined;
  },
  getEnum(name): DescEnum | undefined {
    const found = find(name);
    return found?.kind === 'enum' ? found : undefined;
  },
  getService(name): DescService | undefined {
    const found = find(name);
    return found?.kind === 'service' ? found : undefined;
  },
  getExtension: (): DescExtension | undefined => undefined,
  getExtensionFor: (): DescExtension | undefined => undefined,
};
