/**
 * `npm run test:long -- [SUITE...]`: the long forms of tests that `npm test` runs in a short form. The files are the
 * same; they see `SANDGATE_LONG=1`. `SANDGATE_SEED` repeats a run of a seeded one. Without a suite all run, one by one.
 */
import { runTests } from './run-tests.ts';

const SUITES: Readonly<Record<string, string>> = {
  churn: 'tests/control-plane/churn.test.ts',
  loss: 'tests/e2e/control-plane-loss.test.ts',
  soak: 'tests/e2e/soak.test.ts',
};

/** Deadline of one file, milliseconds. */
const DEADLINE_MS = 60 * 60_000;

const given = process.argv.slice(2);
const strange = given.find((name) => !Object.hasOwn(SUITES, name));
if (strange !== undefined) {
  process.stderr.write(`test:long: there is no suite ${strange}; the suites are ${Object.keys(SUITES).join(', ')}\n`);
  process.exit(2);
}
const files = (given.length === 0 ? Object.keys(SUITES) : given).map((name) => SUITES[name]!);
process.exit(runTests(files, { concurrency: 1, timeoutMs: DEADLINE_MS, env: { SANDGATE_LONG: '1' } }));
