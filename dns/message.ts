/**
 * The strict subset of DNS (RFC 1035) that passes between a sidecar and the machine's resolver: one question for the
 * IPv4 or IPv6 addresses of a host name, and its addresses. What is read here is written anew from the parsed form, so
 * that no other byte of either side gets to the other.
 */

/** The two types of records that are asked for. */
export type AddressType = 'A' | 'AAAA';

const TYPES: Readonly<Record<AddressType, { readonly code: number; readonly bytes: number }>> = {
  A: { code: 1, bytes: 4 },
  AAAA: { code: 28, bytes: 16 },
};
const CLASS_IN = 1;
const HEADER_BYTES = 12;
/** A question has one name of at most 255 bytes; with an EDNS record it stays below this. */
export const MAX_QUESTION_BYTES = 512;
/** More addresses than this of one name are left out. */
const MAX_ADDRESSES = 64;

/** Response codes that are answered. */
export const NO_ERROR = 0;
export const SERVER_FAILURE = 2;
export const NO_SUCH_NAME = 3;

/** One question as it was sent. */
export interface Question {
  readonly id: number;
  /** Lower case, without a dot at its end; null when it is no host name, and so has no address. */
  readonly name: string | null;
  readonly type: AddressType;
  /** The question section as the asker spelt it, which an answer repeats. */
  readonly section: Uint8Array;
}

/** What a resolver said. */
export interface Answer {
  readonly code: number;
  readonly addresses: readonly { readonly bytes: Uint8Array; readonly ttl: number }[];
}

/**
 * Reads a message as one standard question of class IN for addresses; null when it is anything else. Only an EDNS record
 * may follow, which is not read.
 */
export function readQuestion(message: Buffer): Question | null {
  if (message.length < HEADER_BYTES || message.length > MAX_QUESTION_BYTES) {
    return null;
  }
  const isQuery = (message[2]! & 0xf8) === 0;
  const [questions, answers, authorities, others] = [4, 6, 8, 10].map((at) => message.readUInt16BE(at));
  const labels = readLabels(message, HEADER_BYTES);
  if (!isQuery || questions !== 1 || answers !== 0 || authorities !== 0 || others! > 1 || labels === null) {
    return null;
  }
  const { end } = labels;
  if (message.length < end + 4 || message.readUInt16BE(end + 2) !== CLASS_IN) {
    return null;
  }
  const type = typeNamed(message.readUInt16BE(end));
  const name = labels.labels.join('.').toLowerCase();
  return type === null
    ? null
    : {
        id: message.readUInt16BE(0),
        name: HOST_NAME.test(name) && name.length <= 253 ? name : null,
        type,
        section: message.subarray(HEADER_BYTES, end + 4),
      };
}

const HOST_NAME = /^[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?)*$/;

function typeNamed(code: number): AddressType | null {
  return code === TYPES.A.code ? 'A' : code === TYPES.AAAA.code ? 'AAAA' : null;
}

/** A name without compression, as questions have it; null when it is none. */
function readLabels(
  message: Buffer,
  start: number,
): { readonly labels: readonly string[]; readonly end: number } | null {
  const labels: string[] = [];
  for (let at = start; at < message.length && at - start < 255; ) {
    const length = message[at]!;
    if (length === 0) {
      return { labels, end: at + 1 };
    }
    if (length > 63 || at + 1 + length > message.length) {
      return null;
    }
    labels.push(message.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return null;
}

/** A recursive question for the addresses of a name of {@link readQuestion}. */
export function writeQuestion(id: number, name: string, type: AddressType): Buffer {
  const labels = name.split('.').flatMap((label) => [Buffer.from([label.length]), Buffer.from(label, 'latin1')]);
  return Buffer.concat([header(id, 0x0100, 0), ...labels, Buffer.from([0, 0, TYPES[type].code, 0, CLASS_IN])]);
}

/** The answer to a question, in its own spelling. */
export function writeAnswer(question: Question, { code, addresses }: Answer): Buffer {
  const { code: type } = TYPES[question.type];
  const records = addresses.slice(0, MAX_ADDRESSES).map(({ bytes, ttl }) => {
    const record = Buffer.from([0xc0, HEADER_BYTES, 0, type, 0, CLASS_IN, 0, 0, 0, 0, 0, bytes.length]);
    record.writeUInt32BE(ttl, 6);
    return Buffer.concat([record, bytes]);
  });
  return Buffer.concat([header(question.id, 0x8180 | code, records.length), question.section, ...records]);
}

function header(id: number, flags: number, answers: number): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  for (const [index, value] of [id, flags, 1, answers].entries()) {
    bytes.writeUInt16BE(value, 2 * index);
  }
  return bytes;
}

/**
 * Reads a resolver's answer to a question of {@link writeQuestion}: the addresses of the asked type, each with the
 * shortest time to live of the answer, since aliases on the way have theirs. Null when the message answers anything else
 * or is broken.
 */
export function readAnswer(message: Buffer, asked: { readonly id: number; readonly type: AddressType }): Answer | null {
  if (message.length < HEADER_BYTES || message.readUInt16BE(0) !== asked.id || (message[2]! & 0x80) === 0) {
    return null;
  }
  const code = message[3]! & 0x0f;
  let at: number | null = HEADER_BYTES;
  for (let questions = message.readUInt16BE(4); questions > 0 && at !== null; questions -= 1) {
    at = endOfName(message, at);
    at = at === null ? null : at + 4;
  }
  const { code: type, bytes: size } = TYPES[asked.type];
  const found: Uint8Array[] = [];
  let ttl = 0x7fff_ffff;
  for (let records = message.readUInt16BE(6); records > 0; records -= 1) {
    at = at === null ? null : endOfName(message, at);
    if (at === null || message.length < at + 10) {
      return null;
    }
    const length = message.readUInt16BE(at + 8);
    const data: Buffer = message.subarray(at + 10, at + 10 + length);
    ttl = Math.min(ttl, message.readUInt32BE(at + 4));
    if (message.readUInt16BE(at) === type && message.readUInt16BE(at + 2) === CLASS_IN && data.length === size) {
      found.push(data);
    }
    at += 10 + length;
  }
  return { code, addresses: found.map((bytes) => ({ bytes, ttl })) };
}

/** Behind a name that may end in a pointer; null when the message ends first. */
function endOfName(message: Buffer, start: number): number | null {
  for (let at = start; at < message.length; ) {
    const length = message[at]!;
    if (length === 0) {
      return at + 1;
    }
    if (length >= 0xc0) {
      return at + 2;
    }
    at += 1 + length;
  }
  return null;
}
