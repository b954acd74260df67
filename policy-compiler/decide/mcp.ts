import { gunzipSync, inflateRawSync, inflateSync } from 'node:zlib';
import type { McpToolPolicy } from '../../api/security-profile.ts';
import type { HttpView } from './http-view.ts';

/** What an `mcpToolPolicy` says about one request; `method` is null where nothing governed can be read. */
export interface McpVerdict {
  readonly method: string | null;
  readonly tool: string | null;
  readonly action: 'allow' | 'deny';
}

const VERSIONS = ['2025-06-18', '2025-11-25', '2026-07-28'];
const GOVERNED = 'tools/call';
const BODY_CAP = 8 * 1024 * 1024;
const CODINGS_CAP = 2;

/** The verdict of one policy (egress-policy §4, steps as numbered there; D13 where it is stricter). */
export function decideMcp(policy: McpToolPolicy, { headers, body }: HttpView): McpVerdict {
  const message = readMessage(body, headers.get('content-encoding') ?? [], headers.get('content-type') ?? []);
  if (message === 'empty') {
    return { method: null, tool: null, action: 'allow' };
  }
  if (message === 'unreadable') {
    // 7, D13: nobody knows what it calls, so it is denied wherever the policy denies anything.
    const denies = policy.defaultAction === 'deny' || policy.rules.some((rule) => rule.action === 'deny');
    return { method: null, tool: null, action: denies ? 'deny' : 'allow' };
  }
  const { method, tool } = message;
  if (method !== GOVERNED) {
    return { method: null, tool: null, action: 'allow' }; // 8
  }
  const versions = headers.get('mcp-protocol-version') ?? [];
  if (versions.length === 0 || !versions.every((version) => VERSIONS.includes(version))) {
    return { method, tool, action: policy.unsupportedVersionAction === 'passthrough' ? 'allow' : 'deny' }; // 9
  }
  if (tool === null) {
    return { method, tool, action: policy.defaultAction }; // 10
  }
  const decisive = policy.rules.find(
    (rule) =>
      rule.method === method &&
      (rule.toolNames === undefined || rule.toolNames.length === 0 || rule.toolNames.includes(tool)),
  );
  return { method, tool, action: decisive?.action ?? policy.defaultAction }; // 11
}

type Message = 'empty' | 'unreadable' | { readonly method: string | null; readonly tool: string | null };

function readMessage(body: Uint8Array, contentEncodings: readonly string[], contentTypes: readonly string[]): Message {
  if (isBlank(Buffer.from(body).toString('latin1'))) {
    return 'empty'; // 1
  }
  const decoded = body.length > BODY_CAP ? null : decodeContent(body, contentEncodings);
  const text = decoded === null || !agreesWith(contentTypes, decoded) ? null : decodeText(decoded);
  if (text === null) {
    return 'unreadable'; // 2, 3
  }
  return isBlank(text) ? 'empty' : readJson(text); // 4
}

/** White space of JSON only. */
function isBlank(text: string): boolean {
  return /^[ \t\r\n]*$/.test(text);
}

/** 2: undoes the content codings from right to left; several headers are one list. Null: unreadable. */
function decodeContent(body: Uint8Array, headers: readonly string[]): Uint8Array | null {
  const codings = headers.flatMap((value) => value.split(',')).map((coding) => coding.trim().toLowerCase());
  if (codings.length > CODINGS_CAP) {
    return null;
  }
  let bytes = body;
  for (const coding of codings.toReversed()) {
    try {
      bytes = decodeOne(bytes, coding);
    } catch {
      return null;
    }
  }
  return bytes;
}

/** One coding; throws for one that is not known, a broken stream, or more than the cap. */
function decodeOne(bytes: Uint8Array, coding: string): Uint8Array {
  const limit = { maxOutputLength: BODY_CAP };
  switch (coding) {
    case '':
    case 'identity':
      return bytes;
    case 'gzip':
    case 'x-gzip':
      return gunzipSync(bytes, limit);
    case 'deflate':
      return hasZlibHeader(bytes) ? inflateSync(bytes, limit) : inflateRawSync(bytes, limit);
    default:
      throw new RangeError('unknown content coding');
  }
}

