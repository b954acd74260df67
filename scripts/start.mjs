// `npm start`: installs what is missing, then runs local mode with the quickstart example.
import { prepare, runNode } from './prepare.mjs';

prepare();
await runNode('scripts/start.ts', process.argv.slice(2));
