import { readFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { sourceFiles } from './source-files.ts';

/** The rooms from the top down: each may import from itself and from those before it (docs/architecture.md). */
export const ROOMS = [
  'base',
  'api',
  'proto',
  'store',
  'identity',
  'policy-compiler',
  'world',
  'xds',
  'extproc',
  'dns',
  'control-plane',
  'controller',
  'envoy',
  'local',
  'cli',
] as const;

/** Rooms that stand outside the order and may import from all. */
const OUTSIDE = new Set(['tests', 'bench', 'scripts', 'examples']);

/** `policy-compiler/decide/` is the second opinion of the differential test and shares nothing with the first (D28). */
const DECIDE = 'policy-compiler/decide/';

const IMPORT =
  /(?:^|\n)\s*(?:import|export)\b[^'";]*?from\s*'([^']+)'|\bimport\(\s*'([^']+)'\s*\)|(?:^|\n)\s*import\s*'([^']+)'/g;

/** Every import that goes against the order of the rooms, as `file imports file: why`. */
export async function roomViolations(root: string): Promise<string[]> {
  const found: string[] = [];
  for (const file of await sourceFiles(root)) {
    for (const target of relativeImports(await readFile(join(root, file), 'utf8'), file)) {
      const why = violation(file, target);
      if (why !== null) {
        found.push(`${file} imports ${target}: ${why}`);
      }
    }
  }
  return found.sort();
}

/** Targets of the relative imports of a source text, as paths from the root. */
export function relativeImports(source: string, file: string): string[] {
  const targets: string[] = [];
  for (const match of source.matchAll(IMPORT)) {
    const specifier = match[1] ?? match[2] ?? match[3] ?? '';
    if (specifier.startsWith('.')) {
      targets.push(
        relative('.', join(dirname(file), specifier))
          .split(sep)
          .join('/'),
      );
    }
  }
  return targets;
}

/** Why an import is against the order, or null. */
export function violation(file: string, target: string): string | null {
  const [from, to] = [file.split('/')[0] ?? '', target.split('/')[0] ?? ''];
  if (OUTSIDE.has(from) || to === 'gen') {
    return null;
  }
  if (file.startsWith(DECIDE) && !target.startsWith(DECIDE) && to !== 'api' && to !== 'base') {
    return 'decide/ imports only api/ and base/';
  }
  if (!file.startsWith(DECIDE) && target.startsWith(DECIDE)) {
    return 'only tests compare with decide/';
  }
  const rank = (room: string): number => (ROOMS as readonly string[]).indexOf(room);
  if (rank(from) < 0 || rank(to) < 0) {
    return `${rank(from) < 0 ? from : to} is no room`;
  }
  return rank(to) <= rank(from) ? null : `${to}/ comes after ${from}/`;
}
