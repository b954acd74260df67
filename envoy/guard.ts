/** Ties the life of a child to this process (D25): when this one is killed, the child goes too. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Folders in which `setpriv` and `sh` lie also when `PATH` is poor. */
const SYSTEM_FOLDERS = ['/usr/bin', '/bin', '/usr/sbin', '/sbin'];

/** `setpriv` of util-linux, or null where there is none. */
export function findSetpriv(): string | null {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), ...SYSTEM_FOLDERS];
  for (const folder of folders.filter((path) => path.startsWith('/'))) {
    try {
      accessSync(join(folder, 'setpriv'), constants.X_OK);
      return join(folder, 'setpriv');
    } catch {
      // Not here.
    }
  }
  return null;
}

/** How to start a command so that it ends with its parent. */
export interface GuardedCommand {
  readonly argv: readonly string[];
  /**
   * The child's file descriptor 3 must be a pipe that this process holds open (`stdio: […, 'pipe']`) and destroys when
   * the child has ended.
   */
  readonly needsPipe: boolean;
}

/** Runs a command unless the parent died while it was being started. */
const IF_PARENT_LIVES = '[ "$PPID" = "$0" ] || exit 1; exec "$@"';

/** A reader of descriptor 3 outlives the parent, sees the end of the pipe, and kills the command. */
const WITH_READER = '{ read -r _; kill -KILL $$; } <&3 >/dev/null 2>&1 & exec 3<&-; exec "$@"';

/** A prefix such as `nsenter` with its arguments; it must replace itself by the command (exec). */
export type Wrap = (argv: readonly string[]) => readonly string[];

/**
 * A command that is killed when this process dies, however it dies. The kernel does it where `setpriv` can ask for it,
 * which also needs no process; elsewhere a small shell waits on a pipe. The pid stays that of the command.
 */
export function guarded(
  argv: readonly string[],
  wrap: Wrap = (inner) => inner,
  setpriv = findSetpriv(),
): GuardedCommand {
  if (setpriv === null) {
    return { argv: ['/bin/sh', '-c', WITH_READER, 'guard', ...wrap(argv)], needsPipe: true };
  }
  const ask = [setpriv, '--pdeathsig', 'KILL', '--'];
  // A prefix that changes the user makes the kernel forget the request, so it is made again behind it.
  const inner = [...ask, ...argv];
  return { argv: [...ask, '/bin/sh', '-c', IF_PARENT_LIVES, String(process.pid), ...wrap(inner)], needsPipe: false };
}
