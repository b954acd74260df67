import type { Type } from 'typebox';
import {
  anyObject,
  anyValue,
  bool,
  type DeepReadonly,
  int32,
  int64,
  list,
  object,
  open,
  optional,
  text,
  textMap,
  typeMeta,
} from './schema.ts';

/** Kinds of Kubernetes that are read or kept here, as far as they are: Secret, ConfigMap, Service and their like. */

export const secretSchema = object({
  ...typeMeta('v1', 'Secret'),
  type: optional(text()),
  data: optional(textMap({ description: 'Values in base64.' })),
  stringData: optional(textMap({ description: 'Values as they are; they win over data.' })),
  immutable: optional(bool()),
});

export const configMapSchema = object({
  ...typeMeta('v1', 'ConfigMap'),
  data: optional(textMap()),
  binaryData: optional(textMap()),
  immutable: optional(bool()),
});

export const serviceSchema = object({
  ...typeMeta('v1', 'Service'),
  spec: optional(
    open({
      clusterIP: optional(text()),
      selector: optional(textMap()),
      ports: optional(list(open({ name: optional(text()), port: int32({ minimum: 1, maximum: 65535 }) }))),
    }),
  ),
  status: optional(anyValue()),
});

export const endpointSliceSchema = object({
  ...typeMeta('discovery.k8s.io/v1', 'EndpointSlice'),
  addressType: text(),
  endpoints: optional(list(open({ addresses: list(text()) }))),
  ports: optional(anyValue()),
});

/** Keeps last good forms of policies (D2). */
export const controllerRevisionSchema = object({
  ...typeMeta('apps/v1', 'ControllerRevision'),
  data: optional(anyObject()),
  revision: int64(),
});

export type Secret = DeepReadonly<Type.Static<typeof secretSchema>>;
export type ConfigMap = DeepReadonly<Type.Static<typeof configMapSchema>>;
export type Service = DeepReadonly<Type.Static<typeof serviceSchema>>;
export type EndpointSlice = DeepReadonly<Type.Static<typeof endpointSliceSchema>>;
export type ControllerRevision = DeepReadonly<Type.Static<typeof controllerRevisionSchema>>;
