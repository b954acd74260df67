import { chmod, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { CodedError } from '../base/errors.ts';

/** The longest path of a UNIX socket, in bytes. */
const MAX_PATH = 107;

/**
 * Makes way for a server at a socket's path: removes what a killed server left. Throws `address-in-use` when somebody
 * still answers there, and `invalid-path` when the path is too long or is no socket.
 */
export async function clearSocketPath(path: string): Promise<void> {
  if (Buffer.byteLength(path) > MAX_PATH) {
    throw new CodedError('invalid-path', `the socket path has more than ${MAX_PATH} bytes: ${path}`);
  }
  const found = await stat(path).catch(() => null);
  if (found === null) {
    return;
  }
  if (!found.isSocket()) {
    throw new CodedError('invalid-path', `${path} exists and is no socket`);
  }
  if (await answers(path)) {
    throw new CodedError('address-in-use', `another process serves ${path}`);
  }
  await rm(path, { force: true });
}

/** Closes a socket to other users. */
export async function makePrivate(path: string): Promise<void> {
  await chmod(path, 0o600);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
