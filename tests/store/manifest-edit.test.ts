import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { stringify } from 'yaml';
import { parseManifest } from '../../store/manifest.ts';
import { editManifest, removeDocument } from '../../store/manifest-edit.ts';
import { kinds, object } from './support.ts';

const HEAD = 'apiVersion: agents.kruise.io/v1alpha1\nkind: Sandbox\nmetadata:\n  name: a\n';

/** The text after `change` of the first object's spec. */
function edited(spec: string, change: (spec: never) => unknown): string {
  const text = HEAD + spec;
  const before = parseManifest(text, kinds).objects[0]!.form;
  const after = { ...before, spec: change(structuredClone(before.spec) as never) };
  return editManifest(text, 0, before, after, kinds);
}

const cases: [string, string, (spec: never) => unknown, string][] = [
  [
    'a value in place',
    "spec:\n  a:   'x'   # why\n  b: 1\n",
    (s: { a: string }) => ({ ...s, a: 'y' }),
    'spec:\n  a:   y   # why\n  b: 1\n',
  ],
  [
    'a new key',
    'spec:\n  a: 1 # one\n\n# end\n',
    (s: object) => ({ ...s, b: [1] }),
    'spec:\n  a: 1 # one\n  b:\n    - 1\n\n# end\n',
  ],
  [
    'a key taken out',
    'spec:\n  # about a\n  a: {x: 1}\n  b: 2 # two\n',
    () => ({ b: 2 }),
    'spec:\n  # about a\n  b: 2 # two\n',
  ],
  [
    'an item taken out',
    'spec:\n  l:\n  - n: 1 # one\n  # two\n  - n: 2\n  - n: 3\n',
    () => ({ l: [{ n: 1 }, { n: 3 }] }),
    'spec:\n  l:\n  - n: 1 # one\n  # two\n  - n: 3\n',
  ],
  [
    'an item put in',
    'spec:\n    l:\n      - a\n      - c # last\n',
    () => ({ l: ['a', 'b', 'c'] }),
    'spec:\n    l:\n      - a\n      - b\n      - c # last\n',
  ],
  ['a text that must be quoted', 'spec:\n  a: x\n', () => ({ a: 'yes: no #' }), 'spec:\n  a: "yes: no #"\n'],
  ['a file without a last newline', 'spec:\n  a: 1', (s: object) => ({ ...s, b: 2 }), 'spec:\n  a: 1\n  b: 2\n'],
  [
    'a block text',
    'spec:\n  a: |\n    one\n    two\n  b: 1\n',
    (s: object) => ({ ...s, b: 2 }),
    'spec:\n  a: |\n    one\n    two\n  b: 2\n',
  ],
  [
    'lines that end as on Windows',
    'spec:\r\n  a: 1\r\n',
    (s: object) => ({ ...s, b: 2 }),
    'spec:\r\n  a: 1\r\n  b: 2\r\n',
  ],
] as never;

for (const [title, text, change, want] of cases) {
  test(`keeps the layout: ${title}`, () => {
    assert.is(edited(text, change), HEAD + want);
  });
}

test('aliases, flow maps and odd keys keep their meaning at the cost of layout', () => {
  for (const spec of [
    'spec: {a: &x {b: 1}, c: *x}\n',
    'spec:\n  a: &x\n    b: 1\n  c: *x\n',
    'spec: {1: a, a: {b: 1}, "c": {}}\n',
  ]) {
    const text = edited(spec, (s: { a: object }) => ({ ...s, a: { b: 2 }, d: [{}] }));
    assert.equal((parseManifest(text, kinds).objects[0]!.form.spec as { a: unknown }).a, { b: 2 });
  }
});

const leaf = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.constant('a\nb\n'),
);
const value = fc.letrec((tie) => ({
  any: fc.oneof(
    { maxDepth: 3 },
    leaf,
    fc.array(tie('any'), { maxLength: 3 }),
    fc.dictionary(fc.stringMatching(/^[a-d]{1,2}$/), tie('any'), { maxKeys: 3, noNullPrototype: true }),
  ),
})).any;
const specs = fc.dictionary(fc.stringMatching(/^[a-d]{1,2}$/), value, { maxKeys: 4, noNullPrototype: true });

test('any change of any object in any layout gives exactly that object and leaves the others alone', () => {
  fc.assert(
    fc.property(specs, specs, specs, fc.constantFrom(2, 4), fc.boolean(), (before, after, other, indent, indentSeq) => {
      const render = (name: string, spec: unknown) =>
        stringify(object('Sandbox', name, { spec }), { indent, indentSeq });
      const tail = `# tail\n${render('b', other)}`;
      const text = `# head\n${render('a', before)}---\n${tail}`;
      const [first, second] = parseManifest(text, kinds).objects;
      const result = editManifest(text, 0, first!.form, { ...first!.form, spec: after }, kinds);
      const found = parseManifest(result, kinds).objects;
      assert.equal(found[0]!.form.spec, after);
      assert.equal(found[1]!.form, second!.form);
      assert.ok(result.startsWith('# head\n') && result.endsWith(tail), result);
      assert.equal(parseManifest(removeDocument(text, 0)!, kinds).objects[0]!.form, second!.form);
      assert.equal(parseManifest(removeDocument(text, 1)!, kinds).objects[0]!.form, first!.form);
    }),
    { numRuns: 300 },
  );
});

test.run();
