/**
 * `npm run gen`: TypeScript types of the Envoy API into `gen/`, from the committed descriptors. Types only: nothing
 * below `gen/` is loaded at run time. Other scripts call {@link generate}, which does nothing when they are up to date.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { CodeGeneratorResponse, FileDescriptorProto } from '@bufbuild/protobuf/wkt';
import {
  CodeGeneratorRequestSchema,
  CodeGeneratorResponseSchema,
  FileDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt';
import { contentHash } from '../base/canonical.ts';
import { DESCRIPTORS_SHA256, descriptorBytes, importClosure } from '../proto/descriptor-files.ts';
import { TYPE_ROOTS } from '../proto/roots.ts';

const root = join(import.meta.dirname, '..');
const target = join(root, 'gen');
const stampFile = join(target, '.stamp');

/** Files whose types come with the protobuf library. */
const inLibrary = (file: string): boolean => file.startsWith('google/protobuf/');

/** The messages of the library that Envoy's configuration packs into Any, by the name of their JSON type. */
const LIBRARY_MESSAGES = [
  ...['BoolValue', 'BytesValue', 'DoubleValue', 'Duration', 'Empty', 'Int32Value', 'Int64Value', 'ListValue'],
  ...['StringValue', 'Struct', 'Timestamp', 'UInt32Value', 'UInt64Value', 'Value'],
];

function stamp(): string {
  const plugin = readFileSync(join(root, 'node_modules', '@bufbuild', 'protoc-gen-es', 'package.json'), 'utf8');
  return contentHash([DESCRIPTORS_SHA256, TYPE_ROOTS, plugin, readFileSync(import.meta.filename, 'utf8')]);
}

/** Whether `gen/` was made from the present descriptors, list of roots and generator. */
export function isGenerated(): boolean {
  try {
    return readFileSync(stampFile, 'utf8') === stamp();
  } catch {
    return false;
  }
}

/** Makes `gen/` anew when it is stale; safe when several processes do it at once. Throws when the generator fails. */
export async function generate(): Promise<void> {
  if (isGenerated()) {
    return;
  }
  const files = importClosure(TYPE_ROOTS).map((name) => fromBinary(FileDescriptorProtoSchema, descriptorBytes(name)));
  const fresh = `${target}.${process.pid}`;
  rmSync(fresh, { recursive: true, force: true });
  const written = new Map<string, string>();
  for (const file of runGenerator(files).file) {
    written.set(file.name, file.content);
    mkdirSync(join(fresh, dirname(file.name)), { recursive: true });
    writeFileSync(join(fresh, file.name), file.content);
  }
  writeFileSync(join(fresh, 'json-map.d.ts'), jsonMap(files, written));
  writeFileSync(join(fresh, '.stamp'), stamp());
  replaceFolder(fresh);
}

function replaceFolder(fresh: string): void {
  const old = `${fresh}.old`;
  try {
    renameSync(target, old);
  } catch {
    // There was none, or another process is just replacing it.
  }
  try {
    renameSync(fresh, target);
  } catch (error) {
    if (!isGenerated()) {
      throw error;
    }
    rmSync(fresh, { recursive: true, force: true });
  }
  rmSync(old, { recursive: true, force: true });
}

function runGenerator(files: readonly FileDescriptorProto[]): CodeGeneratorResponse {
  const request = create(CodeGeneratorRequestSchema, {
    parameter: 'target=dts,json_types=true,import_extension=js',
    protoFile: [...files],
    fileToGenerate: files.map((file) => file.name).filter((name) => !inLibrary(name)),
  });
  const plugin = join(root, 'node_modules', '@bufbuild', 'protoc-gen-es', 'bin', 'protoc-gen-es');
  const done = spawnSync(process.execPath, [plugin], {
    input: toBinary(CodeGeneratorRequestSchema, request),
    maxBuffer: 1 << 28,
  });
  if (done.status !== 0) {
    throw new Error(`protoc-gen-es failed: ${done.error?.message ?? done.stderr.toString()}`);
  }
  const response = fromBinary(CodeGeneratorResponseSchema, done.stdout);
  if (response.error !== '') {
    throw new Error(`protoc-gen-es failed: ${response.error}`);
  }
  return response;
}

/** The interface from full message names to JSON types; a missing type would silently become `any`, so look for it. */
function jsonMap(files: readonly FileDescriptorProto[], written: ReadonlyMap<string, string>): string {
  const imports = ["import type * as library from '@bufbuild/protobuf/wkt';"];
  const members = LIBRARY_MESSAGES.map((name) => `  'google.protobuf.${name}': library.${name}Json;`);
  for (const file of files.filter(({ name }) => !inLibrary(name))) {
    const module = `${file.name.slice(0, -'.proto'.length)}_pb`;
    const content = written.get(`${module}.d.ts`);
    const messages = file.messageType.map(({ name }) => name);
    const missing = messages.find((name) => content?.includes(`export declare type ${name}Json =`) !== true);
    if (missing !== undefined) {
      throw new Error(`${module}.d.ts lacks the type ${missing}Json`);
    }
    if (messages.length > 0) {
      imports.push(`import type * as m${imports.length} from './${module}.js';`);
      members.push(...messages.map((name) => `  '${file.package}.${name}': m${imports.length - 1}.${name}Json;`));
    }
  }
  return [...imports, '', 'export interface EnvoyJson {', ...members, '}', ''].join('\n');
}

// Not import.meta.main: run.mjs imports its entry when it runs on Node 24 already.
if (process.argv[1] === import.meta.filename) {
  await generate();
}
