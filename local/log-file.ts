import {
  closeSync,
  copyFileSync,
  fchownSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  writeFileSync,
} from 'node:fs';

/** A log is cut when it has grown beyond this; as much of its end stays readable in `<file>.1`. */
export const LOG_BYTES = 10 * 1024 * 1024;
const CHECK_MS = 1000;

/**
 * The log of one container: a file that its processes append to by themselves, so that it costs nothing to have it and
 * works while nobody looks.
 */
export class ContainerLog {
  readonly path: string;
  /** Open for appending. */
  readonly fd: number;
  readonly #limit: number;
  readonly #timer: NodeJS.Timeout;

  /** `owner`: id of the user that may open it again, as `/dev/stdout` does; absent: this process's own. */
  constructor(path: string, owner: number | null, limit = LOG_BYTES) {
    this.path = path;
    this.#limit = limit;
    this.fd = openSync(path, 'a', 0o600);
    if (owner !== null) {
      fchownSync(this.fd, owner, owner);
    }
    this.#timer = setInterval(() => this.rotate(), CHECK_MS);
    this.#timer.unref();
  }

  /** Moves the end of an overlong log to `<file>.1` and empties the log. */
  rotate(): void {
    const { size } = fstatSync(this.fd);
    if (size <= this.#limit) {
      return;
    }
    if (size <= 2 * this.#limit) {
      copyFileSync(this.path, `${this.path}.1`);
    } else {
      writeFileSync(`${this.path}.1`, readEnd(this.path, size, this.#limit), { mode: 0o600 });
    }
    ftruncateSync(this.fd, 0);
  }

  close(): void {
    clearInterval(this.#timer);
    closeSync(this.fd);
  }
}

function readEnd(path: string, size: number, length: number): Buffer {
  const fd = openSync(path, 'r');
  try {
    const buffer = Buffer.alloc(length);
    return buffer.subarray(0, readSync(fd, buffer, 0, length, Math.max(0, size - length)));
  } finally {
    closeSync(fd);
  }
}
