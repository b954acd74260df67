import type { Node, Pair, YAMLMap } from 'yaml';
import { type Document, isAlias, isCollection, isPair, isScalar, isSeq, isMap as isYamlMap, stringify } from 'yaml';
import type { KubeObject } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import { equalJson, isMap } from './json.ts';
import { parseManifest, type YamlDocument, yamlDocuments } from './manifest.ts';
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

// ---- the document's own way

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

/** Equal items at both ends stay, so that an item taken out of the middle leaves the comments of the others in place. */
function setList(document: YamlDocument, path: Path, before: readonly unknown[], after: readonly unknown[]): void {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && equalJson(before[head], after[head])) {
    head += 1;
  }
  let tail = 0;
  while (tail < shorter - head && equalJson(before[before.length - 1 - tail], after[after.length - 1 - tail])) {
    tail += 1;
  }
  const common = shorter - head - tail;
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

// ---- cutting into the text

interface Cut {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

function cutIn(text: string, index: number, before: KubeObject, after: KubeObject): string | null {
  const contents = yamlDocuments(text)[index]?.contents;
  const cuts: Cut[] = [];
  if (!isYamlMap(contents) || !cutMap(text, contents as YAMLMap, before, after, cuts)) {
    return null;
  }
  // From the back, so that the offsets before stay right.
  cuts.sort((a, b) => b.start - a.start || b.end - a.end);
  let result = text;
  for (const cut of cuts) {
    result = result.slice(0, cut.start) + cut.text + result.slice(cut.end);
  }
  return result;
}

/** Adds the cuts that turn one map into the other; false when that cannot be done by cutting. */
function cutMap(text: string, node: YAMLMap, before: unknown, after: unknown, cuts: Cut[]): boolean {
  if (!isMap(before) || !isMap(after)) {
    return false;
  }
  const pairs = new Map(node.items.map((pair) => [isScalar(pair.key) ? String(pair.key.value) : '', pair]));
  const added: string[] = [];
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const pair = pairs.get(key);
    if (equalJson(before[key], after[key]) && Object.hasOwn(before, key) === Object.hasOwn(after, key)) {
      continue;
    }
    if (!Object.hasOwn(before, key) && pair === undefined) {
      added.push(key);
    } else if (pair === undefined || !cutPair(text, node, pair, key, before[key], after, cuts)) {
      return false;
    }
  }
  return added.length === 0 || cutAdded(text, node, added, after, cuts);
}

function cutPair(
  text: string,
  map: YAMLMap,
  pair: Pair,
  key: string,
  before: unknown,
  target: Readonly<Record<string, unknown>>,
  cuts: Cut[],
): boolean {
  const value = pair.value as Node | null;
  const after = target[key];
  if (isScalar(value) && value.range && isPlain(after) && isPlain(before) && inOneLine(text, value)) {
    const rendered = stringify(after, { lineWidth: 0 }).trimEnd();
    if (!rendered.includes('\n') && value.range[0] < value.range[1]) {
      cuts.push({ start: value.range[0], end: value.range[1], text: rendered });
      return true;
    }
  }
  const deeper: Cut[] = [];
  if (isYamlMap(value) && isMap(after) && Object.keys(after).length > 0 && cutMap(text, value, before, after, deeper)) {
    cuts.push(...deeper);
    return true;
  }
  const region = map.flow || map.items.length === 1 ? null : pairRegion(text, pair);
  // A list changed as a whole would lose the comments in it: the document keeps them.
  if (region === null || (Object.hasOwn(target, key) && isSeq(value))) {
    return false;
  }
  const rendered = Object.hasOwn(target, key) ? renderPair(text, key, after, region.column) : '';
  cuts.push({ start: region.start, end: region.end, text: rendered });
  return true;
}

function cutAdded(
  text: string,
  map: YAMLMap,
  keys: readonly string[],
  after: Readonly<Record<string, unknown>>,
  cuts: Cut[],
): boolean {
  const last = map.items.at(-1);
  const region = map.flow || last === undefined ? null : pairRegion(text, last, true);
  if (region === null) {
    return false;
  }
  const gap = text.slice(0, region.end).endsWith('\n') ? '' : '\n';
  const rendered = keys.map((key) => renderPair(text, key, after[key], region.column)).join('');
  cuts.push({ start: region.end, end: region.end, text: gap + rendered });
  return true;
}

/** The whole lines of a pair; null when something else stands on its first line (unless `behind` only is wanted). */
function pairRegion(text: string, pair: Pair, behind = false): { start: number; end: number; column: number } | null {
  const key = pair.key as Node | null;
  const from = key?.range?.[0];
  const to = endOf(pair.value as Node | null) ?? key?.range?.[1];
  if (from === undefined || to === undefined) {
    return null;
  }
  const start = text.lastIndexOf('\n', from - 1) + 1;
  if (!behind && text.slice(start, from).trim() !== '') {
    return null;
  }
  const finished = to > 0 && text[to - 1] === '\n';
  const newline = finished ? to - 1 : text.indexOf('\n', to);
  return { start, end: newline < 0 ? text.length : newline + 1, column: from - start };
}

function endOf(node: Node | null): number | undefined {
  if (node === null || isAlias(node) || isScalar(node) || (isCollection(node) && node.flow)) {
    return node?.range?.[1];
  }
  const last = isCollection(node) ? node.items.at(-1) : undefined;
  if (isPair(last)) {
    return endOf(last.value as Node | null) ?? (last.key as Node).range?.[1];
  }
  return last === undefined ? node.range?.[1] : endOf(last as Node);
}

function renderPair(text: string, key: string, value: unknown, column: number): string {
  const options = { lineWidth: 0, indentSeq: indentsLists(text), aliasDuplicateObjects: false, ...indentOf(text) };
  const lines = stringify({ [key]: value }, options)
    .trimEnd()
    .split('\n');
  const newline = text.includes('\r\n') ? '\r\n' : '\n';
  return lines.map((line) => (line === '' ? '' : ' '.repeat(column) + line) + newline).join('');
}

function isPlain(value: unknown): boolean {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value);
}

function inOneLine(text: string, node: Node): boolean {
  return !text.slice(node.range![0], node.range![1]).includes('\n');
}

/** Whether the author indents the items of a list below its key. */
function indentsLists(text: string): boolean {
  return !/^( *)[^\s#-][^\n]*:[ \t]*(#[^\n]*)?\r?\n\1- /m.test(text);
}

/** The author's step of indentation. */
function indentOf(text: string): { indent: number } {
  const step = /^[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n( +)[^\s-]/m.exec(text)?.[1]?.length ?? 2;
  return { indent: Math.min(8, Math.max(1, step)) };
}
