import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { fieldTable, notedFields, refusedFields } from '../../api/field-classes.ts';
import { kindNamed } from '../../api/kinds.ts';
import { podTemplateSchema } from '../../api/pod.ts';
import { memberPath, type StructuralSchema, structural } from '../../api/schema-check.ts';

const KINDS = ['Sandbox', 'TrafficPolicy', 'GlobalTrafficPolicy', 'SecurityProfile', 'GlobalSecurityProfile', 'Pod'];

/** Every pattern of a schema, with whether something may be below it. */
function patterns(schema: StructuralSchema, path: string): { path: string; leaf: boolean }[] {
  const below =
    schema.items !== undefined
      ? patterns(schema.items, `${path}[]`)
      : Object.entries(schema.properties ?? {}).flatMap(([name, member]) => patterns(member, memberPath(path, name)));
  return [{ path, leaf: below.length === 0 }, ...below];
}

function schemaOf(kind: string): { path: string; leaf: boolean }[] {
  const spec = kindNamed(kind)!.schema.properties!['spec']!;
  const own = patterns(spec, 'spec');
  return kind !== 'Sandbox'
    ? own
    : [
        ...own.filter(({ path }) => path !== 'spec.template'),
        ...patterns(structural(podTemplateSchema), 'spec.template'),
      ];
}

function ancestors(path: string): string[] {
  const found = [path];
  for (let at = path.length - 1; at > 0; at -= 1) {
    if (path[at] === '.' || path[at] === '[') {
      found.push(path.slice(0, at));
    }
  }
  return found;
}

for (const kind of KINDS) {
  test(`every field of ${kind} has a class`, () => {
    const table = fieldTable(kind)!;
    const without = schemaOf(kind)
      .filter(({ leaf }) => leaf)
      .filter(({ path }) => {
        const [own, ...above] = ancestors(path);
        return (
          table[own!] === undefined && !above.some((one) => (table[one]?.class ?? 'carried out') !== 'carried out')
        );
      });
    // An object without members of its own has nothing to carry out.
    assert.deepEqual(
      without.map(({ path }) => path),
      [],
    );
  });

  test(`every entry of the table of ${kind} is a field`, () => {
    const known = new Set(schemaOf(kind).map(({ path }) => path));
    const stale = Object.keys(fieldTable(kind)!).filter((path) => !known.has(path));
    assert.deepEqual(
      stale.filter((path) => kind === 'Sandbox' || !path.startsWith('metadata')),
      [],
    );
  });

  test(`what ${kind} refuses or notes says why`, () => {
    for (const [path, entry] of Object.entries(fieldTable(kind)!)) {
      const reasons = [entry, ...Object.values(entry.values ?? {})].filter((one) => one.class !== 'carried out');
      assert.ok(
        reasons.every((one) => one.why.length > 10),
        path,
      );
    }
  });
}

test('a refused field, a refused value and what is below are found with their paths', () => {
  const errors = refusedFields('SecurityProfile', {
    audit: [{ name: 'x' }],
    rules: [
      { actions: {} },
      { actions: { tokenTransformation: { failStrategy: 'Allow', type: 'ApiKey', apiKey: { value: { cel: '1' } } } } },
    ],
  });
  assert.deepEqual(
    errors.map(({ path }) => path),
    [
      'spec.audit',
      'spec.rules[1].actions.tokenTransformation.failStrategy',
      'spec.rules[1].actions.tokenTransformation.apiKey.value.cel',
    ],
  );
  assert.match(errors[1]!.reason, /^"Allow" is not carried out yet: /);
});

test('noted fields of a Sandbox name the container', () => {
  const noted = notedFields('Sandbox', {
    paused: false,
    template: { spec: { containers: [{ name: 'a', image: 'x', command: ['y'] }], nodeSelector: { a: 'b' } } },
  });
  assert.deepEqual(
    noted.map(({ path }) => path),
    ['spec.template.spec.containers[0].image', 'spec.template.spec.nodeSelector'],
  );
});

test('false is not refused where true is', () => {
  const spec = (value: boolean) => ({ template: { spec: { containers: [], hostNetwork: value } } });
  assert.deepEqual(refusedFields('Sandbox', spec(false)), []);
  assert.deepEqual(
    refusedFields('Sandbox', spec(true)).map(({ path }) => path),
    ['spec.template.spec.hostNetwork'],
  );
});

test('malformed values do not stop the walk', () => {
  for (const spec of [null, 'x', [1], { rules: 'x', audit: null }, { template: 'str' }]) {
    for (const kind of KINDS) {
      refusedFields(kind, spec);
      notedFields(kind, spec);
    }
  }
});

test.run();