/** RFC 1950 §2.2: method 8, window of at most 32 KiB, and the two bytes a multiple of 31. */
function hasZlibHeader(bytes: Uint8Array): boolean {
  const [first = 0, second = 0] = bytes;
  return (first & 0x0f) === 8 && first >> 4 <= 7 && ((first << 8) | second) % 31 === 0;
}

/** Whether every `charset`, of whatever header, is the one that the bytes are read in: servers may obey it instead. */
function agreesWith(contentTypes: readonly string[], bytes: Uint8Array): boolean {
  const mark = Buffer.from(bytes.subarray(0, 2)).toString('hex');
  const own = mark === 'fffe' ? ['utf-16', 'utf-16le'] : mark === 'feff' ? ['utf-16', 'utf-16be'] : ['utf-8', 'utf8'];
  return contentTypes
    .flatMap((value) => value.toLowerCase().split(/[;,]/))
    .filter((parameter) => parameter.includes('charset'))
    .every((parameter) => {
      const [, name = ''] = /^[ \t]*charset=(.*?)[ \t]*$/.exec(parameter) ?? [];
      return own.some((charset) => name === charset || name === `"${charset}"`);
    });
}

/** 3: a BOM says UTF-8 or UTF-16; without one the bytes have to be valid UTF-8. Null: unreadable. */
function decodeText(bytes: Uint8Array): string | null {
  const starts = (...mark: number[]) => mark.every((byte, index) => bytes[index] === byte);
  if (starts(0xff, 0xfe) || starts(0xfe, 0xff)) {
    const encoding = bytes[0] === 0xff ? 'utf-16le' : 'utf-16be';
    return bytes.length % 2 === 0 ? new TextDecoder(encoding, { ignoreBOM: true }).decode(bytes.subarray(2)) : null;
  }
  try {
    const content = starts(0xef, 0xbb, 0xbf) ? bytes.subarray(3) : bytes;
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return null;
  }
}

/** 5, 6: one JSON object (or null) with a readable method, parameters and tool name. */
function readJson(text: string): Message {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'unreadable';
  }
  if (value === null) {
    return { method: null, tool: null };
  }
  if (typeof value !== 'object' || Array.isArray(value)) {
    return 'unreadable';
  }
  const top = objectMembers(text);
  const method = single(top, 'method');
  const params = single(top, 'params');
  if (method === 'ambiguous' || params === 'ambiguous') {
    return 'unreadable';
  }
  const methodValue: unknown = method === null ? null : JSON.parse(method);
  const paramsValue: unknown = params === null ? null : JSON.parse(params);
  const isMethod = typeof methodValue === 'string' || method === null;
  if (!isMethod || typeof paramsValue !== 'object' || Array.isArray(paramsValue)) {
    return 'unreadable';
  }
  const name = paramsValue === null ? null : single(objectMembers(params!), 'name');
  if (name === 'ambiguous') {
    return 'unreadable';
  }
  const tool: unknown = name === null ? null : JSON.parse(name);
  return {
    method: methodValue as string | null,
    tool: typeof tool === 'string' && tool !== '' ? tool : null,
  };
}

/**
 * The value of a member, as JSON text; null when it is absent. D13: a member that appears twice, or in another case
 * (also by Unicode's simple folding, which takes ſ for s), is ambiguous, since servers read it differently.
 */
function single(members: readonly (readonly [string, string])[], name: string): string | null | 'ambiguous' {
  const alike = members.filter(([key]) => key.toLowerCase().replaceAll('ſ', 's') === name);
  if (alike.length === 0) {
    return null;
  }
  return alike.length === 1 && alike[0]![0] === name ? alike[0]![1] : 'ambiguous';
}

/** The members of an object in the order written, duplicates included. The text must be one valid JSON object. */
function objectMembers(text: string): readonly (readonly [key: string, value: string])[] {
  const TOKEN = /"(?:[^"\\]+|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/gs;
  const members: [string, string][] = [];
  let depth = 0;
  let key: string | null = null;
  let valueStart = 0;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const ends = depth === 1 && (token === ',' || token === '}');
    if (ends && key !== null) {
      members.push([key, text.slice(valueStart, index)]);
      key = null;
    } else if (depth === 1 && key === null && token.startsWith('"')) {
      key = JSON.parse(token) as string;
    } else if (depth === 1 && token === ':') {
      valueStart = index + 1;
    }
    depth += token === '{' || token === '[' ? 1 : token === '}' || token === ']' ? -1 : 0;
  }
  return members;
}
