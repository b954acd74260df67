import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { kindNamed } from '../../api/kinds.ts';
import type { KubeObject } from '../../api/object.ts';
import { validateObject } from '../../api/validate.ts';

const API = 'agents.kruise.io/v1alpha1';

function traffic(spec: object, kind = 'TrafficPolicy'): KubeObject {
  return { apiVersion: API, kind, metadata: { name: 'p' }, spec: { selector: {}, ...spec } };
}

function egress(...rules: object[]): KubeObject {
  return traffic({ egress: { rules } });
}

function profile(rule: object, more: object = {}): KubeObject {
  const rules = [{ name: 'r', match: [{ domains: ['a.example'] }], actions: {}, ...rule }];
  return { apiVersion: API, kind: 'SecurityProfile', metadata: { name: 'p' }, spec: { selector: {}, rules, ...more } };
}

function matching(clause: object): KubeObject {
  return profile({ match: [{ domains: ['a.example'], ...clause }] });
}

function token(transformation: object): KubeObject {
  const tokenTransformation = {
    credentialRef: { secret: { name: 's' } },
    apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
    ...transformation,
  };
  return profile({ actions: { tokenTransformation } });
}

function headers(headerManipulation: object): KubeObject {
  return profile({ actions: { headerManipulation } });
}

const CLAUSE = 'spec.rules[0].match[0]';
const TOKEN = 'spec.rules[0].actions.tokenTransformation';
const HEADERS = 'spec.rules[0].actions.headerManipulation';
const RULE = 'spec.egress.rules[0]';
const anyPeer = [{ cidr: '0.0.0.0/0' }];

const good: readonly [string, KubeObject][] = [
  ['allow a range', egress({ action: 'allow', to: [{ cidr: '10.0.0.0/8' }] })],
  ['allow one address of IPv6', egress({ action: 'reject', to: [{ cidr: '2001:db8::1' }] })],
  ['a name with a dot at its end', egress({ action: 'allow', to: [{ fqdn: 'API.Example.com.' }] })],
  [
    'service and workload',
    egress({ action: 'allow', to: [{ service: { name: 's' } }, { workload: { namespace: 'n', selector: {} } }] }),
  ],
  ['a range of ports', egress({ action: 'allow', to: anyPeer, ports: [{ protocol: 'TCP', port: 1, endPort: 2 }] })],
  ['a range of one port', egress({ action: 'allow', to: anyPeer, ports: [{ port: 443, endPort: 443 }] })],
  ['UDP is noted, not refused', egress({ action: 'allow', to: anyPeer, ports: [{ protocol: 'UDP', port: 53 }] })],
  ['empty egress', traffic({ egress: {} })],
  ['a global one', traffic({ egress: {} }, 'GlobalTrafficPolicy')],
  ['no spec at all', { apiVersion: API, kind: 'TrafficPolicy', metadata: { name: 'p' } }],
  ['no rules', { ...profile({}), spec: { selector: {} } }],
  [
    'every operator',
    traffic({
      egress: {},
      selector: {
        matchLabels: { a: '' },
        matchExpressions: [
          { key: 'a', operator: 'In', values: ['b'] },
          { key: 'a', operator: 'NotIn', values: ['b'] },
          { key: 'example.com/a', operator: 'Exists' },
          { key: 'a', operator: 'DoesNotExist', values: [] },
        ],
      },
    }),
  ],
  ['a path without a type', matching({ paths: [{ value: '/a' }] })],
  ['every form of a domain', matching({ domains: ['*', '*.example', 'a_b.Example.', '2001:db8::1', '192.0.2.1'] })],
  [
    'every test',
    matching({
      methods: ['GET'],
      schemes: ['https'],
      ports: [443],
      paths: [{ type: 'Regex', value: '^/a(b|c)$' }],
      headers: [{ name: 'X-A', value: 'x' }],
      queryParams: [{ name: 'q', type: 'Prefix', value: 'x' }],
    }),
  ],
  ['block without bypass', profile({ actions: { block: { statusCode: 451, body: '' }, bypass: false } })],
  [
    'MCP with the default action',
    profile({ actions: { mcpToolPolicy: { rules: [{ method: 'tools/call', action: 'allow' }] } } }),
  ],
  ['set and remove', headers({ set: [{ name: 'x-a', value: '{{ literal }}' }], remove: ['content-length'] })],
  ['a credential', token({})],
  ['the older form', token({ credentialRef: { kind: 'Secret', name: 's' }, apiKey: { valueTemplate: '{{.Token}}' } })],
];

