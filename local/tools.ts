import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { CodedError } from '../base/errors.ts';

/** Programs of the machine that local mode stands on, with the Debian package that brings each. */
export const TOOL_PACKAGES = {
  unshare: 'util-linux',
  nsenter: 'util-linux',
  setpriv: 'util-linux',
  mount: 'mount',
  ip: 'iproute2',
  nft: 'nftables',
} as const;

export type ToolName = keyof typeof TOOL_PACKAGES;
export type Tools = Readonly<Record<ToolName, string>>;

/** Folders outside an ordinary user's PATH in which Debian puts ip and nft. */
const SYSTEM_FOLDERS = ['/usr/sbin', '/sbin', '/usr/local/sbin', '/usr/bin', '/bin'];

/** The absolute path of a program in PATH or a system folder, or null. */
export function findProgram(name: string): string | null {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), ...SYSTEM_FOLDERS];
  for (const folder of folders.filter((path) => path.startsWith('/'))) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      if (statSync(path).isFile()) {
        return path;
      }
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

/** Tools that are absent, sorted. */
export function missingTools(): ToolName[] {
  return (Object.keys(TOOL_PACKAGES) as ToolName[]).filter((name) => findProgram(name) === null).sort();
}

/** Paths of all tools; throws `missing-tools` naming those that are absent and how to get them. */
export function findTools(): Tools {
  const missing = missingTools();
  if (missing.length > 0) {
    throw new CodedError('missing-tools', `not found: ${missing.join(', ')}; ${installCommand(missing)}`);
  }
  const names = Object.keys(TOOL_PACKAGES) as ToolName[];
  return Object.fromEntries(names.map((name) => [name, findProgram(name)!])) as Tools;
}

/** The one command that installs what is missing on Debian (D15). */
export function installCommand(missing: readonly ToolName[]): string {
  const packages = [...new Set(missing.map((name) => TOOL_PACKAGES[name]))].sort();
  return `apt-get install --yes ${packages.join(' ')}`;
}
