import type { Ports } from './l4-policy.ts';

/** RE2 source that matches, as a whole text, exactly the decimal ports of the ranges (no leading zeros). */
export function portPattern(ranges: readonly Ports[]): string {
  return ranges.flatMap(({ from, to }) => rangePatterns(from, Math.min(to, 65535))).join('|');
}

function rangePatterns(from: number, to: number): string[] {
  const patterns: string[] = [];
  let start = from;
  while (start <= to) {
    const end = blockEnd(start, to);
    patterns.push(blockPattern(start, end));
    start = end + 1;
  }
  return patterns;
}

/** Last number of the largest run from `start` that one digit class and free digits can express. */
function blockEnd(start: number, to: number): number {
  let best = start;
  for (let size = 1; start % size === 0 && size <= 10_000; size *= 10) {
    const digit = Math.floor(start / size) % 10;
    const sameLength = (number: number) => String(number).length === String(start).length;
    for (let last = digit; last <= 9; last += 1) {
      const end = start + (last - digit + 1) * size - 1;
      if (end <= to && sameLength(end) && end > best) {
        best = end;
      }
    }
    if (start === 0) {
      break;
    }
  }
  return best;
}

function blockPattern(start: number, end: number): string {
  const [low, high] = [String(start), String(end)];
  let pattern = '';
  let index = 0;
  while (index < low.length && low[index] === high[index]) {
    pattern += low[index];
    index += 1;
  }
  if (index < low.length) {
    pattern += `[${low[index]}-${high[index]}]`;
    pattern += '[0-9]'.repeat(low.length - index - 1);
  }
  return pattern;
}
