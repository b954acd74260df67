import { randomUUID } from 'node:crypto';
import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { CodedError, errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';

/**
 * An append-only log of JSON records with compaction.
 *
 * Why a log and not a file per object: one change is one short `write`, whatever the number of objects; changes of
 * several objects (a cascade, an object and the index of its manifest) are one line and so happen whole or not at all;
 * order is part of the format, so versions cannot run backwards; opening reads one file instead of 10,000. A line is
 * its CRC and its JSON. A kill can leave at most one unfinished line at the end, which was never acknowledged and is
 * cut off; damage before intact lines is an error, because then something acknowledged is lost.
 *
 * An acknowledged record is with the kernel: it survives any death of the process. The disk has it within
 * {@link SYNC_DELAY_MS}, or at once where a caller awaits {@link Journal.flush}.
 *
 * Compaction writes the present state to `objects.<n+1>.log` beside the running log, appends what came in between,
 * syncs, and renames it into place; whoever opens takes the highest number. It runs when the log is twice as long as
 * the state, so its cost for each change is constant.
 */
export interface JournalOptions {
  readonly directory: string;
  readonly logger: Logger;
  /** The records of the present state, and the version that they are at. Taken in one step, written at leisure. */
  readonly snapshot: () => { readonly version: number; readonly records: readonly object[] };
  /** No compaction below this length; default 4 MiB. */
  readonly compactBytes?: number;
}

/** What a log was found to hold. */
export interface Replay {
  /** Names this life of the store: versions of another are not comparable. */
  readonly store: string;
  /** The version of the snapshot; records after it are the history since. */
  readonly version: number;
  readonly snapshot: readonly unknown[];
  readonly records: readonly unknown[];
}

const SYNC_DELAY_MS = 20;
const FILE = /^objects\.(\d+)\.log$/;

interface Header {
  readonly format: 1;
  readonly store: string;
  readonly version: number;
  /** How many records of the snapshot follow. */
  readonly records: number;
}

export class Journal {
  readonly #options: JournalOptions;
  readonly #store: string;
  #number: number;
  #fd: number;
  #length: number;
  #compactAt: number;
  /** Lines appended while a compaction runs. */
  #tail: Buffer[] | null = null;
  #compaction: Promise<void> | null = null;
  #syncTimer: NodeJS.Timeout | null = null;
  #closed = false;

  private constructor(options: JournalOptions, found: Found) {
    this.#options = options;
    this.#store = found.replay.store;
    this.#number = found.number;
    this.#fd = found.fd;
    this.#length = found.length;
    this.#compactAt = Math.max(options.compactBytes ?? 4 * 1024 * 1024, found.snapshotBytes * 2);
  }

  /** Opens the newest log of the directory, or a new one. Throws `corrupt` when acknowledged records are damaged. */
  static open(options: JournalOptions): { journal: Journal; replay: Replay } {
    const numbers = readdirSync(options.directory).flatMap((name) => {
      const match = FILE.exec(name);
      if (match === null && name.endsWith('.tmp')) {
        rmSync(join(options.directory, name), { force: true });
      }
      return match === null ? [] : [Number(match[1])];
    });
    numbers.sort((a, b) => b - a);
    const newest = numbers[0];
    const found = newest === undefined ? create(options.directory) : load(options, newest);
    for (const number of numbers.slice(1)) {
      rmSync(join(options.directory, `objects.${number}.log`), { force: true });
    }
    return { journal: new Journal(options, found), replay: found.replay };
  }

  /** Bytes of the running log. */
  get length(): number {
    return this.#length;
  }

  /** Names this life of the store. */
  get store(): string {
    return this.#store;
  }

  /** Appends one record; when this returns it survives a kill. Throws `unavailable`, and then nothing was written. */
  append(record: object): void {
    if (this.#closed) {
      throw new CodedError('unavailable', 'the store is closed');
    }
    const line = encode(record);
    try {
      writeWhole(this.#fd, line);
    } catch (error) {
      this.#cutBack();
      const reason = `the state cannot be written: ${errorText(error)}`;
      throw new CodedError('unavailable', reason, { cause: error });
    }
    this.#length += line.length;
    this.#tail?.push(line);
    this.#syncTimer ??= setTimeout(() => {
      void this.flush().catch((error) => {
        this.#options.logger.error({ error: errorText(error) }, 'the state cannot be synced');
      });
    }, SYNC_DELAY_MS);
    if (this.#length > this.#compactAt && this.#compaction === null) {
      // Not at once: the caller has yet to apply the record to the state of which the snapshot is taken.
      this.#compaction = Promise.resolve()
        .then(() => this.#compact())
        .finally(() => {
          this.#compaction = null;
        });
    }
  }

  /** A half line would spoil the next one. If even cutting fails, nothing more may be written. */
  #cutBack(): void {
    try {
      ftruncateSync(this.#fd, this.#length);
    } catch {
      this.#closed = true;
    }
  }

  /** Waits until everything appended so far is on the disk. */
  async flush(): Promise<void> {
    if (this.#syncTimer !== null) {
      clearTimeout(this.#syncTimer);
      this.#syncTimer = null;
    }
    if (this.#closed) {
      return;
    }
    const fd = this.#fd;
    await new Promise<void>((resolve, reject) => {
      // The descriptor changes hands at a compaction, which syncs by itself.
      fdatasync(fd, (error) => (error === null || fd !== this.#fd ? resolve() : reject(error)));
    });
  }

  async #compact(): Promise<void> {
    const { directory, logger, snapshot } = this.#options;
    const number = this.#number + 1;
    const temporary = join(directory, `objects.${number}.tmp`);
    try {
      const { version, records } = snapshot();
      this.#tail = [];
      const file = await open(temporary, 'wx', 0o600);
      try {
        const header: Header = { format: 1, store: this.#store, version, records: records.length };
        await file.writeFile(encode(header));
        for (let at = 0; at < records.length; at += 200) {
          await file.writeFile(Buffer.concat(records.slice(at, at + 200).map(encode)));
        }
        await file.sync();
      } finally {
        await file.close();
      }
      if (!this.#closed) {
        this.#switchTo(number, temporary);
      }
    } catch (error) {
      logger.error({ error: errorText(error) }, 'the state cannot be compacted; the log grows');
      this.#compactAt = this.#length * 2;
      rmSync(temporary, { force: true });
    } finally {
      this.#tail = null;
    }
  }

  /** One step without an await, so that no record can be appended to the old log meanwhile. */
  #switchTo(number: number, temporary: string): void {
    const { directory } = this.#options;
    const fd = openSync(temporary, 'a', 0o600);
    try {
      writeWhole(fd, Buffer.concat(this.#tail ?? []));
      fdatasyncSync(fd);
      renameSync(temporary, join(directory, `objects.${number}.log`));
      syncDirectory(directory);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
    const old = this.#fd;
    const tail = (this.#tail ?? []).reduce((sum, line) => sum + line.length, 0);
    this.#fd = fd;
    closeSync(old);
    rmSync(join(directory, `objects.${this.#number}.log`), { force: true });
    this.#number = number;
    this.#length = lengthOf(fd);
    this.#compactAt = Math.max(this.#options.compactBytes ?? 4 * 1024 * 1024, (this.#length - tail) * 2);
  }

  async close(): Promise<void> {
    await this.#compaction;
    if (this.#closed) {
      return;
    }
    await this.flush();
    this.#closed = true;
    closeSync(this.#fd);
  }
}

interface Found {
  readonly number: number;
  readonly fd: number;
  readonly length: number;
  readonly snapshotBytes: number;
  readonly replay: Replay;
}

function create(directory: string): Found {
  const header: Header = { format: 1, store: randomUUID(), version: 0, records: 0 };
  const temporary = join(directory, 'objects.1.tmp');
  const fd = openSync(temporary, 'ax', 0o600);
  writeWhole(fd, encode(header));
  fsyncSync(fd);
  renameSync(temporary, join(directory, 'objects.1.log'));
  syncDirectory(directory);
  const replay = { store: header.store, version: 0, snapshot: [], records: [] };
  return { number: 1, fd, length: encode(header).length, snapshotBytes: 0, replay };
}

function load(options: JournalOptions, number: number): Found {
  const path = join(options.directory, `objects.${number}.log`);
  const bytes = readFileSync(path);
  const lines: unknown[] = [];
  const ends: number[] = [];
  let at = 0;
  while (at < bytes.length) {
    const newline = bytes.indexOf(10, at);
    const record = newline < 0 ? undefined : decode(bytes.subarray(at, newline));
    if (record === undefined) {
      break;
    }
    lines.push(record);
    at = newline + 1;
    ends.push(at);
  }
  if (at < bytes.length) {
    requireNothingAfter(bytes, at, path);
    options.logger.warn({ file: path, bytes: bytes.length - at }, 'an unfinished record at the end was cut off');
  }
  const header = lines[0] as Header | undefined;
  if (header?.format !== 1 || lines.length < 1 + header.records) {
    throw new CodedError('corrupt', `${path} has no whole snapshot; restore it, or remove it to begin anew`);
  }
  const fd = openSync(path, 'a', 0o600);
  ftruncateSync(fd, at);
  const replay = {
    store: header.store,
    version: header.version,
    snapshot: lines.slice(1, 1 + header.records),
    records: lines.slice(1 + header.records),
  };
  return { number, fd, length: at, snapshotBytes: ends[header.records] ?? 0, replay };
}

/** An intact line behind a damaged one means that the damage is not the unfinished end of a killed writer. */
function requireNothingAfter(bytes: Buffer, damaged: number, path: string): void {
  for (let at = bytes.indexOf(10, damaged) + 1; at > 0 && at < bytes.length; ) {
    const newline = bytes.indexOf(10, at);
    if (newline >= 0 && decode(bytes.subarray(at, newline)) !== undefined) {
      const hint = 'restore it, or remove it to begin anew';
      throw new CodedError('corrupt', `${path} is damaged at byte ${damaged} before intact records; ${hint}`);
    }
    at = newline + 1;
  }
}

function encode(record: object): Buffer {
  const json = Buffer.from(JSON.stringify(record));
  return Buffer.concat([Buffer.from(`${crc32(json).toString(16).padStart(8, '0')} `), json, Buffer.from('\n')]);
}

function decode(line: Buffer): unknown {
  const json = line.subarray(9);
  if (json.length === 0 || crc32(json) !== Number.parseInt(line.subarray(0, 8).toString('latin1'), 16)) {
    return undefined;
  }
  return JSON.parse(json.toString()) as unknown;
}

function lengthOf(fd: number): number {
  return fstatSync(fd).size;
}

/** Writes all of it; a short write is continued. */
export function writeWhole(fd: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length; ) {
    written += writeSync(fd, bytes, written);
  }
}

/** Makes renames in a directory durable. */
export function syncDirectory(directory: string): void {
  const fd = openSync(directory, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
