import { open, readFile, stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 200;
const NEWLINE = 0x0a;

/**
 * What a container has written, from its log (and the part before that `ContainerLog` has moved to `<file>.1`): all of
 * it, or the last `tail` lines; with `follow` also what it writes later, until the log is removed or `signal` is aborted.
 */
export async function* containerOutput(
  path: string,
  options: { readonly tail?: number; readonly follow?: boolean; readonly signal?: AbortSignal },
): AsyncIterable<Buffer> {
  const now = (await readOr(path)) ?? Buffer.alloc(0);
  const whole = Buffer.concat([(await readOr(`${path}.1`)) ?? Buffer.alloc(0), now]);
  yield options.tail === undefined ? whole : lastLines(whole, options.tail);
  let offset = now.length;
  while (options.follow === true && options.signal?.aborted !== true) {
    await sleep(POLL_MS);
    const size = await sizeOf(path);
    if (size === null) {
      return;
    }
    // It was emptied when it had become too long.
    offset = size < offset ? 0 : offset;
    if (size > offset) {
      const chunk = await readFrom(path, offset, size - offset);
      offset += chunk.length;
      yield chunk;
    }
  }
}

function lastLines(text: Buffer, count: number): Buffer {
  if (count === 0) {
    return Buffer.alloc(0);
  }
  let start = text.length - (text.at(-1) === NEWLINE ? 1 : 0);
  for (let found = 0; found < count && start >= 0; found += 1) {
    start = start === 0 ? -1 : text.lastIndexOf(NEWLINE, start - 1);
  }
  return text.subarray(start + 1);
}

async function readOr(path: string): Promise<Buffer | null> {
  return readFile(path).catch(absent);
}

async function sizeOf(path: string): Promise<number | null> {
  return (await stat(path).catch(absent))?.size ?? null;
}

async function readFrom(path: string, position: number, length: number): Promise<Buffer> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

function absent(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') {
    return null;
  }
  throw error;
}
