const UNITS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

const PART = /([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)/y;

/**
 * Parses a duration as Go writes it (`300ms`, `1.5h`, `2h45m`, `0`, `-1s`; no unit for days): milliseconds, or null
 * when it is none (crds §0.2).
 */
export function parseDuration(source: string): number | null {
  const negative = source.startsWith('-');
  const body = negative || source.startsWith('+') ? source.slice(1) : source;
  if (body === '0') {
    return 0;
  }
  let total = 0;
  let at = 0;
  while (at < body.length) {
    PART.lastIndex = at;
    const part = PART.exec(body);
    if (part === null) {
      return null;
    }
    total += Number(part[1]) * UNITS[part[2]!]!;
    at = PART.lastIndex;
  }
  // Go keeps 64-bit nanoseconds; what is longer is no duration.
  return body === '' || total * 1e6 > 9.223372036854776e18 ? null : negative ? -total : total;
}
