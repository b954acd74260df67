import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { parseAllDocuments } from 'yaml';
import { findKind, KINDS, kindNamed } from '../../api/kinds.ts';
import { crdsYaml } from '../../cli/crds.ts';

interface Crd {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly scope: string;
    readonly names: Record<string, unknown>;
    readonly versions: readonly {
      readonly name: string;
      readonly subresources?: object;
      readonly additionalPrinterColumns?: readonly { name: string }[];
      readonly schema: { readonly openAPIV3Schema: Node };
    }[];
  };
}

interface Node {
  readonly [keyword: string]: unknown;
  readonly type?: string;
  readonly properties?: Record<string, Node>;
  readonly items?: Node;
  readonly additionalProperties?: unknown;
}

const crds = parseAllDocuments(crdsYaml()).map((document) => document.toJS() as Crd);

/** Every node of a schema with its path. */
function nodes(node: Node, path = ''): [string, Node][] {
  const more = typeof node.additionalProperties === 'object' ? [node.additionalProperties as Node] : [];
  return [
    [path, node],
    ...Object.entries(node.properties ?? {}).flatMap(([name, member]) => nodes(member, `${path}.${name}`)),
    ...(node.items === undefined ? [] : nodes(node.items, `${path}[]`)),
    ...more.flatMap((member) => nodes(member, `${path}{}`)),
  ];
}

test('one CRD for each of our kinds, with its names', () => {
  assert.deepEqual(
    crds.map((crd) => [crd.metadata.name, crd.spec.scope, crd.spec.names['shortNames']]),
    [
      ['sandboxes.agents.kruise.io', 'Namespaced', ['sbx']],
      ['trafficpolicies.agents.kruise.io', 'Namespaced', ['tp']],
      ['globaltrafficpolicies.agents.kruise.io', 'Cluster', ['gtp']],
      ['securityprofiles.agents.kruise.io', 'Namespaced', ['sp']],
      ['globalsecurityprofiles.agents.kruise.io', 'Cluster', ['gsp']],
    ],
  );
});

test('schemas are structural: a type everywhere, no closed objects, no foreign keywords', () => {
  const allowed = new Set([
    ...['type', 'format', 'description', 'default', 'enum', 'pattern', 'required', 'properties', 'items'],
    ...['additionalProperties', 'minLength', 'maxLength', 'minimum', 'maximum', 'minItems', 'maxItems'],
    ...['minProperties', 'maxProperties', 'anyOf', 'x-kubernetes-int-or-string', 'x-kubernetes-list-type'],
    ...['x-kubernetes-list-map-keys', 'x-kubernetes-map-type', 'x-kubernetes-preserve-unknown-fields'],
    'x-kubernetes-validations',
  ]);
  for (const crd of crds) {
    for (const [path, node] of nodes(crd.spec.versions[0]!.schema.openAPIV3Schema)) {
      const where = `${crd.metadata.name}${path}`;
      const free = node['x-kubernetes-int-or-string'] === true || node['x-kubernetes-preserve-unknown-fields'] === true;
      assert.ok(node.type !== undefined || free, `${where} has no type`);
      assert.notEqual(node.additionalProperties, false, where);
      assert.deepEqual(
        Object.keys(node).filter((keyword) => !allowed.has(keyword)),
        [],
        where,
      );
      for (const key of (node['x-kubernetes-list-map-keys'] ?? []) as string[]) {
        assert.ok((node.items!['required'] as string[]).includes(key), `${where}: list key ${key} must be required`);
      }
    }
  }
});

test('rules, defaults and limits are where the specification has them', () => {
  const schema = (kind: string) =>
    new Map(nodes(crds.find((crd) => crd.spec.names['kind'] === kind)!.spec.versions[0]!.schema.openAPIV3Schema));
  const traffic = schema('TrafficPolicy');
  assert.deepEqual(traffic.get('.spec')!['x-kubernetes-validations'], [
    { rule: 'has(self.ingress) || has(self.egress)', message: 'at least one of ingress or egress must be specified' },
  ]);
  assert.equal((traffic.get('.spec.egress.rules[].to[]')!['x-kubernetes-validations'] as object[]).length, 1);
  assert.equal((traffic.get('.spec.ingress.rules[].ports[]')!['x-kubernetes-validations'] as object[]).length, 2);
  assert.equal(traffic.get('.spec.priority')!['default'], 1000);
  assert.equal(traffic.get('.spec.egress.rules')!['maxItems'], 50);
  assert.equal(traffic.get('.status.conditions')!['maxItems'], 20);
  assert.equal(traffic.get('')!['required'], undefined);
  const profile = schema('GlobalSecurityProfile');
  assert.equal(profile.get('.spec.rules[].actions.block.statusCode')!['default'], 403);
  assert.equal(profile.get('.spec.rules[].match[].paths[].type')!['default'], 'Prefix');
  assert.equal(profile.get('.spec.rules[].actions.tokenTransformation.apiKey.targetHeaders.names')!['maxItems'], 64);
  assert.equal(profile.get('.spec.audit[].webhook.timeout')!['default'], '2s');
  const sandbox = schema('Sandbox');
  assert.deepEqual(sandbox.get('')!['required'], ['spec']);
  assert.equal(sandbox.get('.spec.template')!['x-kubernetes-preserve-unknown-fields'], true);
  assert.equal(sandbox.get('.spec.template')!.type, undefined);
  assert.deepEqual(crds[0]!.spec.versions[0]!.subresources, { status: {} });
});

test('kinds are found by every name that people use', () => {
  for (const name of ['Sandbox', 'sandbox', 'SANDBOXES', 'sbx']) {
    assert.equal(findKind(name)!.kind, 'Sandbox');
  }
  assert.equal(findKind('po')!.kind, 'Pod');
  assert.equal(findKind('nothing'), undefined);
  assert.equal(findKind('constructor'), undefined);
  assert.equal(kindNamed('sandbox'), undefined);
  const names = KINDS.flatMap((kind) => [kind.plural, kind.singular, ...kind.shortNames]);
  assert.equal(new Set(names).size, names.length);
});

test('defaults of a policy are those of the specification, and applying them twice changes nothing', () => {
  const kind = kindNamed('SecurityProfile')!;
  const rules = [
    {
      name: 'r',
      match: [{ domains: ['*'], paths: [{ value: '/' }] }],
      actions: { block: {}, tokenTransformation: {} },
    },
  ];
  const object = {
    apiVersion: kind.apiVersion,
    kind: 'SecurityProfile',
    metadata: { name: 'p' },
    spec: { selector: {}, rules },
  };
  const once = kind.defaults(object);
  assert.deepEqual(once.spec, {
    selector: {},
    priority: 1000,
    rules: [
      {
        name: 'r',
        match: [{ domains: ['*'], paths: [{ type: 'Prefix', value: '/' }] }],
        actions: {
          block: { statusCode: 403 },
          tokenTransformation: { type: 'ApiKey', failStrategy: 'Block', disabled: false },
        },
      },
    ],
  });
  assert.deepEqual(kind.defaults(once), once);
});

test.run();
