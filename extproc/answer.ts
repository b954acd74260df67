/**
 * The room `extproc/` answers what an Envoy cannot decide alone: the stream machine of the external processor, and its
 * handlers `ingress/` (route, token, wake) and `egress/` (MCP calls, hosts over the cap). It does not know how a table
 * is compiled. This file alone knows what the protobuf messages look like.
 */

/** What a handler decides about one request. */
export type Answer =
  | {
      readonly kind: 'continue';
      /** Headers to set; the new value replaces all old ones. `:path` may be among them. */
      readonly set?: Readonly<Record<string, string>>;
      readonly remove?: readonly string[];
      /** Chooses the route anew, with the changed headers. */
      readonly clearRouteCache?: boolean;
      /** Dynamic metadata by namespace. */
      readonly metadata?: Readonly<Record<string, Readonly<Record<string, string>>>>;
    }
  | {
      readonly kind: 'respond';
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
      /** Shown as response code details in access logs: one word. */
      readonly details: string;
    };

/** A response message of the ext_proc protocol, camelCase as the gRPC codec takes it. */
export type ProcessingResponse = Readonly<Record<string, unknown>>;

export type Phase = 'headers' | 'body';

const PHASE_FIELD = { headers: 'requestHeaders', body: 'requestBody' } as const;

/** The message that answers the present phase. */
export function encodeAnswer(answer: Answer, phase: Phase): ProcessingResponse {
  if (answer.kind === 'respond') {
    return {
      immediateResponse: {
        status: { code: answer.status },
        headers: { setHeaders: setHeaders(answer.headers ?? {}) },
        body: Buffer.from(answer.body ?? '', 'utf8'),
        details: answer.details,
      },
    };
  }
  const metadata = Object.entries(answer.metadata ?? {});
  return {
    [PHASE_FIELD[phase]]: {
      response: {
        status: 'CONTINUE',
        headerMutation: { setHeaders: setHeaders(answer.set ?? {}), removeHeaders: [...(answer.remove ?? [])] },
        clearRouteCache: answer.clearRouteCache === true,
      },
    },
    ...(metadata.length === 0
      ? {}
      : { dynamicMetadata: struct(metadata.map(([namespace, values]) => [namespace, structValue(values)])) }),
  };
}

/** Answers the headers phase with the wish to see the whole body before anything goes on. */
export function encodeReadBody(): ProcessingResponse {
  return {
    requestHeaders: { response: { status: 'CONTINUE' } },
    modeOverride: {
      requestHeaderMode: 'SEND',
      responseHeaderMode: 'SKIP',
      requestBodyMode: 'BUFFERED',
      responseBodyMode: 'NONE',
      requestTrailerMode: 'SKIP',
      responseTrailerMode: 'SKIP',
    },
  };
}

/** An interim message: the answer may take this many seconds more. Envoy takes one per message that it waits for. */
export function encodeExtend(seconds: number): ProcessingResponse {
  return { overrideMessageTimeout: { seconds: String(seconds), nanos: 0 } };
}

function setHeaders(headers: Readonly<Record<string, string>>): object[] {
  return Object.entries(headers).map(([key, value]) => ({
    // A pseudo header repeats bytes of the request, which were read as Latin-1; other values are texts of a policy.
    header: { key, rawValue: Buffer.from(value, key.startsWith(':') ? 'latin1' : 'utf8') },
    appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD',
  }));
}

function structValue(values: Readonly<Record<string, string>>): object {
  return { structValue: struct(Object.entries(values).map(([key, value]) => [key, { stringValue: value }])) };
}

function struct(fields: readonly (readonly [string, object])[]): object {
  return { fields: Object.fromEntries(fields) };
}
