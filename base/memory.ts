import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

export interface KeepSmallOptions {
  /** How often the process is looked at, milliseconds; default 5,000. */
  readonly everyMs?: number;
}

const EVERY_MS = 5000;
/** A process that used less of a core than this is idle: a collection, up to half a second long, then stops nobody. */
const IDLE_SHARE = 0.05;
/**
 * A collection is worth its time when the process has grown by so much since the last one. Not less: V8 begins afresh
 * after it, and the next work of a large process takes up to half as long again, so that a process with small changes
 * now and then must not pay for each.
 */
const WORTH_BYTES = 16 * 1024 * 1024;
const WORTH_SHARE = 1 / 3;

/**
 * Gives memory back whenever this process is idle and has grown. V8 collects when something is allocated, so a process
 * that has become idle keeps for ever what it needed to start or to take in a large change; and a usual collection
 * keeps the pages that it has emptied for later. What this costs is a pause, so it is never done under load.
 */
export function keepSmall({ everyMs = EVERY_MS }: KeepSmallOptions = {}): void {
  let cpu = process.cpuUsage();
  let size = 0;
  let again = false;
  setInterval(() => {
    const { user, system } = process.cpuUsage(cpu);
    cpu = process.cpuUsage();
    const isIdle = (user + system) / 1000 < everyMs * IDLE_SHARE;
    // The first collection leaves half-empty pages, and the second one moves what is in them together.
    if (isIdle && (again || process.memoryUsage.rss() > size + Math.max(WORTH_BYTES, size * WORTH_SHARE))) {
      again = !again;
      collectGarbage();
      size = process.memoryUsage.rss();
      cpu = process.cpuUsage();
    }
  }, everyMs).unref();
}

/** The flavour in which V8 also gives the emptied pages to the kernel. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as NodeJS.GCFunction;
  setFlagsFromString('--no-expose-gc');
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}