for (const [name, object] of good) {
  test(`valid: ${name}`, () => {
    const found = validateObject(object);
    assert.deepEqual([...found.invalid, ...found.omitted], []);
    assert.deepEqual(kindNamed(object.kind)!.validate(object), []);
  });
}

/** An action that cannot stop a request; with `block` in its place the same conditions make an object invalid. */
const harmless = { headerManipulation: { remove: ['x-a'] } };
const mcp = { mcpToolPolicy: { rules: [{ method: 'tools/call', action: 'deny' }] } };

const omitted: readonly [KubeObject, string, RegExp][] = [
  [
    egress({ action: 'allow', to: [{ cidr: '10.0.0.300/8' }] }),
    `${RULE}.to[0].cidr`,
    /"10\.0\.0\.300\/8" is no address range/,
  ],
  [egress({ action: 'allow', ports: [{ port: 443 }] }), `${RULE}.to`, /is required/],
  [egress({ action: 'allow', to: [] }), `${RULE}.to`, /is required/],
  [
    egress({ action: 'allow', to: [{ service: { name: 'No Such' } }] }),
    `${RULE}.to[0].service.name`,
    /"No Such" can be the name of no Service/,
  ],
  [
    egress({ action: 'allow', to: [{ service: { name: '*', namespace: 'a/b' } }] }),
    `${RULE}.to[0].service.namespace`,
    /no namespace/,
  ],
  [
    egress({ action: 'allow', to: [{ workload: { namespace: 'n', selector: { 'a b': 'c' } } }] }),
    `${RULE}.to[0].workload.selector["a b"]`,
    /no valid key/,
  ],
  ...(
    [
      [{ domains: ['api.*.com'] }, 'domains[0]', /can be the host of no request/],
      [{ domains: ['a.example', '*api.example'] }, 'domains[1]', /\*\.suffix/],
      [{ domains: ['b\u00fccher.example'] }, 'domains[0]', /xn--/],
      [{ domains: ['user@a.example'] }, 'domains[0]', /no request/],
      [{ domains: ['a.example,b.example'] }, 'domains[0]', /no request/],
      [{ domains: ['a..example'] }, 'domains[0]', /no request/],
      [{ domains: ['*.'] }, 'domains[0]', /no request/],
      [{ paths: [{ value: 'admin' }] }, 'paths[0].value', /must begin with \//],
      [{ paths: [{ type: 'Exact', value: '/a?b=c' }] }, 'paths[0].value', /queryParams/],
      [{ paths: [{ type: 'Prefix', value: '/a#b' }] }, 'paths[0].value', /as it is sent/],
      [{ paths: [{ type: 'Prefix', value: '/\u00e4' }] }, 'paths[0].value', /as it is sent/],
      [{ paths: [{ type: 'Prefix', value: '/a b' }] }, 'paths[0].value', /as it is sent/],
      [{ schemes: ['https', 'wss'] }, 'schemes[1]', /"wss" is the scheme of no request/],
      [{ headers: [{ name: 'x-a', value: '\u00e4' }] }, 'headers[0].value', /must be ASCII/],
      [{ headers: [{ name: 'x-a', value: 'a\nb' }] }, 'headers[0].value', /control characters/],
      [{ headers: [{ name: 'x-a', value: 'a ' }] }, 'headers[0].value', /white space/],
      [{ headers: [{ name: 'x-a', type: 'Prefix', value: ' a' }] }, 'headers[0].value', /white space/],
      [{ headers: [{ name: 'x-a', type: 'Regex', value: '\u00e4+' }] }, 'headers[0].value', /must be ASCII/],
      [{ paths: [{ type: 'Regex', value: '/\u00e4' }] }, 'paths[0].value', /must be ASCII/],
    ] as const
  ).map(
    ([clause, path, reason]) =>
      [profile({ match: [{ domains: ['a.example'], ...clause }], actions: harmless }), `${CLAUSE}.${path}`, reason] as [
        KubeObject,
        string,
        RegExp,
      ],
  ),
];

for (const [object, path, reason] of omitted) {
  test(`refused, but only omitted when stored: ${path}`, () => {
    const found = validateObject(object);
    assert.deepEqual(found.invalid, []);
    assert.deepEqual(
      found.omitted.map((error) => error.path),
      [path],
    );
    assert.match(found.omitted[0]!.reason, reason);
  });
}

/** The same object with its one rule turned into one that rejects or stops. */
function restrictive(object: KubeObject, actions: object): KubeObject {
  const spec = structuredClone(object.spec) as {
    egress?: { rules: { action: string }[] };
    rules?: { actions: object }[];
  };
  for (const rule of spec.egress?.rules ?? []) {
    rule.action = 'reject';
  }
  for (const rule of spec.rules ?? []) {
    rule.actions = actions;
  }
  return { ...object, spec };
}

for (const [object, path, reason] of omitted) {
  test(`invalid in a rule that rejects or stops, which would be weaker without it: ${path}`, () => {
    for (const actions of [{ block: {} }, mcp, { ...mcp, bypass: false }]) {
      const found = validateObject(restrictive(object, actions));
      assert.deepEqual(found.omitted, []);
      assert.deepEqual(
        found.invalid.map((error) => error.path),
        [path],
      );
      assert.match(found.invalid[0]!.reason, reason);
    }
    if (object.kind === 'SecurityProfile') {
      assert.equal(validateObject(restrictive(object, { block: {}, bypass: true })).invalid.length, 0);
    }
  });
}

const warned: readonly [string, object, string, RegExp][] = [
  ['no action', {}, 'spec.rules[0].actions', /does nothing/],
  ['bypass: false alone', { bypass: false }, 'spec.rules[0].actions', /does nothing/],
  [
    'block beside bypass',
    { bypass: true, block: {} },
    'spec.rules[0].actions.block',
    /no effect: bypass of the same rule comes first/,
  ],
  ['an MCP policy beside bypass', { bypass: true, ...mcp }, 'spec.rules[0].actions.mcpToolPolicy', /no effect/],
  [
    'a denied method that is not governed',
    { mcpToolPolicy: { defaultAction: 'allow', rules: [{ method: 'tools/list', action: 'deny' }] } },
    'spec.rules[0].actions.mcpToolPolicy.rules[0].method',
    /only tools\/call is governed, every "tools\/list" passes/,
  ],
];

for (const [name, actions, path, reason] of warned) {
  test(`valid with a warning: ${name}`, () => {
    const found = validateObject(profile({ actions }));
    assert.deepEqual([...found.invalid, ...found.omitted], []);
    assert.deepEqual(
      found.warnings.map((warning) => warning.path),
      [path],
    );
    assert.match(found.warnings[0]!.reason, reason);
  });
}

test('no warning where every part has an effect', () => {
  const passes = { mcpToolPolicy: { rules: [{ method: 'tools/list', action: 'allow' }] } };
  for (const actions of [{ bypass: true }, { block: {} }, mcp, passes, { block: {}, bypass: false }, harmless]) {
    assert.deepEqual(validateObject(profile({ actions })).warnings, []);
  }
});

const invalid: readonly [KubeObject, string, RegExp][] = [
  [traffic({}), 'spec', /^at least one of ingress or egress must be specified$/],
  [{ ...egress(), spec: { egress: {} } }, 'spec.selector', /is required/],
  [
    traffic({ egress: {}, selector: { matchExpressions: [{ key: 'a', operator: 'Like', values: ['b'] }] } }),
    'spec.selector.matchExpressions[0].operator',
    /"Like" is not one of In, NotIn, Exists, DoesNotExist/,
  ],
  [
    traffic({ egress: {}, selector: { matchExpressions: [{ key: 'a', operator: 'In' }] } }),
    'spec.selector.matchExpressions[0].values',
    /at least one value/,
  ],
  [
    traffic({ egress: {}, selector: { matchExpressions: [{ key: 'a', operator: 'Exists', values: ['b'] }] } }),
    'spec.selector.matchExpressions[0].values',
    /must be absent/,
  ],
  [
    traffic({ egress: {}, selector: { matchLabels: { a: 'x y' } } }),
    'spec.selector.matchLabels.a',
    /"x y" is no label value/,
  ],
  [traffic({ egress: {}, priority: -1 }), 'spec.priority', /must be from 0/],
  [traffic({ ingress: {} }), 'spec.ingress', /not carried out yet/],
  [egress({ action: 'permit', to: anyPeer }), `${RULE}.action`, /"permit" is not one of allow, reject/],
  [egress({ to: anyPeer }), `${RULE}.action`, /is required/],
  [
    egress({ action: 'allow', to: [{}] }),
    `${RULE}.to[0]`,
    /^exactly one of cidr, fqdn, service, or workload must be set$/,
  ],
  [egress({ action: 'allow', to: [{ cidr: '10.0.0.0/8', fqdn: 'a.example' }] }), `${RULE}.to[0]`, /^exactly one of/],
  [
    egress({ action: 'allow', to: [{ domain: 'a.example' }] }),
    `${RULE}.to[0].domain`,
    /unknown field; known here: cidr, fqdn, service, workload/,
  ],
  [egress({ action: 'allow', to: [{ fqdn: '*.example' }] }), `${RULE}.to[0].fqdn`, /wildcards are not carried out yet/],
  [egress({ action: 'allow', to: [{ fqdn: 'a.example:443' }] }), `${RULE}.to[0].fqdn`, /host name alone/],
  [egress({ action: 'allow', to: [{ fqdn: '192.0.2.1' }] }), `${RULE}.to[0].fqdn`, /use cidr/],
  [egress({ action: 'allow', to: anyPeer, from: anyPeer }), `${RULE}.from`, /not carried out yet/],
  [
    egress({ action: 'allow', to: anyPeer, ports: [{ endPort: 9 }] }),
    `${RULE}.ports[0]`,
    /^endPort requires port to be set$/,
  ],
  [
    egress({ action: 'allow', to: anyPeer, ports: [{ port: 9, endPort: 8 }] }),
    `${RULE}.ports[0]`,
    /^endPort must be greater than or equal to port$/,
  ],
  [egress({ action: 'allow', to: anyPeer, ports: [{ port: 0 }] }), `${RULE}.ports[0].port`, /must be from 1 to 65535/],
  [
    egress({ action: 'allow', to: anyPeer, ports: [{ protocol: 'ICMP', port: 8 }] }),
    `${RULE}.ports[0].port`,
    /ICMP has no ports/,
  ],
  [matching({ domains: ['a.example:443'] }), `${CLAUSE}.domains[0]`, /must not have a port/],
  [matching({ domains: ['a.example', 'https://b.example/x'] }), `${CLAUSE}.domains[1]`, /without scheme/],
  [matching({ domains: [] }), `${CLAUSE}.domains`, /at least 1 item$/],
  [matching({ domains: [''] }), `${CLAUSE}.domains[0]`, /must not be empty/],
  [matching({ paths: [{ type: 'Regex', value: '(' }] }), `${CLAUSE}.paths[0].value`, /invalid regular expression/],
  [
    matching({ headers: [{ name: 'a', type: 'Regex', value: '(?=x)' }] }),
    `${CLAUSE}.headers[0].value`,
    /invalid regular expression/,
  ],
  [
    matching({ queryParams: [{ name: 'a', type: 'Regex', value: 'a{2000}' }] }),
    `${CLAUSE}.queryParams[0].value`,
    /invalid regular expression/,
  ],
  [matching({ host: 'x' }), `${CLAUSE}.host`, /unknown field/],
  [
    profile({}, { rules: [1, 2].map(() => ({ name: 'r', match: [{ domains: ['*'] }], actions: {} })) }),
    'spec.rules[1].name',
    /is the same as in spec\.rules\[0\]/,
  ],
  [profile({}, { inputs: [] }), 'spec.inputs', /not carried out yet/],
  [
    profile({ actions: { audit: [{ name: 'a', webhook: { url: 'u', timeout: '100ms' } }] } }),
    'spec.rules[0].actions.audit[0].webhook.timeout',
    /^timeout must be between 500ms and 30s$/,
  ],
  [
    profile({ actions: { audit: [{ name: 'a', webhook: { url: 'u' } }] } }),
    'spec.rules[0].actions.audit',
    /not carried out yet/,
  ],
  [profile({ actions: { block: { statusCode: 99 } } }), 'spec.rules[0].actions.block.statusCode', /from 100 to 599/],
  [headers({}), HEADERS, /a header in set or in remove/],
  [headers({ set: [{ name: 'X-A', value: '' }] }), `${HEADERS}.set[0].name`, /does not match/],
  [headers({ set: [{ name: 'host', value: 'x' }] }), `${HEADERS}.set[0].name`, /must not be host/],
  [headers({ remove: ['x-envoy-retry-on'] }), `${HEADERS}.remove[0]`, /x-envoy/],
  [headers({ set: [{ name: 'te', value: 'x' }] }), `${HEADERS}.set[0].name`, /belongs to one connection/],
  [headers({ set: [{ name: 'content-length', value: '1' }] }), `${HEADERS}.set[0].name`, /can only be removed/],
  [headers({ set: [{ name: 'x-a', value: 'a\nb' }] }), `${HEADERS}.set[0].value`, /line break/],
  [headers({ set: [{ name: 'x-a', value: '1' }], remove: ['x-a'] }), `${HEADERS}.remove[0]`, /already in .*set\[0\]/],
  [headers({ set: ['1', '2'].map((value) => ({ name: 'x-a', value })) }), `${HEADERS}.set[1].name`, /is the same as/],
  [headers({ remove: ['x-a', 'x-a'] }), `${HEADERS}.remove[1]`, /already in/],
  [token({ credentialRef: {} }), `${TOKEN}.credentialRef`, /exactly one of/],
  [
    token({ credentialRef: { secret: { name: 's' }, kind: 'Secret', name: 't' } }),
    `${TOKEN}.credentialRef`,
    /exactly one of/,
  ],
  [token({ credentialRef: { name: 't' } }), `${TOKEN}.credentialRef.kind`, /is required/],
  [
    token({ credentialRef: { credentialProvider: { name: 'p' } } }),
    `${TOKEN}.credentialRef.credentialProvider`,
    /not carried out yet/,
  ],
  [token({ type: 'AliyunSTS' }), `${TOKEN}.type`, /"AliyunSTS" is not carried out yet/],
  [token({ failStrategy: 'Ignore' }), `${TOKEN}.failStrategy`, /"Ignore" is not carried out yet/],
  [
    { ...token({}), spec: JSON.parse(JSON.stringify(token({ apiKey: undefined }).spec)) },
    `${TOKEN}.apiKey`,
    /is required with type ApiKey/,
  ],
  [token({ apiKey: {} }), `${TOKEN}.apiKey.valueTemplate`, /is required without targetHeaders/],
  [
    token({ apiKey: { targetHeader: 'Host', valueTemplate: '{{.Token}}' } }),
    `${TOKEN}.apiKey.targetHeader`,
    /must not be host/,
  ],
  [token({ apiKey: { targetHeaders: { names: ['a'] } } }), `${TOKEN}.apiKey.value`, /is required with targetHeaders/],
  [
    token({ apiKey: { targetHeaders: {}, value: { template: 'x' } } }),
    `${TOKEN}.apiKey.targetHeaders`,
    /exactly one of names and cel/,
  ],
  [
    token({ apiKey: { targetHeaders: { names: ['A', 'a'] }, value: { template: 'x' } } }),
    `${TOKEN}.apiKey.targetHeaders.names[1]`,
    /named twice/,
  ],
  [
    token({ apiKey: { targetHeaders: { names: ['a'] }, value: { template: '{{ .Pod.Name }}' } } }),
    `${TOKEN}.apiKey.value.template`,
    /only literal text and \{\{ \.Token \}\}/,
  ],
  [
    token({ apiKey: { targetHeaders: { names: ['a'] }, value: { template: 'a\r{{ .Token }}' } } }),
    `${TOKEN}.apiKey.value.template`,
    /line break/,
  ],
  [
    token({ apiKey: { targetHeaders: { names: ['a'] }, value: { template: 'x', cel: 'y' } } }),
    `${TOKEN}.apiKey.value.cel`,
    /not carried out yet/,
  ],
  [
    token({ apiKey: { targetHeaders: { names: ['a'] }, value: { value: 'x' } } }),
    `${TOKEN}.apiKey.value.value`,
    /not carried out yet/,
  ],
  [
    token({ apiKey: { when: { header: 'a', pattern: 'b' }, valueTemplate: 'x' } }),
    `${TOKEN}.apiKey.when`,
    /not carried out yet/,
  ],
];

for (const [object, path, reason] of invalid) {
  test(`invalid: ${path} ${reason}`, () => {
    const found = validateObject(object).invalid;
    const hit = found.find((error) => error.path === path && reason.test(error.reason));
    assert.ok(hit !== undefined, JSON.stringify(found));
    assert.ok(kindNamed(object.kind)!.validate(object).length > 0);
  });
}

test('an object that is none, or of no known kind, is invalid and throws nothing', () => {
  for (const value of [
    null,
    1,
    'x',
    [],
    {},
    { kind: 'Nope' },
    { kind: 7 },
    { kind: 'TrafficPolicy' },
    { kind: 'Sandbox', metadata: 'x', spec: 5 },
  ]) {
    assert.ok(validateObject(value).invalid.length > 0, JSON.stringify(value));
  }
});

test('metadata: names, namespaces, labels, unknown members', () => {
  const check = (metadata: object, kind = 'TrafficPolicy') =>
    validateObject({ ...traffic({ egress: {} }, kind), metadata }).invalid.map(({ path }) => path);
  assert.deepEqual(check({}), ['metadata.name']);
  assert.deepEqual(check({ name: 'A_b' }), ['metadata.name']);
  assert.deepEqual(check({ name: 'a', namespace: 'x.y' }), ['metadata.namespace']);
  assert.deepEqual(check({ name: 'a', namespace: 'x' }, 'GlobalTrafficPolicy'), ['metadata.namespace']);
  assert.deepEqual(check({ name: 'a', lables: {} }), ['metadata.lables']);
  assert.deepEqual(check({ name: 'a', labels: { 'a/b/c': 'x', d: true, e: '-' } }), [
    'metadata.labels["a/b/c"]',
    'metadata.labels.d',
    'metadata.labels.e',
  ]);
  assert.deepEqual(check({ name: 'a', annotations: { x: 1 } }), ['metadata.annotations.x']);
});

test('a status never makes an object invalid', () => {
  assert.deepEqual(validateObject({ ...egress(), status: 'odd' }).invalid, []);
});

test('errors of a Secret never hold a value', () => {
  const secret = {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 's' },
    data: { apiKey: 'hunter2!' },
    stringData: { a: 5151 },
  };
  const first = validateObject(secret).invalid;
  const second = validateObject({ ...secret, stringData: {} }).invalid;
  assert.deepEqual(
    second.map(({ path }) => path),
    ['data.apiKey'],
  );
  assert.ok(first.length > 0 && !/hunter2|5151/.test(JSON.stringify([first, second])));
});

test.run();
