import { readdir, readFile, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { text as readStream } from 'node:stream/consumers';
import { isNode, LineCounter, parseAllDocuments, type Document as YamlDocument } from 'yaml';
import { kindNamed } from '../api/kinds.ts';
import { type KubeObject, refText } from '../api/object.ts';
import { isMap, memberPath } from '../api/schema-check.ts';
import { validateObject } from '../api/validate.ts';
import { CodedError, type FieldError } from '../base/errors.ts';

/** What stands in place of a secret in every output (D7). */
export const HIDDEN = '[redacted]';

/** One object of a manifest, and where it stands. */
export interface Document {
  readonly file: string;
  readonly line: number;
  readonly object: KubeObject;
}

/**
 * Reads a file, every `*.yaml` and `*.yml` below a directory, or standard input (`-`). Throws `invalid` for text that is
 * no YAML, naming file and line.
 */
export async function readDocuments(path: string): Promise<readonly Document[]> {
  if (path === '-') {
    return some('standard input', parse('standard input', await readStream(process.stdin)));
  }
  const info = await stat(path).catch(() => null);
  if (info === null) {
    throw new CodedError('not-found', `${path}: no such file or directory`);
  }
  const files = info.isDirectory() ? await manifests(path) : [path];
  const found = await Promise.all(files.map(async (file) => parse(file, await readFile(file, 'utf8'))));
  return some(path, found.flat());
}

/** What `-f` names, one after the other. Throws as {@link readDocuments} does. */
export async function readInputs(paths: readonly string[]): Promise<readonly Document[]> {
  if (paths.filter((path) => path === '-').length > 1) {
    throw new CodedError('usage', '-f - reads standard input, which there is only once');
  }
  return (await Promise.all(paths.map(readDocuments))).flat();
}

/** Input without objects is a mistake: with success, nobody would notice that nothing has been done. */
function some(name: string, documents: readonly Document[]): readonly Document[] {
  if (documents.length === 0) {
    throw new CodedError('invalid', `${name}: holds no objects`);
  }
  return documents;
}

async function manifests(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && /\.ya?ml$/.test(entry.name) && entry.name !== 'sandgate.yaml')
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !/(^|\/)\./.test(relative(dir, path)))
    .sort();
}

function parse(file: string, text: string): Document[] {
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, { lineCounter: lines, uniqueKeys: true });
  if (!Array.isArray(documents)) {
    return [];
  }
  return documents.flatMap((document): Document[] => {
    const [problem] = document.errors;
    if (problem !== undefined) {
      const { line } = lines.linePos(problem.pos[0]);
      // Its code alone: its text quotes the file, which may hold secrets.
      const what = problem.code.toLowerCase().replaceAll('_', ' ');
      throw new CodedError('invalid', `${file}:${line}: not valid YAML (${what})`);
    }
    const value = plainValue(document, file);
    if (value === null || value === undefined) {
      return [];
    }
    const lineOf = (path: readonly unknown[]) => {
      const node = document.getIn(path, true);
      return lines.linePos((isNode(node) ? node.range?.[0] : undefined) ?? document.range[0]).line;
    };
    return (
      listItems(value)?.map((item, index) => ({
        file,
        line: lineOf(['items', index]),
        object: item as KubeObject,
      })) ?? [{ file, line: lines.linePos(document.range[0]).line, object: value as KubeObject }]
    );
  });
}

/** The items of a `List` or a `SandboxList` and the like, as other tools print several objects; null for anything else. */
function listItems(value: unknown): readonly unknown[] | null {
  const { kind, items } = isMap(value) ? value : {};
  const isList = typeof kind === 'string' && (kind === 'List' || kindNamed(kind.replace(/List$/, '')) !== undefined);
  return isList && kind.endsWith('List') && Array.isArray(items) ? items : null;
}

function plainValue(document: YamlDocument.Parsed, file: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch {
    throw new CodedError('invalid', `${file}: not valid YAML (an alias without its anchor, or too many aliases)`);
  }
}

/**
 * Checks every document before anything is stored: what is invalid, what would only be left out (D2), and an object that
 * is there twice, are refused. Throws `invalid` with a line per mistake: file, object, field, reason.
 */
export function checkDocuments(documents: readonly Document[]): void {
  refuse(documents, (object) => {
    const { invalid, omitted } = validateObject(object);
    return [...invalid, ...omitted, ...placeholders(object)];
  });
}

/** A line for everything that is well-formed and has no effect. */
export function warningsOf(documents: readonly Document[]): readonly string[] {
  return linesOf(documents, (object) => validateObject(object).warnings).map((line) => `warning: ${line}`);
}

function refuse(documents: readonly Document[], check: (object: KubeObject) => readonly FieldError[]): void {
  const lines = linesOf(documents, check);
  if (lines.length > 0) {
    throw new CodedError('invalid', lines.join('\n'));
  }
  refuseTwins(documents);
}

function linesOf(documents: readonly Document[], check: (object: KubeObject) => readonly FieldError[]): string[] {
  return documents.flatMap(({ file, line, object }) =>
    check(object).map(({ path, reason }) =>
      [`${file}:${line}`, describe(object), path, reason].filter((part) => part !== '').join(': '),
    ),
  );
}

/** Of an object that is there twice, nobody could say which form is meant. */
function refuseTwins(documents: readonly Document[]): void {
  const twins = Map.groupBy(documents, ({ object }) => refText({ kind: object.kind, ...keyOf(object) }));
  const lines = [...twins].flatMap(([name, [first, ...others]]) =>
    others.map(({ file, line }) => `${file}:${line}: ${name}: is already at ${first!.file}:${first!.line}`),
  );
  if (lines.length > 0) {
    throw new CodedError('invalid', lines.join('\n'));
  }
}

/** Checks no more than that every document names an object of a known kind; throws as {@link checkDocuments} does. */
export function checkIdentities(documents: readonly Document[]): void {
  const isIdentity = (path: string) => path === '' || path === 'kind' || /^metadata(\.name(space)?)?$/.test(path);
  refuse(documents, (object) => validateObject(object).invalid.filter(({ path }) => isIdentity(path)));
}

/** Storing what `get` prints in place of a secret would make a known text the secret. */
function placeholders(object: KubeObject): FieldError[] {
  const reason = `${HIDDEN} is what get prints in place of the value: give the value, or leave the field out`;
  const maps = [
    ...(object?.kind === 'Secret' ? (['data', 'stringData'] as const) : []).map((field) => [field, object[field]]),
    ['metadata.annotations', object?.metadata?.annotations],
  ] as const;
  return maps.flatMap(([path, map]) =>
    Object.entries(isMap(map) ? map : {})
      .filter(([, value]) => value === HIDDEN)
      .map(([key]) => ({ path: memberPath(String(path), key), reason })),
  );
}

/** `Kind namespace/name` of something that need not be an object. */
export function describe(object: KubeObject): string {
  const kind = typeof object?.kind === 'string' ? object.kind : 'object';
  const name = typeof object?.metadata?.name === 'string' ? object.metadata.name : '?';
  const namespaced = kindNamed(kind)?.namespaced !== false;
  return namespaced ? `${kind} ${object?.metadata?.namespace ?? 'default'}/${name}` : `${kind} ${name}`;
}

/** Where an object of a manifest belongs; namespace `default` where it names none. */
export function keyOf(object: KubeObject): { readonly namespace: string; readonly name: string } {
  const namespaced = kindNamed(object.kind)?.namespaced !== false;
  return { namespace: namespaced ? (object.metadata.namespace ?? 'default') : '', name: object.metadata.name };
}
