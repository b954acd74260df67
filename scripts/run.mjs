// Runs a TypeScript entry of the project on Node 24, after installing what is missing: `run.mjs ENTRY [ARG...]`.
import { prepare, runNode } from './prepare.mjs';

const [entry, ...rest] = process.argv.slice(2);
if (entry === undefined) {
  process.stderr.write('usage: run.mjs ENTRY [ARG...]\n');
  process.exit(2);
}
prepare();
await runNode(entry, rest);
