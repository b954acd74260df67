// Runs a TypeScript entry on Node 24, whatever Node started this script: installs the dependencies when they are
// missing, generates the Envoy types when they are stale, then replaces itself as far as a process can.
import { prepare, runNode } from './prepare.mjs';

const [entry, ...rest] = process.argv.slice(2);
if (entry === undefined) {
  process.stderr.write('usage: run.mjs ENTRY [ARG...]\n');
  process.exit(2);
}
await prepare();
runNode(entry, rest);
