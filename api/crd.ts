import type { Kind } from './kinds.ts';
import type { StructuralSchema } from './schema-check.ts';

/** Writes the CustomResourceDefinition of a kind (crds §0.3, §0.4). */
export function customResourceDefinition(kind: Kind): object {
  const [group, version] = kind.apiVersion.split('/') as [string, string];
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${kind.plural}.${group}` },
    spec: {
      group,
      names: {
        kind: kind.kind,
        listKind: `${kind.kind}List`,
        plural: kind.plural,
        singular: kind.singular,
        ...(kind.shortNames.length === 0 ? {} : { shortNames: kind.shortNames }),
      },
      scope: kind.namespaced ? 'Namespaced' : 'Cluster',
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          ...(kind.printerColumns.length === 0 ? {} : { additionalPrinterColumns: kind.printerColumns }),
          schema: { openAPIV3Schema: openApi(topLevel(kind.schema)) },
          ...(kind.hasStatus ? { subresources: { status: {} } } : {}),
        },
      ],
    },
  };
}

/** The API server knows the type members itself and wants them plain. */
function topLevel(schema: StructuralSchema): StructuralSchema {
  return {
    ...schema,
    required: (schema.required ?? []).filter((name) => !['apiVersion', 'kind', 'metadata'].includes(name)),
    properties: {
      ...schema.properties,
      apiVersion: { type: 'string' },
      kind: { type: 'string' },
      metadata: { type: 'object' },
    },
  };
}

/** The OpenAPI form: closed objects are the API server's own default (it prunes), so `false` is left out. */
function openApi(schema: StructuralSchema): Record<string, unknown> {
  const { properties, items, additionalProperties, required, anyOf, ...rest } = schema as StructuralSchema & {
    readonly anyOf?: unknown;
  };
  return {
    ...rest,
    ...(anyOf === undefined ? {} : { anyOf }),
    ...(required === undefined || required.length === 0 ? {} : { required: [...required] }),
    ...(properties === undefined
      ? {}
      : {
          properties: Object.fromEntries(Object.entries(properties).map(([name, member]) => [name, openApi(member)])),
        }),
    ...(items === undefined ? {} : { items: openApi(items) }),
    ...(typeof additionalProperties === 'object' ? { additionalProperties: openApi(additionalProperties) } : {}),
  };
}
