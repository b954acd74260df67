import type { Type } from 'typebox';
import { conditions, labelSelector } from './common.ts';
import {
  API_VERSION,
  anyObject,
  bool,
  type DeepReadonly,
  int32,
  int64,
  list,
  mapOf,
  object,
  oneOf,
  optional,
  text,
  textMap,
  typeMeta,
} from './schema.ts';

/** SecurityProfile and GlobalSecurityProfile: what happens to a request (crds §11). */

const HEADER = "^[A-Za-z0-9!#$%&'*+\\-.^_|~]+$";
const LOWER_HEADER = "^[a-z0-9!#$%&'*+\\-.^_|~]+$";
const LABEL = '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$';
const QUERY_NAME = "^[A-Za-z0-9!$&'()*+,\\-./:;=?@_~\\[\\]]+$";
const SCHEME = '^[a-zA-Z][a-zA-Z0-9+\\-.]*$';

const headerName = () => text({ minLength: 1, maxLength: 256, pattern: HEADER });
const lowerHeaderName = () => text({ minLength: 1, maxLength: 256, pattern: LOWER_HEADER });
const objectName = () => text({ minLength: 1, maxLength: 253 });
const status100 = () => int32({ default: 403, minimum: 100, maximum: 599 });
const valueTest = () => oneOf(['Exact', 'Prefix', 'Regex'], { default: 'Exact' });

const valueSource = () =>
  object({
    value: optional(text({ maxLength: 2048 })),
    cel: optional(text({ minLength: 1, maxLength: 1024 })),
    template: optional(text({ minLength: 1, maxLength: 2048 })),
  });

const auditEntry = object({
  name: text({ minLength: 1, maxLength: 63, pattern: LABEL }),
  when: optional(text({ maxLength: 1024 })),
  webhook: object({
    url: text({ minLength: 1, maxLength: 2048 }),
    timeout: optional(text({ default: '2s', cel: ['auditTimeout'] })),
    request: optional(
      object({
        method: optional(oneOf(['POST', 'PUT', 'PATCH'], { default: 'POST' })),
        headers: optional(list(object({ name: headerName(), value: text({ maxLength: 2048 }) }))),
        body: optional(object({ json: optional(anyObject()), text: optional(text({ maxLength: 8192 })) })),
      }),
    ),
  }),
});

const audit = () => list(auditEntry, { listKeys: ['name'] });

const matchClause = object({
  domains: list(text(), { minItems: 1, description: 'Exact names, *.suffix (without the apex), or *.' }),
  methods: optional(list(oneOf(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'CONNECT', 'TRACE']))),
  schemes: optional(list(text({ minLength: 1, maxLength: 32, pattern: SCHEME }))),
  ports: optional(list(int32({ minimum: 1, maximum: 65535 }))),
  paths: optional(
    list(
      object({
        type: oneOf(['Prefix', 'Exact', 'Regex'], { default: 'Prefix' }),
        value: text({ minLength: 1, maxLength: 256 }),
      }),
    ),
  ),
  headers: optional(
    list(object({ name: headerName(), type: optional(valueTest()), value: text({ minLength: 1, maxLength: 512 }) })),
  ),
  queryParams: optional(
    list(
      object({
        name: text({ minLength: 1, maxLength: 256, pattern: QUERY_NAME }),
        type: optional(valueTest()),
        value: text({ minLength: 1, maxLength: 512 }),
      }),
    ),
  ),
});

const mcpToolPolicy = object({
  defaultAction: oneOf(['allow', 'deny'], { default: 'deny' }),
  unsupportedVersionAction: optional(oneOf(['deny', 'passthrough'], { default: 'deny' })),
  rules: list(
    object({
      method: text({ minLength: 1 }),
      toolNames: optional(list(text())),
      action: oneOf(['allow', 'deny']),
    }),
    { minItems: 1 },
  ),
  denyResponse: optional(object({ statusCode: optional(status100()), body: optional(text()) })),
});

