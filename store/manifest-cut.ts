import type { Node, Pair, YAMLMap, YAMLSeq } from 'yaml';
import { isAlias, isCollection, isPair, isScalar, isSeq, isMap as isYamlMap, stringify } from 'yaml';
import type { KubeObject } from '../api/object.ts';
import { equalJson, isMap } from './json.ts';
import { yamlDocuments } from './manifest.ts';

/** A part of the text to be replaced. */
interface Cut {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * The text with one document changed by cutting at the ranges of its nodes; null where that cannot be done. Whether the
 * result says what was wanted is the caller's to check.
 */
export function cutIn(text: string, index: number, before: KubeObject, after: KubeObject): string | null {
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

/** Whole lines of a text. */
interface Region {
  readonly start: number;
  readonly end: number;
  /** Where the key or the dash stands. */
  readonly column: number;
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
  if (Object.hasOwn(target, key) && cutValue(text, value, before, after, cuts)) {
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

/** Adds the cuts that turn one value into the other inside its place; false, and no cut, when that cannot be done. */
function cutValue(text: string, node: Node | null, before: unknown, after: unknown, cuts: Cut[]): boolean {
  if (isScalar(node) && node.range && isPlain(after) && isPlain(before) && inOneLine(text, node)) {
    const rendered = stringify(after, { lineWidth: 0 }).trimEnd();
    if (!rendered.includes('\n') && node.range[0] < node.range[1]) {
      cuts.push({ start: node.range[0], end: node.range[1], text: rendered });
      return true;
    }
  }
  const deeper: Cut[] = [];
  const done =
    (isYamlMap(node) && isMap(after) && Object.keys(after).length > 0 && cutMap(text, node, before, after, deeper)) ||
    (isSeq(node) && cutList(text, node, before, after, deeper));
  if (done) {
    cuts.push(...deeper);
  }
  return done;
}

/**
 * How one list became the other: equal items at both ends stay, `common` items between are changed in place, the rest
 * was taken out or put in. So an item taken out of the middle leaves the comments of the others in place.
 */
export function listSides(
  before: readonly unknown[],
  after: readonly unknown[],
): { head: number; common: number; tail: number } {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && equalJson(before[head], after[head])) {
    head += 1;
  }
  let tail = 0;
  while (tail < shorter - head && equalJson(before[before.length - 1 - tail], after[after.length - 1 - tail])) {
    tail += 1;
  }
  return { head, common: shorter - head - tail, tail };
}

function cutList(text: string, list: YAMLSeq, before: unknown, after: unknown, cuts: Cut[]): boolean {
  if (list.flow || !Array.isArray(before) || !Array.isArray(after) || after.length === 0) {
    return false;
  }
  if (list.items.length !== before.length) {
    return false;
  }
  const { head, common, tail } = listSides(before, after);
  const changed = head + common;
  for (let at = head; at < changed; at += 1) {
    if (!cutValue(text, list.items[at] as Node | null, before[at], after[at], cuts)) {
      return false;
    }
  }
  for (let at = changed; at < before.length - tail; at += 1) {
    const region = itemRegion(text, list.items[at] as Node | null);
    if (region === null) {
      return false;
    }
    cuts.push({ start: region.start, end: region.end, text: '' });
  }
  const added = after.slice(changed, after.length - tail);
  return added.length === 0 || cutItems(text, list, changed, added, cuts);
}

function cutItems(text: string, list: YAMLSeq, at: number, added: readonly unknown[], cuts: Cut[]): boolean {
  const region = itemRegion(text, list.items[Math.max(0, at - 1)] as Node | null);
  if (region === null) {
    return false;
  }
  const position = at === 0 ? region.start : region.end;
  const gap = position === 0 || text[position - 1] === '\n' ? '' : '\n';
  cuts.push({ start: position, end: position, text: gap + renderLines(text, added, region.column) });
  return true;
}

/** The whole lines of an item of a list; null when something else than its dash stands before it. */
function itemRegion(text: string, item: Node | null): Region | null {
  const from = item?.range?.[0];
  const to = endOf(item);
  if (from === undefined || to === undefined) {
    return null;
  }
  const start = text.lastIndexOf('\n', from - 1) + 1;
  const dash = /^( *)- +$/.exec(text.slice(start, from));
  return dash === null ? null : { start, end: lineEnd(text, to), column: dash[1]!.length };
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
function pairRegion(text: string, pair: Pair, behind = false): Region | null {
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
  return { start, end: lineEnd(text, to), column: from - start };
}

/** The beginning of the line after the one in which a value ends. */
function lineEnd(text: string, to: number): number {
  const finished = to > 0 && text[to - 1] === '\n';
  const newline = finished ? to - 1 : text.indexOf('\n', to);
  return newline < 0 ? text.length : newline + 1;
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
  return renderLines(text, { [key]: value }, column);
}

function renderLines(text: string, value: unknown, column: number): string {
  const options = { lineWidth: 0, indentSeq: indentsLists(text), aliasDuplicateObjects: false, ...indentOf(text) };
  const lines = stringify(value, options).trimEnd().split('\n');
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
export function indentsLists(text: string): boolean {
  return !/^( *)[^\s#-][^\n]*:[ \t]*(#[^\n]*)?\r?\n\1- /m.test(text);
}

/** The author's step of indentation. */
export function indentOf(text: string): { indent: number } {
  const step = /^[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n( +)[^\s-]/m.exec(text)?.[1]?.length ?? 2;
  return { indent: Math.min(8, Math.max(1, step)) };
}
