import { readdir } from 'node:fs/promises';
import { join } from 'node:path';

const SKIPPED = new Set(['node_modules', 'gen', '.git', '.local', '.cache', '.ci']);

/** The project's TypeScript files, as sorted paths from the root with forward slashes. */
export async function sourceFiles(root: string, folder = ''): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(join(root, folder), { withFileTypes: true })) {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) {
      if (!SKIPPED.has(entry.name)) {
        found.push(...(await sourceFiles(root, path)));
      }
    } else if (entry.name.endsWith('.ts')) {
      found.push(path);
    }
  }
  return found.sort();
}
