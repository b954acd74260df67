import * as assert from 'node:assert/strict';
import fc from 'fast-check';
import { Value } from 'typebox/value';
import { test } from 'uvu';
import { CEL_RULES, celRule } from '../../api/cel-rules.ts';
import { KINDS } from '../../api/kinds.ts';
import { int32, list, object, oneOf, optional, text, textMap, time } from '../../api/schema.ts';
import { checkSchema, type StructuralSchema, structural, withDefaults } from '../../api/schema-check.ts';

const sample = structural(
  object({
    name: text({ minLength: 1, maxLength: 3 }),
    kind: optional(oneOf(['allow', 'reject'], { default: 'allow' })),
    size: optional(int32({ minimum: 1, maximum: 9 })),
    at: optional(time()),
    labels: optional(textMap({ maxProperties: 1 })),
    parts: optional(
      list(object({ id: text(), mode: optional(text({ default: 'x' })) }), { maxItems: 2, listKeys: ['id'] }),
    ),
    set: optional(list(text(), { listType: 'set' })),
  }),
);

const cases: readonly [unknown, string, string][] = [
  ['x', '', 'must be an object, not a string'],
  [null, '', 'must be an object, not null'],
  [{}, 'name', 'is required'],
  [{ name: '' }, 'name', 'must not be empty'],
  [{ name: 'abcd' }, 'name', 'must have at most 3 characters, has 4'],
  [{ name: 3 }, 'name', 'must be a string, not a number'],
  [{ name: 'a', kind: 'permit' }, 'kind', '"permit" is not one of allow, reject'],
  [{ name: 'a', size: 0 }, 'size', 'must be from 1 to 9, is 0'],
  [{ name: 'a', size: 1.5 }, 'size', 'must be an integer, not a number'],
  [
    { name: 'a', at: '2026-02-31T00:00:00Z' },
    'at',
    '"2026-02-31T00:00:00Z" is no RFC 3339 time such as 2030-01-31T12:00:00Z',
  ],
  [{ name: 'a', labels: { a: 1 } }, 'labels.a', 'must be a string, not a number'],
  [{ name: 'a', labels: { a: 'x', b: 'y' } }, 'labels', 'must have at most 1 entries'],
  [{ name: 'a', sise: 1 }, 'sise', 'is an unknown field; did you mean size?'],
  [{ name: 'a', zzz: 1 }, 'zzz', 'is an unknown field; known here: at, kind, labels, name, parts, set, size'],
  [
    { name: 'a', parts: [{ id: 'a' }, { id: 'a' }] },
    'parts[1].id',
    'is the same as in parts[0]; each must be different',
  ],
  [{ name: 'a', parts: [{ id: 'a', 'x/y': 1 }] }, 'parts[0]["x/y"]', 'is an unknown field; known here: id, mode'],
  [{ name: 'a', set: ['a', 'b', 'a'] }, 'set[2]', 'is the same as in set[0]; each must be different'],
];

for (const [value, path, reason] of cases) {
  test(`${JSON.stringify(value)}: ${reason}`, () => {
    assert.deepEqual(checkSchema(sample, value), [{ path, reason }]);
  });
}

test('a good value has no errors and several bad members have one each', () => {
  assert.deepEqual(
    checkSchema(sample, { name: 'a', kind: 'reject', at: '2026-02-28T00:00:00.5+02:00', set: ['a'] }),
    [],
  );
  assert.equal(checkSchema(sample, { name: '', kind: 'x', size: 'y' }).length, 3);
});

test('defaults fill what is absent, at any depth, and nothing that is set', () => {
  const before = { name: 'a', parts: [{ id: 'a' }, { id: 'b', mode: 'y' }, 'odd'] };
  assert.deepEqual(withDefaults(sample, before), {
    name: 'a',
    parts: [{ id: 'a', mode: 'x' }, { id: 'b', mode: 'y' }, 'odd'],
    kind: 'allow',
  });
  assert.deepEqual(before.parts[0], { id: 'a' });
  assert.deepEqual(withDefaults(sample, { kind: null }), { kind: null });
});

