/** Interleaved rounds: every variant is loaded once a round, and a round counts only if it measured what it says. */
import type { EnvoyProcess } from '../envoy/supervise.ts';
import { mainThreadUse, processCpu, type Use, workerUse } from './processes.ts';
import { median } from './report.ts';
import { type Load, type LoadResult, runWrk } from './wrk.ts';

/** One way to the same answer. */
export interface Variant {
  readonly name: string;
  /** The Envoy under test. */
  readonly envoy: EnvoyProcess;
  readonly load: Omit<Load, 'seconds'>;
  /** Prefix of the load generator's command, e.g. to enter the sandbox's network. */
  readonly prefix?: readonly string[];
  /** Shows that the policy is in force, or for the bare Envoy that there is none; throws otherwise. */
  prove(): Promise<void>;
  /** A count of requests that the external processor was given, or null where there is none. */
  processed?(): Promise<number>;
  /** The external processor that every request goes to; null: none may go to one. */
  readonly processor: (() => number) | null;
  /** Other processes whose CPU time belongs to the request. */
  readonly others?: Readonly<Record<string, () => number>>;
}

/** What one valid run of one variant gave. */
export interface Sample extends LoadResult {
  /** Share of one core that the Envoy's worker used. */
  readonly busy: number;
  /** Share of the time in which it could have used it and something else had it. */
  readonly waited: number;
  /** Share of the time in which the processor's main thread ran or waited for a core; null without one. */
  readonly processorBusy: number | null;
  /** CPU time of the whole Envoy process per request, microseconds. */
  readonly envoyUs: number;
  /** The same of other processes. */
  readonly otherUs: Readonly<Record<string, number>>;
}

export interface RoundOptions {
  readonly wrk: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly say: (line: string) => void;
}

/** The worker must have been the limit, or the figure would be the load generator's (D29). */
const LEAST_BUSY = 0.9;
/**
 * Where every request goes to the processor too, two threads take turns, and on two cores neither is busy all the time:
 * there the worker and the processor's main thread must have been busy for so much together.
 */
const LEAST_BUSY_TOGETHER = 1.4;
/** How often a variant is tried in one round before the suite gives up. */
const ATTEMPTS = 6;

/**
 * Samples by variant, one a round. The order of the variants changes from round to round. A variant that cannot be
 * measured is left out with a word why; without the first one, the base, nothing can be said, and this throws.
 */
export async function runRounds(
  variants: readonly Variant[],
  options: RoundOptions,
): Promise<Readonly<Record<string, readonly Sample[]>>> {
  const samples: Record<string, Sample[]> = Object.fromEntries(variants.map(({ name }) => [name, []]));
  const left = new Set(variants);
  for (let round = 1; round <= options.rounds; round += 1) {
    const order = [...left];
    for (const variant of round % 2 === 1 ? order : order.reverse()) {
      try {
        samples[variant.name]!.push(await validSample(variant, round, options));
      } catch (error) {
        if (variant === variants[0]) {
          throw error;
        }
        options.say(`left out: ${(error as Error).message}`);
        left.delete(variant);
        samples[variant.name] = [];
      }
    }
  }
  return samples;
}

async function validSample(variant: Variant, round: number, options: RoundOptions): Promise<Sample> {
  const faults: string[] = [];
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    await variant.prove();
    const { sample, faults: found } = await sampleOf(variant, options);
    await variant.prove();
    options.say(describe(variant, round, sample, found));
    if (found.length === 0) {
      return sample;
    }
    faults.push(...found);
  }
  throw new Error(`${variant.name}: no run of round ${round} counts: ${[...new Set(faults)].join('; ')}`);
}

async function sampleOf(
  variant: Variant,
  { wrk, seconds }: RoundOptions,
): Promise<{ readonly sample: Sample; readonly faults: readonly string[] }> {
  const { envoy, load, prefix, others = {} } = variant;
  const pid = envoy.pid;
  if (pid === null) {
    throw new Error(`${variant.name}: its Envoy does not run`);
  }
  const untouched = (await variant.processed?.()) ?? 0;
  await runWrk(wrk, { ...load, seconds: 1 }, prefix);
  const before = await state(variant, pid);
  const began = performance.now();
  const result = await runWrk(wrk, { ...load, seconds }, prefix);
  const elapsed = (performance.now() - began) / 1000;
  const after = await state(variant, pid);
  const each = (seconds: number) => (seconds * 1e6) / result.requests;
  const sample: Sample = {
    ...result,
    busy: (after.worker.ran - before.worker.ran) / elapsed,
    waited: (after.worker.waited - before.worker.waited) / elapsed,
    processorBusy: processorShare(before, after, elapsed),
    envoyUs: each(after.cpu - before.cpu),
    otherUs: Object.fromEntries(
      Object.keys(others).map((name) => [name, each(after.others[name]! - before.others[name]!)]),
    ),
  };
  return { sample, faults: faultsOf(variant, sample, before, after, untouched) };
}

