/** Resources as typed canonical JSON (keys in camelCase, durations `"1s"`, wrappers as plain values) and their bytes. */
import type { JsonValue } from '@bufbuild/protobuf';
import { fromBinary, fromJson, toBinary, toJson } from '@bufbuild/protobuf';
import { compareText } from '../base/canonical.ts';
import { CodedError, errorText } from '../base/errors.ts';
import type { EnvoyJson } from '../gen/json-map.d.ts';
import { envoyTypes, messageDescriptor } from './descriptors.ts';

/** Full message name → the type of its JSON form; generated, see `proto/roots.ts`. */
export type { EnvoyJson };

/** A message packed into `google.protobuf.Any`; assignable to every field of that type. */
export interface AnyJson {
  readonly '@type': string;
}

/** Messages whose JSON form is not an object of their fields; in an Any it is the member `value`. */
const VALUE_FORMS: ReadonlySet<string> = new Set(
  [
    ...['Any', 'Struct', 'Value', 'ListValue', 'Duration', 'Timestamp', 'FieldMask'],
    ...['StringValue', 'BytesValue', 'BoolValue', 'DoubleValue', 'FloatValue'],
    ...['Int32Value', 'UInt32Value', 'Int64Value', 'UInt64Value'],
  ].map((name) => `google.protobuf.${name}`),
);

/** Errors about these messages could quote a secret, so they name the message only. */
const SECRET_MESSAGES: ReadonlySet<string> = new Set([
  'envoy.extensions.transport_sockets.tls.v3.Secret',
  'envoy.config.route.v3.ScopedRouteConfiguration',
]);

const urls = new Map<string, string>();

/**
 * `type.googleapis.com/` and the full name of a message; always the same string for a type, since a large world keeps
 * hundreds of thousands of them.
 */
export function typeUrl(type: string): string {
  let url = urls.get(type);
  if (url === undefined) {
    url = `type.googleapis.com/${type}`;
    urls.set(type, url);
  }
  return url;
}

/** Packs the JSON form of a message for a field of type Any; a wrong type name or field is a compile error. */
export function any<N extends keyof EnvoyJson>(type: N, json: EnvoyJson[N]): AnyJson {
  const content = VALUE_FORMS.has(type) ? { value: json } : (json as object);
  return { '@type': typeUrl(type), ...content };
}

/**
 * Checks and encodes a message. Equal content gives equal bytes, whatever the order of the keys. Throws
 * `invalid-resource`, naming the field, on an unknown field or type, a bad enum value, two members of a oneof, and on
 * `undefined` or null, which would silently drop the field.
 */
export function resource<N extends keyof EnvoyJson>(type: N, json: EnvoyJson[N]): Uint8Array {
  const descriptor = messageDescriptor(type);
  const ordered = orderedJson(json, type);
  try {
    return toBinary(descriptor, fromJson(descriptor, ordered, { registry: envoyTypes }));
  } catch (error) {
    if (SECRET_MESSAGES.has(type)) {
      throw new CodedError('invalid-resource', `${type}: its JSON form is not valid`);
    }
    throw new CodedError('invalid-resource', `${type}: ${errorText(error)}`, { cause: error });
  }
}

/** The JSON form of an encoded message; throws `unknown-type`, or `invalid-resource` when the bytes are malformed. */
export function decode(type: string, bytes: Uint8Array): JsonValue {
  const descriptor = messageDescriptor(type);
  try {
    return toJson(descriptor, fromBinary(descriptor, bytes), { registry: envoyTypes });
  } catch (error) {
    throw new CodedError('invalid-resource', `${type}: the bytes are not a message of this type`, {
      cause: SECRET_MESSAGES.has(type) ? undefined : error,
    });
  }
}

/** A copy with sorted keys: map entries are encoded in the order in which they come. */
function orderedJson(value: unknown, path: string): JsonValue {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') {
    return value;
  }
  if (Array.isArray(value)) {
    return value.map((item: unknown, index) => orderedJson(item, `${path}[${index}]`));
  }
  const prototype: unknown = typeof value === 'object' && value !== null ? Object.getPrototypeOf(value) : undefined;
  if (prototype !== Object.prototype && prototype !== null) {
    throw new CodedError('invalid-resource', `${path}: neither text, number, boolean, list nor plain object`);
  }
  const entries = Object.entries(value as object).sort(([a], [b]) => compareText(a, b));
  return Object.fromEntries(entries.map(([key, member]) => [key, orderedJson(member, `${path}.${key}`)]));
}
