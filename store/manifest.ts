import { type Document, isMap as isYamlMap, type ParsedNode, parseAllDocuments } from 'yaml';
import type { KubeObject } from '../api/object.ts';
import { refOf } from '../api/object.ts';
import { errorText } from '../base/errors.ts';
import { isMap, settle } from './json.ts';
import type { KindLookup } from './object-store.ts';
import { finalizersOf, formOf, identified, infoOf } from './transitions.ts';

/** Larger manifests are refused. */
export const MAX_MANIFEST_BYTES = 16 * 1024 * 1024;

export type YamlDocument = Document.Parsed<ParsedNode>;

/** One object of a manifest. */
export interface ManifestObject {
  /** Counts the documents of the file, empty ones too. */
  readonly index: number;
  /** Without the store's own fields; the namespace filled in. */
  readonly form: KubeObject;
  /** Taken when the object is first seen; later they are changed through the store only. */
  readonly finalizers: readonly string[];
}

export interface Manifest {
  readonly objects: readonly ManifestObject[];
  /** One line for each document that is no object of a known kind. */
  readonly problems: readonly string[];
  /** Why the text is no YAML; then nothing of it counts. */
  readonly broken: string | null;
}

/** Parses the YAML documents of a text without composing error texts, which would quote the file and its secrets. */
export function yamlDocuments(text: string): YamlDocument[] {
  const documents = parseAllDocuments(text, { prettyErrors: false, logLevel: 'silent' });
  return Array.isArray(documents) ? (documents as YamlDocument[]) : [];
}

/**
 * Reads the objects of a manifest. Documents are judged one by one, so that one without a name or of an unknown kind
 * does not hide the others; a syntax error spoils the whole text, because it makes the borders of documents uncertain.
 */
export function parseManifest(text: string, kinds: KindLookup): Manifest {
  const documents = yamlDocuments(text);
  for (const document of documents) {
    const error = document.errors[0];
    if (error !== undefined) {
      return { objects: [], problems: [], broken: `not valid YAML at ${position(text, error.pos[0])} (${error.code})` };
    }
  }
  const objects: ManifestObject[] = [];
  const problems: string[] = [];
  const seen = new Set<string>();
  for (const [index, document] of documents.entries()) {
    if (document.contents === null || (!isYamlMap(document.contents) && document.toJS() === null)) {
      continue;
    }
    const where = documents.length === 1 ? '' : `document at line ${lineOf(text, document.range[0])}: `;
    try {
      const object = readObject(document, index, kinds);
      const { kind, namespace, name } = refOf(object.form);
      const key = `${kind}/${namespace}/${name}`;
      if (seen.has(key)) {
        throw new Error(`${key} is in this file twice; the first counts`);
      }
      seen.add(key);
      objects.push(object);
    } catch (error) {
      problems.push(where + errorText(error));
    }
  }
  return { objects, problems, broken: null };
}

function readObject(document: YamlDocument, index: number, kinds: KindLookup): ManifestObject {
  const value: unknown = document.toJS({ maxAliasCount: 100 });
  if (!isMap(value)) {
    throw new Error('an object must be a map');
  }
  const object = identified(settle(undefined, value), kinds);
  return { index, form: formOf(object, infoOf(kinds, object.kind)), finalizers: finalizersOf(object) };
}

function lineOf(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < offset; at = text.indexOf('\n', at + 1)) {
    line += 1;
  }
  return line;
}

function position(text: string, offset: number): string {
  return `line ${lineOf(text, offset)}, column ${offset - text.lastIndexOf('\n', offset - 1)}`;
}
