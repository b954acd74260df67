import { type Document, isSeq, stringify } from 'yaml';
import type { KubeObject } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import { equalJson, isMap } from './json.ts';
import { parseManifest, type YamlDocument, yamlDocuments } from './manifest.ts';
import { cutIn, indentOf, indentsLists, listSides } from './manifest-cut.ts';
import type { KindLookup } from './object-store.ts';

/**
 * Changes one object inside the text of a manifest. A small change is cut into the text at the ranges of the parsed
 * nodes, so that every other byte stays as a person wrote it; what cannot be done so goes through the document, which
 * keeps comments but may move spaces. Each result is parsed again and must say exactly what was wanted, so a doubtful
 * edit costs layout at worst, never meaning.
 */
export function editManifest(
  text: string,
  index: number,
  before: KubeObject,
  after: KubeObject,
  kinds: KindLookup,
): string {
  const right = (candidate: string): boolean => {
    const found = parseManifest(candidate, kinds);
    return found.broken === null && equalJson(found.objects.find((object) => object.index === index)?.form, after);
  };
  for (const attempt of [cutIn, throughDocument, writtenAnew]) {
    const candidate = attempt(text, index, before, after);
    if (candidate !== null && right(candidate)) {
      return candidate;
    }
  }
  throw new CodedError('unavailable', `the manifest of ${after.kind} ${after.metadata.name} cannot be edited`);
}

/** The text without one document, or null when nothing else is in it. */
export function removeDocument(text: string, index: number): string | null {
  const documents = yamlDocuments(text);
  const rest = documents.filter((document, at) => at !== index && document.contents !== null);
  if (rest.length === 0) {
    return null;
  }
  const [start, end] = slice(documents, index);
  return text.slice(0, start) + text.slice(end).replace(/^\n+/, start === 0 ? '' : '\n');
}

/** The text of a new manifest. */
export function renderManifest(form: KubeObject): string {
  return stringify(form, { lineWidth: 0, aliasDuplicateObjects: false });
}

/** A document's part of the text, from the end of the one before. */
function slice(documents: readonly YamlDocument[], index: number): [number, number] {
  return [index === 0 ? 0 : documents[index - 1]!.range[2], documents[index]!.range[2]];
}

function throughDocument(text: string, index: number, before: KubeObject, after: KubeObject): string | null {
  const documents = yamlDocuments(text);
  const document = documents[index];
  if (document === undefined) {
    return null;
  }
  try {
    setChanges(document, [], before, after);
  } catch {
    // An alias or an odd key lies on the way: the next attempt writes the object anew.
    return null;
  }
  return withDocument(text, documents, index, document);
}

function writtenAnew(text: string, index: number, _before: KubeObject, after: KubeObject): string | null {
  const documents = yamlDocuments(text);
  const document = documents[index];
  if (document === undefined) {
    return null;
  }
  (document as Document).contents = document.createNode(after, { aliasDuplicateObjects: false });
  return withDocument(text, documents, index, document);
}

function withDocument(text: string, documents: YamlDocument[], index: number, document: YamlDocument): string {
  const [start, end] = slice(documents, index);
  const head = text.slice(0, start);
  const body = document.toString({ lineWidth: 0, indentSeq: indentsLists(text), ...indentOf(text) });
  const gap = head === '' || head.endsWith('\n') ? '' : '\n';
  const marked = index > 0 && !/^---/m.test(body.slice(0, 4)) ? `---\n${body}` : body;
  return head + gap + marked + text.slice(end).replace(/^\n+/, '');
}

type Path = readonly (string | number)[];

function setChanges(document: YamlDocument, path: Path, before: unknown, after: unknown): void {
  if (before === after || equalJson(before, after)) {
    return;
  }
  if (isMap(before) && isMap(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      if (!Object.hasOwn(after, key)) {
        document.deleteIn([...path, key]);
      } else if (!Object.hasOwn(before, key)) {
        document.setIn([...path, key], document.createNode(after[key], { aliasDuplicateObjects: false }));
      } else {
        setChanges(document, [...path, key], before[key], after[key]);
      }
    }
  } else if (Array.isArray(before) && Array.isArray(after)) {
    setList(document, path, before, after);
  } else {
    document.setIn(path, document.createNode(after, { aliasDuplicateObjects: false }));
  }
}

function setList(document: YamlDocument, path: Path, before: readonly unknown[], after: readonly unknown[]): void {
  const { head, common, tail } = listSides(before, after);
  for (let at = head; at < head + common; at += 1) {
    setChanges(document, [...path, at], before[at], after[at]);
  }
  for (let count = before.length - tail - head - common; count > 0; count -= 1) {
    document.deleteIn([...path, head + common]);
  }
  const list = document.getIn(path, true);
  const added = after.slice(head + common, after.length - tail);
  if (added.length > 0 && isSeq(list)) {
    const nodes = added.map((item) => document.createNode(item, { aliasDuplicateObjects: false }));
    (list.items as unknown[]).splice(head + common, 0, ...nodes);
  }
}