interface State {
  readonly worker: Use;
  /** Of the processor's main thread. */
  readonly processor: Use | null;
  readonly cpu: number;
  readonly others: Readonly<Record<string, number>>;
  readonly processed: number;
  /** Answers of the Envoy under test by class, such as `2xx`. */
  readonly answers: Readonly<Record<string, number>>;
}

function processorShare(before: State, after: State, elapsed: number): number | null {
  if (before.processor === null || after.processor === null) {
    return null;
  }
  const [ran, waited] = [after.processor.ran - before.processor.ran, after.processor.waited - before.processor.waited];
  return (ran + waited) / elapsed;
}

async function state({ envoy, processor, processed, others = {} }: Variant, pid: number): Promise<State> {
  const stats = await envoy.admin.stats('^http\\..*\\.downstream_rq_[1-5]xx$');
  const answers: Record<string, number> = {};
  for (const [name, value] of Object.entries(stats).filter(([name]) => !name.startsWith('http.admin.'))) {
    const kind = name.slice(-3);
    answers[kind] = (answers[kind] ?? 0) + value;
  }
  return {
    worker: workerUse(pid),
    processor: processor === null ? null : mainThreadUse(processor()),
    cpu: processCpu(pid),
    others: Object.fromEntries(Object.entries(others).map(([name, cpu]) => [name, cpu()])),
    processed: (await processed?.()) ?? 0,
    answers,
  };
}

/** `untouched`: what the processor had been given before the first request of this run, warming up included. */
function faultsOf(variant: Variant, sample: Sample, before: State, after: State, untouched: number): string[] {
  const faults: string[] = [];
  if (!wasTheLimit(sample)) {
    const [busy, waited] = [sample.busy, sample.waited].map((share) => Math.round(share * 100));
    faults.push(`its worker was only ${busy} % busy, and waited ${waited} % for a core that others used`);
  }
  if (sample.errors > 0) {
    faults.push(`${sample.errors} failed requests`);
  }
  const wrong = ['1xx', '3xx', '4xx', '5xx'].filter((kind) => after.answers[kind] !== before.answers[kind]);
  if (wrong.length > 0) {
    faults.push(`answers other than 2xx: ${wrong.join(', ')}`);
  }
  const processed = after.processed - before.processed;
  if (variant.processor !== null ? processed < sample.requests : after.processed > untouched) {
    faults.push(`${processed} of ${sample.requests} requests went to the processor`);
  }
  return faults;
}

function wasTheLimit({ busy, processorBusy }: Sample): boolean {
  return busy >= LEAST_BUSY || (processorBusy !== null && busy + processorBusy >= LEAST_BUSY_TOGETHER);
}

function describe({ name }: Variant, round: number, sample: Sample, faults: readonly string[]): string {
  const others = Object.entries(sample.otherUs).map(([other, us]) => `${other} ${us.toFixed(1)} us`);
  const parts = [
    `${sample.perSecond.toFixed(0).padStart(6)}/s`,
    `p50 ${sample.p50Ms.toFixed(2)} ms`,
    `p99 ${sample.p99Ms.toFixed(2)} ms`,
    `busy ${(sample.busy * 100).toFixed(0)} %`,
    ...(sample.processorBusy === null ? [] : [`processor ${(sample.processorBusy * 100).toFixed(0)} %`]),
    `envoy ${sample.envoyUs.toFixed(1)} us`,
    ...others,
  ];
  const verdict = faults.length === 0 ? '' : `  does not count: ${faults.join('; ')}`;
  return `round ${round}  ${name.padEnd(14)} ${parts.join('  ')}${verdict}`;
}

/** Median over the rounds of a variant's throughput as a part of the base's in the same round. */
export function ratio(samples: readonly Sample[], base: readonly Sample[]): number {
  return median(samples.map(({ perSecond }, round) => perSecond / base[round]!.perSecond));
}

/** Median of one figure. */
export function middle(samples: readonly Sample[], pick: (sample: Sample) => number): number {
  return median(samples.map(pick));
}
