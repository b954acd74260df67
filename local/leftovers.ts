import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Cgroups } from './cgroups.ts';
import type { Layout } from './layout.ts';
import { killAndWait, type RecordedProcess } from './process-record.ts';

/**
 * Ends and removes what an agent that was killed has left of its Pods. Namespaces and mounts go with their last process,
 * and those end with the agent; this makes sure of it, and removes folders, control groups and sockets.
 */
export async function removeLeftovers(layout: Layout, cgroups: Cgroups): Promise<void> {
  // First, since a frozen process that waits for others keeps their namespace from ending.
  await cgroups.clear();
  for (const entry of await readdir(layout.sandboxes, { withFileTypes: true }).catch(() => [])) {
    if (entry.isDirectory()) {
      const folder = join(layout.sandboxes, entry.name);
      const holder = await readHolder(folder);
      if (holder !== null) {
        await killAndWait(holder);
      }
      await rm(folder, { recursive: true, force: true });
    }
  }
  for (const name of await readdir(layout.run).catch(() => [])) {
    if (/^envoy-sidecar-[0-9]+\.sock$/.test(name)) {
      await rm(join(layout.run, name), { force: true });
    }
  }
}

async function readHolder(folder: string): Promise<RecordedProcess | null> {
  try {
    return JSON.parse(await readFile(join(folder, 'holder.json'), 'utf8')) as RecordedProcess;
  } catch {
    return null;
  }
}
