import { MCP_CALL, MCP_VERSIONS, type McpCall } from '../../policy-compiler/mcp-verdict.ts';
import { bodyText } from './body-text.ts';
import { JsonWalk, NotJson } from './json-walk.ts';

type Headers = readonly (readonly [name: string, value: string])[];

const UNREADABLE: McpCall = { kind: 'unreadable' };

/**
 * What a request body says as a message of the Model Context Protocol (egress-policy §4 with D13). The text is walked
 * once and no object is built from it. Stricter than the reference: `method`, `params` and `params.name` count under
 * exactly these names, and a second spelling of one, in any case, makes the message unreadable, since the server behind
 * could take either. `headers` are those of the request, names in lower case.
 */
export function scanMcp(body: Uint8Array, headers: Headers): McpCall {
  if (body.length === 0) {
    return { kind: 'empty' };
  }
  const text = bodyText(body, {
    contentEncoding: valuesOf(headers, 'content-encoding'),
    contentType: valuesOf(headers, 'content-type'),
  });
  if (text === null) {
    return UNREADABLE;
  }
  const walk = new JsonWalk(text);
  if (walk.atEnd()) {
    return { kind: 'empty' };
  }
  try {
    const message = readMessage(walk);
    if (message === null || !walk.atEnd()) {
      return UNREADABLE;
    }
    return message.method === MCP_CALL
      ? {
          kind: 'call',
          tool: message.tool === '' ? null : message.tool,
          version: versionOf(valuesOf(headers, 'mcp-protocol-version')),
        }
      : { kind: 'other' };
  } catch (error) {
    if (error instanceof NotJson) {
      return UNREADABLE;
    }
    throw error;
  }
}

function valuesOf(headers: Headers, name: string): readonly string[] {
  return headers.filter(([key]) => key === name).map(([, value]) => value);
}

interface Message {
  readonly method: string | null;
  readonly tool: string | null;
}

/** Null: readable JSON, but no message that can be judged (a batch, a scalar, an ambiguous one). */
function readMessage(walk: JsonWalk): Message | null {
  if (walk.kind() !== 'object') {
    return walk.kind() === 'literal' && walk.skip() === 'null' ? { method: null, tool: null } : null;
  }
  const method = new Once('method');
  const params = new Once('params');
  let isReadable = true;
  let methodText: string | null = null;
  let tool: string | null = null;
  walk.object((key) => {
    if (method.isExactly(key) && walk.kind() === 'string') {
      methodText = walk.string();
    } else if (params.isExactly(key) && walk.kind() === 'object') {
      const read = readParams(walk);
      isReadable = isReadable && read.isReadable;
      tool = read.tool;
    } else {
      const isNull = walk.skip() === 'null';
      isReadable = isReadable && key !== 'method' && (key !== 'params' || isNull);
    }
  });
  return isReadable && method.isClear && params.isClear ? { method: methodText, tool } : null;
}

function readParams(walk: JsonWalk): { readonly isReadable: boolean; readonly tool: string | null } {
  const name = new Once('name');
  let tool: string | null = null;
  walk.object((key) => {
    if (name.isExactly(key) && walk.kind() === 'string') {
      tool = walk.string();
    } else {
      walk.skip();
    }
  });
  return { isReadable: name.isClear, tool };
}

/** Counts the spellings of one member name. */
class Once {
  readonly #name: string;
  #count = 0;
  #others = 0;

  constructor(name: string) {
    this.#name = name;
  }

  /** Notes a key; whether it is the name itself, byte for byte. */
  isExactly(key: string): boolean {
    const exact = key === this.#name;
    this.#count += exact ? 1 : 0;
    this.#others += !exact && fold(key) === this.#name ? 1 : 0;
    return exact;
  }

  /** At most one spelling, and the right one. */
  get isClear(): boolean {
    return this.#count <= 1 && this.#others === 0;
  }
}

/** Simple case folding as lenient servers do it: ſ is s, and the Kelvin sign is k. */
function fold(key: string): string {
  return key.length > 16 ? key : key.toUpperCase().toLowerCase();
}

/** The version that the verdict is about: with several headers an unknown one, since the server may take any of them. */
function versionOf(values: readonly string[]): string | null {
  return values.find((value) => !MCP_VERSIONS.includes(value)) ?? values[0] ?? null;
}
