import type { Decision } from '../../api/decision.ts';
import { FEATURES, featuresOf } from './coverage.ts';
import { generatePairs, type Pair } from './generate.ts';

/** A pair with what `decide()` says about it. */
export interface DecidedPair extends Pair {
  readonly decided: Decision;
}

/** Generated for each pair that is taken. */
const CANDIDATES = 4;

/**
 * `count` generated pairs in which every feature has at least this share, as far as the candidates allow: those that
 * hold a feature still missing are taken first, the others fill up in the order generated. The same for the same seed.
 */
export function balancedPairs(
  seed: number,
  count: number,
  share: number,
  decider: (pair: Pair) => Decision,
): readonly DecidedPair[] {
  const candidates = generatePairs(seed, count * CANDIDATES).map((pair) => ({ ...pair, decided: decider(pair) }));
  const wanted = new Map(FEATURES.map((feature) => [feature, Math.ceil(count * share)]));
  const taken = new Set<DecidedPair>();
  for (const pair of candidates) {
    const features = featuresOf(pair, pair.decided);
    if (taken.size < count && [...features].some((feature) => (wanted.get(feature) ?? 0) > 0)) {
      taken.add(pair);
      for (const feature of features) {
        wanted.set(feature, (wanted.get(feature) ?? 0) - 1);
      }
    }
  }
  for (const pair of candidates) {
    if (taken.size < count) {
      taken.add(pair);
    }
  }
  return [...taken];
}
