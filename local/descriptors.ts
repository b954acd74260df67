import { closeSync, readdirSync, readFileSync } from 'node:fs';

const CLOSE_ON_EXEC = 0o2000000;

/**
 * Closes every descriptor above 2 that this process was started with. Node marks none of its own as inheritable, so what
 * is inheritable came from whoever started it, and would go on into every sandbox that is started from here.
 */
export function closeInheritedDescriptors(): void {
  for (const name of readdirSync('/proc/self/fd')) {
    const fd = Number(name);
    if (fd > 2 && isInheritable(fd)) {
      closeSync(fd);
    }
  }
}

function isInheritable(fd: number): boolean {
  try {
    const flags = /^flags:\t([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1] ?? '';
    return flags !== '' && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  } catch {
    return false; // The descriptor of the folder itself, closed meanwhile.
  }
}
