import { CodedError } from '../base/errors.ts';

/** Checks `-o`; throws `usage`. `text` stands for no `-o`. */
export function outputFormat<T extends string>(given: string | undefined, known: readonly T[]): T | 'text' {
  if (given === undefined) {
    return 'text';
  }
  const found = known.find((format) => format === given);
  if (found === undefined) {
    throw new CodedError('usage', `-o ${given}: give one of ${known.join(', ')}`);
  }
  return found;
}

/** Seconds of `--timeout` as milliseconds; throws `usage`. */
export function timeoutMs(given: string): number {
  const seconds = Number(given);
  if (!(seconds > 0 && seconds <= 86_400)) {
    throw new CodedError('usage', `--timeout ${given}: give seconds, more than 0 and at most a day`);
  }
  return seconds * 1000;
}

/** Columns of text, each as wide as its widest cell. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('   ')
      .trimEnd();
  return `${[line(head), ...rows.map(line)].join('\n')}\n`;
}

/** Time since an RFC 3339 time, as `5m`. */
export function age(since: string | undefined, now: number): string {
  const seconds = Math.floor((now - Date.parse(since ?? '')) / 1000);
  if (!(seconds >= 0)) {
    return '';
  }
  const units = [
    [86_400, 'd'],
    [3600, 'h'],
    [60, 'm'],
  ] as const;
  const unit = units.find(([size]) => seconds >= size);
  return unit === undefined ? `${seconds}s` : `${Math.floor(seconds / unit[0])}${unit[1]}`;
}

/** Text without control characters but line ends: what a sandbox or a client sent must not steer the terminal. */
export function printable(text: string): string {
  return text.replace(/(?!\n)\p{Cc}/gu, (control) => `\\x${control.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** A count such as `--tail` takes; throws `usage`. */
export function countOf(option: string, given: string): number {
  const count = Number(given);
  if (!/^[0-9]+$/.test(given) || !Number.isSafeInteger(count)) {
    throw new CodedError('usage', `${option} ${given}: give a number of lines`);
  }
  return count;
}
