/** One failed rule about one field of one object; `path` is a JSON path such as `spec.rules[0].match[0].domains[1]`. */
export interface FieldError {
  readonly path: string;
  readonly reason: string;
}

/**
 * An error with a stable code that callers may switch on. Messages are short, name the field or object, and never
 * contain a secret. Codes are lower-case words joined with `-`.
 */
export class CodedError extends Error {
  readonly code: string;
  readonly fields: readonly FieldError[];

  constructor(code: string, message: string, options: { cause?: unknown; fields?: readonly FieldError[] } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'CodedError';
    this.code = code;
    this.fields = options.fields ?? [];
  }
}

/** Whether `error` is a {@link CodedError}, and has that code when one is given. */
export function isCoded(error: unknown, code?: string): error is CodedError {
  return error instanceof CodedError && (code === undefined || error.code === code);
}

/** The text of anything thrown, for a log line or an answer. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