const credentialRef = object({
  secret: optional(object({ name: objectName(), namespace: optional(objectName()) })),
  credentialProvider: optional(
    object({
      name: objectName(),
      namespace: optional(objectName()),
      parameters: optional(mapOf(valueSource())),
    }),
  ),
  kind: optional(oneOf(['Secret', 'CredentialProvider'], { description: 'Deprecated: use secret.' })),
  name: optional(text({ minLength: 1, maxLength: 253, description: 'Deprecated: use secret.' })),
  namespace: optional(text({ minLength: 1, maxLength: 253, description: 'Deprecated: use secret.' })),
});

const apiKey = object({
  when: optional(object({ header: headerName(), pattern: text({ minLength: 1, maxLength: 512 }) })),
  targetHeaders: optional(
    object({
      names: optional(list(headerName(), { minItems: 1, maxItems: 64, listType: 'set' })),
      cel: optional(text({ minLength: 1, maxLength: 1024 })),
    }),
  ),
  value: optional(valueSource()),
  targetHeader: optional(text({ maxLength: 256, pattern: HEADER, description: 'Older form of targetHeaders.' })),
  valueTemplate: optional(text({ minLength: 1, maxLength: 1024, description: 'Older form of value.template.' })),
});

const tokenTransformation = object({
  type: optional(oneOf(['ApiKey', 'AliyunSTS'], { default: 'ApiKey' })),
  failStrategy: optional(oneOf(['Allow', 'Block', 'Ignore'], { default: 'Block' })),
  disabled: optional(bool({ default: false })),
  credentialRef,
  apiKey: optional(apiKey),
});

const actions = object({
  block: optional(object({ statusCode: optional(status100()), body: optional(text()) })),
  bypass: optional(bool()),
  mcpToolPolicy: optional(mcpToolPolicy),
  headerManipulation: optional(
    object({
      set: optional(
        list(object({ name: lowerHeaderName(), value: text({ maxLength: 2048 }) }), {
          maxItems: 16,
          listKeys: ['name'],
        }),
      ),
      remove: optional(list(lowerHeaderName(), { maxItems: 16 })),
    }),
  ),
  tokenTransformation: optional(tokenTransformation),
  audit: optional(audit()),
});

const rule = object({
  name: text({ minLength: 1, maxLength: 253 }),
  match: list(matchClause, { minItems: 1, description: 'Any of these clauses; the fields of one all have to hold.' }),
  actions,
});

const input = object({
  name: text({ minLength: 1, maxLength: 63, pattern: LABEL }),
  inline: optional(textMap()),
  configMap: optional(object({ name: objectName(), namespace: optional(text({ maxLength: 63 })) })),
});

const spec = object({
  selector: labelSelector('Governed caller Pods; empty: every Pod in scope.'),
  priority: optional(int32({ default: 1000, minimum: 0, description: 'Order between profiles, lower first.' })),
  inputs: optional(list(input, { listKeys: ['name'] })),
  rules: optional(list(rule, { listKeys: ['name'] })),
  audit: optional(audit()),
});

const status = object({ observedGeneration: optional(int64()), conditions: optional(conditions()) });

export const securityProfileSchema = object({
  ...typeMeta(API_VERSION, 'SecurityProfile'),
  spec: optional(spec),
  status: optional(status),
});

export const globalSecurityProfileSchema = object({
  ...typeMeta(API_VERSION, 'GlobalSecurityProfile'),
  spec: optional(spec),
  status: optional(status),
});

export type SecurityProfile = DeepReadonly<Type.Static<typeof securityProfileSchema>>;
export type GlobalSecurityProfile = DeepReadonly<Type.Static<typeof globalSecurityProfileSchema>>;
export type SecurityProfileSpec = DeepReadonly<Type.Static<typeof spec>>;
export type SecurityRule = DeepReadonly<Type.Static<typeof rule>>;
export type MatchClause = DeepReadonly<Type.Static<typeof matchClause>>;
export type RuleActions = DeepReadonly<Type.Static<typeof actions>>;
export type McpToolPolicy = DeepReadonly<Type.Static<typeof mcpToolPolicy>>;
export type TokenTransformation = DeepReadonly<Type.Static<typeof tokenTransformation>>;
export type ApiKeySettings = DeepReadonly<Type.Static<typeof apiKey>>;
export type CredentialRef = DeepReadonly<Type.Static<typeof credentialRef>>;
