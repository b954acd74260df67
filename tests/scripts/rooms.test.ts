import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { relativeImports, violation } from '../../scripts/rooms.ts';

test('reads every form of import', () => {
  const source = [
    "import { a } from './a.ts';",
    'import type {\n  B,\n} from "x";',
    "import type {\n  C,\n} from '../api/c.ts';",
    "export { d } from './d.ts';",
    "const e = await import('./e.ts');",
    "import './f.ts';",
  ].join('\n');
  assert.equal(relativeImports(source, 'store/x.ts'), [
    'store/a.ts',
    'api/c.ts',
    'store/d.ts',
    'store/e.ts',
    'store/f.ts',
  ]);
});

test('imports go upwards only', () => {
  assert.is(violation('store/a.ts', 'api/object.ts'), null);
  assert.is(violation('store/a.ts', 'store/b.ts'), null);
  assert.match(violation('store/a.ts', 'xds/view.ts') ?? '', /comes after/);
  assert.match(violation('store/a.ts', 'stray/view.ts') ?? '', /no room/);
  assert.is(violation('tests/a.ts', 'cli/main.ts'), null);
});

test('decide/ stays apart', () => {
  assert.is(violation('policy-compiler/decide/l4.ts', 'base/addresses.ts'), null);
  assert.match(violation('policy-compiler/decide/l4.ts', 'policy-compiler/select.ts') ?? '', /only api/);
  assert.match(violation('policy-compiler/compile.ts', 'policy-compiler/decide/decide.ts') ?? '', /only tests/);
});

test.run();