const TEXTS = ['a', 'x-a', 'https', 'api.example.com', '2s', 'Secret', ''];

/** Values that fit a schema; with `faults` members may be anything, and objects may have one more. */
function fitting(schema: StructuralSchema, faults: boolean): fc.Arbitrary<unknown> {
  const odd = fc.constantFrom<unknown>(
    null,
    true,
    0,
    -1,
    1.5,
    'x',
    '',
    [],
    {},
    2 ** 31,
    99_999_999_999,
    'x'.repeat(3000),
  );
  const good = wellFormed(schema, faults);
  return faults ? fc.oneof({ weight: 30, arbitrary: good }, { weight: 1, arbitrary: odd }) : good;
}

function wellFormed(schema: StructuralSchema, faults: boolean): fc.Arbitrary<unknown> {
  if (schema.enum !== undefined) {
    return fc.constantFrom(...schema.enum);
  }
  switch (schema.type) {
    case 'string':
      return fc.constantFrom(...TEXTS.filter((text) => checkSchema(schema, text).length === 0));
    case 'integer':
      return fc.integer({ min: schema.minimum ?? -5, max: schema.maximum ?? 700 });
    case 'boolean':
      return fc.boolean();
    case 'array': {
      const unique = schema['x-kubernetes-list-type'] === 'map' || schema['x-kubernetes-list-type'] === 'set';
      const maxLength = unique && !faults ? 1 : 3;
      return fc.array(fitting(schema.items!, faults), { minLength: faults ? 0 : (schema.minItems ?? 0), maxLength });
    }
    case 'object': {
      const members = Object.fromEntries(
        Object.entries(schema.properties ?? {}).map(([name, member]) => [name, fitting(member, faults)]),
      );
      const map = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
      if (map !== undefined) {
        return fc.dictionary(fc.string({ maxLength: 5 }), fitting(map, faults), { maxKeys: 2 });
      }
      const record = fc.record(members, { requiredKeys: [...(schema.required ?? [])] });
      const more = fc.record({ ...members, unknown: fc.constant(1) }, { requiredKeys: [] });
      return faults ? fc.oneof({ weight: 20, arbitrary: record }, { weight: 1, arbitrary: more }) : record;
    }
    default:
      return fc.constantFrom<unknown>(1, 'x');
  }
}

/** The schema without what plain JSON Schema does not say. */
function plain(schema: StructuralSchema): StructuralSchema {
  const { 'x-kubernetes-validations': _rules, 'x-kubernetes-list-type': _type, format, ...rest } = schema;
  const int32 =
    format === 'int32'
      ? {
          minimum: Math.max(rest.minimum ?? -(2 ** 31), -(2 ** 31)),
          maximum: Math.min(rest.maximum ?? 2 ** 31 - 1, 2 ** 31 - 1),
        }
      : {};
  return {
    ...rest,
    ...int32,
    ...(schema.properties === undefined
      ? {}
      : { properties: Object.fromEntries(Object.entries(schema.properties).map(([k, v]) => [k, plain(v)])) }),
    ...(schema.items === undefined ? {} : { items: plain(schema.items) }),
    ...(typeof schema.additionalProperties === 'object'
      ? { additionalProperties: plain(schema.additionalProperties) }
      : {}),
  };
}

for (const kind of KINDS.filter((one) => one.custom && !one.kind.startsWith('Global'))) {
  test(`the check of ${kind.kind} agrees with TypeBox's own`, () => {
    const schema = plain(kind.schema.properties!['spec']!);
    let good = 0;
    fc.assert(
      fc.property(fc.oneof(fitting(schema, true), fitting(schema, false)), (value) => {
        const expected = Value.Check(schema as never, value);
        good += Number(expected);
        assert.equal(checkSchema(schema, value).length === 0, expected, JSON.stringify(value));
      }),
      { numRuns: 300 },
    );
    assert.ok(good > 50 && good < 290, `${good} good values of 300`);
  });
}

test('every rule of the CRDs is written with its message, and found by its text', () => {
  for (const rule of Object.values(CEL_RULES)) {
    assert.equal(celRule(rule.rule), rule);
  }
});

test.run();
