/**
 * `npm test [FILTER...]`: every `tests/**\/*.test.ts`, one process and one deadline a file (D27). A filter keeps the
 * files whose path contains it. Exits with the runner's status; an empty run is a failure.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { sourceFiles } from './source-files.ts';

const root = join(import.meta.dirname, '..');
const filters = process.argv.slice(2);
const files = (await sourceFiles(root, 'tests')).filter(
  (file) => file.endsWith('.test.ts') && (filters.length === 0 || filters.some((filter) => file.includes(filter))),
);
if (files.length === 0) {
  process.stderr.write(`test: no test file matches ${filters.join(' ')}\n`);
  process.exit(1);
}
const done = spawnSync(
  process.execPath,
  ['--test', '--test-concurrency=2', '--test-timeout=300000', '--test-reporter=spec', ...files],
  { cwd: root, stdio: 'inherit' },
);
process.exit(done.status ?? 1);
