/**
 * `npm test [FILTER...]`: every `tests/**\/*.test.ts`, one process and one deadline a file (D27). A filter keeps the
 * files whose path contains it. Exits with the runner's status; an empty run is a failure.
 */
import { join } from 'node:path';
import { runTests } from './run-tests.ts';
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
process.exit(runTests(files, { concurrency: 2, timeoutMs: 300_000 }));
