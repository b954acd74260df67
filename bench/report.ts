/**
 * The folder `bench/` measures the product as it is: the compiler's own snapshot, served by the control plane to real
 * Envoys, next to a bare Envoy in the same run (D29). One file a suite; docs/benchmarks.md says what each figure means.
 */

/** One figure. */
export interface Metric {
  readonly value: number;
  readonly unit: string;
  /** What it was compared with in the same run, or the size of what was measured. */
  readonly against: string;
}

/** Metrics by full name, such as `egress.native_ratio`. */
export type Metrics = Readonly<Record<string, Metric>>;

/** Limits that a figure must keep, by metric; the others are reported without a verdict. */
export const LIMITS: Readonly<Record<string, { readonly least?: number; readonly most?: number }>> = {
  'egress.native_ratio': { least: 0.7 },
  'egress.extproc_ratio': { least: 0.22 },
  'ingress.native_ratio': { least: 0.7 },
  'ingress.extproc_ratio': { least: 0.22 },
  'xds.policy_change_ms': { most: 100 },
  'memory.local_pss_mb': { most: 600 },
  'memory.control_plane_pss_mb': { most: 500 },
};

/** The figures that were measured, without those for which there was no sample. */
export function measured(metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([, { value }]) => Number.isFinite(value)));
}

/** Limits of a suite whose figure is missing. */
export function unmeasured(suite: string, metrics: Metrics): readonly string[] {
  return Object.keys(LIMITS).filter((name) => name.startsWith(`${suite}.`) && !Object.hasOwn(metrics, name));
}

/** Whether a figure keeps its limit; true when it has none. */
export function keepsLimit(name: string, { value }: Metric): boolean {
  const { least = Number.NEGATIVE_INFINITY, most = Number.POSITIVE_INFINITY } = LIMITS[name] ?? {};
  return value >= least && value <= most;
}

/** A figure with three significant digits, so that a report does not pretend to more. */
export function metric(value: number, unit: string, against: string): Metric {
  return { value: Number(value.toPrecision(3)), unit, against };
}

/** `{"suite":{"metric":{value,unit,against}}}`. */
export function asJson(metrics: Metrics): string {
  const suites: Record<string, Record<string, Metric>> = {};
  for (const [name, value] of Object.entries(metrics)) {
    const [suite = '', key = ''] = name.split(/\.(.*)/s);
    suites[suite] = { ...suites[suite], [key]: value };
  }
  return JSON.stringify(suites);
}

/** A table for people, with the limit of each figure that has one. */
export function asTable(metrics: Metrics): string {
  const rows = Object.entries(metrics).map(([name, entry]) => [
    name,
    `${entry.value} ${entry.unit}`.trim(),
    limitText(name, entry),
    entry.against,
  ]);
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function limitText(name: string, entry: Metric): string {
  const limit = LIMITS[name];
  if (limit === undefined) {
    return '';
  }
  const text = limit.least === undefined ? `at most ${limit.most}` : `at least ${limit.least}`;
  return keepsLimit(name, entry) ? `${text}: kept` : `${text}: MISSED`;
}

/** The middle value; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) {
    return Number.NaN;
  }
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
