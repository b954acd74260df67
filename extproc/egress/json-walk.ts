/** Thrown for text that is no JSON value of RFC 8259; the caller treats all alike. */
export class NotJson extends Error {}

/** Deeper nesting is refused: nobody needs it, and it keeps the walk's own stack bounded. */
const MAX_DEPTH = 512;

const WHITE = new Set([0x20, 0x09, 0x0a, 0x0d]);
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

/** What stands at the cursor, told by its first character. */
export type ValueKind = 'object' | 'array' | 'string' | 'number' | 'literal';

/**
 * Walks once over JSON text without building anything but the strings that it is asked for. The grammar is strict: no
 * comments, no trailing commas, no control characters in strings.
 */
export class JsonWalk {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Whether only white space is left. */
  atEnd(): boolean {
    this.#white();
    return this.#at >= this.#text.length;
  }

  kind(): ValueKind {
    this.#white();
    switch (this.#text[this.#at]) {
      case '{':
        return 'object';
      case '[':
        return 'array';
      case '"':
        return 'string';
      case 't':
      case 'f':
      case 'n':
        return 'literal';
      default:
        return 'number';
    }
  }

  /** Walks an object; `member` must consume the value of each member. */
  object(member: (key: string) => void): void {
    this.#open('{');
    if (this.#take('}')) {
      this.#depth -= 1;
      return;
    }
    do {
      this.#white();
      const key = this.string();
      this.#expect(':');
      member(key);
    } while (this.#take(','));
    this.#expect('}');
    this.#depth -= 1;
  }

  string(): string {
    this.#white();
    if (this.#text[this.#at] !== '"') {
      throw new NotJson();
    }
    let start = this.#at + 1;
    let value = '';
    for (let at = start; ; at += 1) {
      const code = this.#text.charCodeAt(at);
      if (code === 0x22) {
        this.#at = at + 1;
        return value + this.#text.slice(start, at);
      }
      if (code === 0x5c) {
        const [decoded, length] = this.#escape(at);
        value += this.#text.slice(start, at) + decoded;
        at += length - 1;
        start = at + 1;
      } else if (!(code >= 0x20)) {
        throw new NotJson(); // A control character, or NaN at the end of the text.
      }
    }
  }

  #escape(at: number): readonly [string, number] {
    const letter = this.#text[at + 1] ?? '';
    if (letter === 'u') {
      const digits = this.#text.slice(at + 2, at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) {
        throw new NotJson();
      }
      return [String.fromCharCode(Number.parseInt(digits, 16)), 6];
    }
    const decoded = ESCAPES[letter];
    if (decoded === undefined) {
      throw new NotJson();
    }
    return [decoded, 2];
  }

  /** Consumes whatever stands here; gives the text of a literal, and null for everything else. */
  skip(): 'true' | 'false' | 'null' | null {
    switch (this.kind()) {
      case 'object':
        this.object(() => void this.skip());
        return null;
      case 'array':
        this.#array();
        return null;
      case 'string':
        this.string();
        return null;
      case 'literal':
        return this.#literal();
      default:
        this.#number();
        return null;
    }
  }

  #array(): void {
    this.#open('[');
    if (!this.#take(']')) {
      do {
        this.skip();
      } while (this.#take(','));
      this.#expect(']');
    }
    this.#depth -= 1;
  }

  #literal(): 'true' | 'false' | 'null' {
    for (const word of ['true', 'false', 'null'] as const) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return word;
      }
    }
    throw new NotJson();
  }

  #number(): void {
    NUMBER.lastIndex = this.#at;
    const match = NUMBER.exec(this.#text);
    if (match === null) {
      throw new NotJson();
    }
    this.#at = NUMBER.lastIndex;
  }

  #open(bracket: string): void {
    this.#expect(bracket);
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) {
      throw new NotJson();
    }
  }

  #expect(character: string): void {
    if (!this.#take(character)) {
      throw new NotJson();
    }
  }

  #take(character: string): boolean {
    this.#white();
    const found = this.#text[this.#at] === character;
    this.#at += found ? 1 : 0;
    return found;
  }

  #white(): void {
    while (WHITE.has(this.#text.charCodeAt(this.#at))) {
      this.#at += 1;
    }
  }
}
