import { CodedError, type FieldError, isCoded } from '../base/errors.ts';

/**
 * The protocol between {@link serveStore} and {@link SocketStore}: HTTP/1.1 over a UNIX socket. `POST /v1/<method>`
 * carries the arguments as JSON; the answer is the result, or `{error: {code, message, fields}}`. `POST /v1/watch`
 * answers with one JSON event a line, without end; an error is then the last line. Every answer names the life of the
 * store in the header {@link INCARNATION}.
 */
export const METHODS = ['list', 'get', 'create', 'replace', 'patch', 'patchStatus', 'delete'] as const;

export type Method = (typeof METHODS)[number];

/** Larger bodies are refused. */
export const MAX_BODY_BYTES = 16 * 1024 * 1024;

/** The longest path that a socket address holds, in bytes. */
const MAX_SOCKET_PATH = 107;

/** Names the life of the store; versions of another life mean nothing. A watch may send it to be told `expired`. */
export const INCARNATION = 'x-sandgate-store';

export interface WireError {
  readonly error: { readonly code: string; readonly message: string; readonly fields?: readonly FieldError[] };
}

/** The arguments of a watch. */
export interface WatchRequest {
  readonly kind: string;
  readonly namespace?: string;
  readonly resourceVersion?: string;
  /** The life of the store that the version is from. */
  readonly incarnation?: string;
}

/** An error as it is sent; anything without a code is our own fault and goes out as `internal` without its text. */
export function toWire(error: unknown): WireError {
  if (!isCoded(error)) {
    return { error: { code: 'internal', message: 'the store failed; its log says why' } };
  }
  const { code, message, fields } = error;
  return { error: { code, message, ...(fields.length === 0 ? {} : { fields }) } };
}

/** The error of an answer. */
export function fromWire({ error }: WireError): CodedError {
  return new CodedError(error.code, error.message, error.fields === undefined ? {} : { fields: error.fields });
}

/** Throws `invalid` for a path that no socket can have. */
export function requireSocketPath(path: string): void {
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH) {
    throw new CodedError('invalid', `the socket path ${path} is longer than ${MAX_SOCKET_PATH} bytes`);
  }
}
