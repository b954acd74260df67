import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { contents, directory, sandgate } from './support.ts';

/** `apply` refuses what is bad with file, object, field and reason, and then stores nothing (D2). */
const bad = suite('bad manifests');

const GOOD = `apiVersion: v1
kind: ConfigMap
metadata: { name: good }
data: { a: b }
---
`;

function trafficPolicy(rule: string): string {
  return `apiVersion: agents.kruise.io/v1alpha1
kind: TrafficPolicy
metadata: { name: egress, namespace: team }
spec:
  selector: { matchLabels: { app: demo } }
  egress:
    rules: [${rule}]
`;
}

function securityProfile(rule: string): string {
  return `apiVersion: agents.kruise.io/v1alpha1
kind: SecurityProfile
metadata: { name: requests }
spec:
  selector: { matchLabels: { app: demo } }
  rules: [${rule}]
`;
}

/** Manifest, object, field, and what the reason must say. */
const CASES: Readonly<Record<string, readonly [manifest: string, object: string, field: string, reason: RegExp]>> = {
  'a wrong regex': [
    securityProfile(
      '{ name: r, match: [{ domains: [a.test], paths: [{ type: Regex, value: "(" }] }], actions: { block: {} } }',
    ),
    'SecurityProfile default/requests',
    'spec.rules[0].match[0].paths[0].value',
    /regular expression|missing/i,
  ],
  'an unknown field': [
    securityProfile('{ name: r, match: [{ domains: [a.test], hosts: [b.test] }], actions: { block: {} } }'),
    'SecurityProfile default/requests',
    'spec.rules[0].match[0].hosts',
    /unknown field/,
  ],
  'an unknown peer': [
    trafficPolicy('{ action: allow, to: [{ planet: mars }] }'),
    'TrafficPolicy team/egress',
    'spec.egress.rules[0].to[0].planet',
    /unknown field/,
  ],
  'a domain with a port': [
    securityProfile('{ name: r, match: [{ domains: ["a.test:8443"] }], actions: { block: {} } }'),
    'SecurityProfile default/requests',
    'spec.rules[0].match[0].domains[0]',
    /port/,
  ],
  'a cidr that cannot be parsed': [
    trafficPolicy('{ action: allow, to: [{ cidr: 10.0.0.0/40 }] }'),
    'TrafficPolicy team/egress',
    'spec.egress.rules[0].to[0].cidr',
    /10\.0\.0\.0\/40/,
  ],
  'a rule without peers': [
    trafficPolicy('{ action: allow }'),
    'TrafficPolicy team/egress',
    'spec.egress.rules[0].to',
    /./,
  ],
  'an unknown kind': [
    'apiVersion: v1\nkind: Planet\nmetadata: { name: mars }\n',
    'Planet default/mars',
    'kind',
    /unknown kind/,
  ],
  'no object at all': ['just a text\n', 'object default/?', 'must be an object', /^$/],
};

for (const [name, [manifest, object, field, reason]] of Object.entries(CASES)) {
  bad(`${name} is refused by file, object, field and reason, and nothing is stored`, async () => {
    const dir = await directory({ 'in/good.yaml': GOOD, 'in/bad.yaml': manifest, 'plane/sandgate.yaml': '' });
    try {
      const ran = await sandgate(['apply', '-f', join(dir, 'in'), '--dir', join(dir, 'plane')]);
      assert.is(ran.status, 1, ran.stderr);
      assert.is(ran.stdout, '');
      const [line = '', ...more] = ran.stderr.trimEnd().split('\n');
      assert.equal(more, [], 'one line for one mistake');
      const start = `error: ${join(dir, 'in', 'bad.yaml')}:1: ${object}: ${field}`;
      assert.is(line.slice(0, start.length), start);
      assert.match(line.slice(start.length), reason);
      assert.equal(Object.keys(await contents(join(dir, 'plane'))), ['sandgate.yaml']);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
}

bad('every mistake has its own line, with the line at which its document begins', async () => {
  const input = `${GOOD}${trafficPolicy('{ action: allow, to: [{ planet: mars }] }')}---\n${trafficPolicy('{ action: allow, to: [{ cidr: x }] }')}`;
  const dir = await directory();
  try {
    const { status, stderr } = await sandgate(['apply', '-f', '-', '--dir', dir], { input });
    assert.is(status, 1);
    const starts = stderr
      .trimEnd()
      .split('\n')
      .map((line) => line.split(': ').slice(1, 4).join(': '));
    assert.equal(starts, [
      'standard input:5: TrafficPolicy team/egress: spec.egress.rules[0].to[0].planet',
      'standard input:13: TrafficPolicy team/egress: spec.egress.rules[0].to[0].cidr',
    ]);
    assert.equal(await contents(dir), {});
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

bad('text that is no YAML is refused by file, and never quoted', async () => {
  const dir = await directory();
  try {
    for (const value of ['"hunter2"hunter3\n  hunter4 hunter5', '|hunter2\n    x', '*hunter2', '[hunter2']) {
      const input = `apiVersion: v1\nkind: Secret\nmetadata: { name: key }\nstringData:\n  key: ${value}\n`;
      const { status, stdout, stderr } = await sandgate(['apply', '-f', '-', '--dir', dir], { input });
      assert.is(status, 1);
      assert.match(stderr, /^error: standard input(:[0-9]+)?: not valid YAML/);
      assert.not.match(stdout + stderr, /hunter/);
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

bad.run();
