/** `npm run check`: format and lint, types, import direction of the rooms. `--write` formats instead of checking. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { generate } from './generate.ts';
import { roomViolations } from './rooms.ts';

const root = join(import.meta.dirname, '..');
const bin = (name: string): string => join(root, 'node_modules', '.bin', name);

function run(title: string, command: string, args: readonly string[]): boolean {
  process.stderr.write(`check: ${title}\n`);
  return spawnSync(command, args, { cwd: root, stdio: 'inherit' }).status === 0;
}

const write = process.argv.includes('--write');
await generate();
const results = [
  run('format and lint', bin('biome'), ['check', '--error-on-warnings', ...(write ? ['--write'] : []), '.']),
  run('types', bin('tsc'), ['--noEmit', '-p', 'tsconfig.json']),
];
process.stderr.write('check: import direction of the rooms\n');
const violations = await roomViolations(root);
for (const violation of violations) {
  process.stderr.write(`  ${violation}\n`);
}
process.exit(results.every(Boolean) && violations.length === 0 ? 0 : 1);
