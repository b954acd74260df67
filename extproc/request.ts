/** A request as its headers message tells of it. */
export interface RequestHead {
  readonly method: string;
  readonly scheme: string;
  readonly authority: string;
  /** Raw path with query. */
  readonly path: string;
  /** Without pseudo headers, names in lower case, in the order received; bytes as Latin-1. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** Attributes that Envoy was asked for, e.g. `filter_state['agents.sandbox.uid']`; texts only. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Whether the request has no body. */
  readonly endOfStream: boolean;
}

interface HeaderValue {
  readonly key?: string;
  readonly value?: string;
  readonly rawValue?: Uint8Array;
}

/** The parts of a request message of the ext_proc protocol that are read. */
export interface ProcessingRequest {
  readonly requestHeaders?: {
    readonly headers?: { readonly headers?: readonly HeaderValue[] };
    readonly endOfStream?: boolean;
  };
  readonly requestBody?: { readonly body?: Uint8Array; readonly endOfStream?: boolean };
  readonly attributes?: Readonly<Record<string, { readonly fields?: Readonly<Record<string, AttributeValue>> }>>;
  readonly [other: string]: unknown;
}

interface AttributeValue {
  readonly stringValue?: string;
  readonly numberValue?: number;
}

/** Reads a headers message; null when the message is another one. */
export function readHead(message: ProcessingRequest): RequestHead | null {
  const { requestHeaders } = message;
  if (requestHeaders === undefined || requestHeaders === null) {
    return null;
  }
  const all = (requestHeaders.headers?.headers ?? []).map(({ key = '', value = '', rawValue }) => {
    const text = rawValue !== undefined && rawValue.length > 0 ? Buffer.from(rawValue).toString('latin1') : value;
    return [key.toLowerCase(), text] as const;
  });
  const pseudo = (name: string) => all.find(([key]) => key === name)?.[1] ?? '';
  const headers = all.filter(([key]) => !key.startsWith(':'));
  return {
    method: pseudo(':method'),
    scheme: pseudo(':scheme'),
    authority: pseudo(':authority') || (headers.find(([key]) => key === 'host')?.[1] ?? ''),
    path: pseudo(':path'),
    headers,
    attributes: attributesOf(message),
    endOfStream: requestHeaders.endOfStream === true,
  };
}

/** The values that a header was sent with, in order. */
export function headerValues(head: RequestHead, name: string): readonly string[] {
  return head.headers.filter(([key]) => key === name).map(([, value]) => value);
}

function attributesOf({ attributes = {} }: ProcessingRequest): Readonly<Record<string, string>> {
  const fields = Object.values(attributes).flatMap((group) => Object.entries(group.fields ?? {}));
  return Object.fromEntries(
    fields.map(([name, value]) => [
      name,
      value.stringValue ?? (value.numberValue === undefined ? '' : `${value.numberValue}`),
    ]),
  );
}
