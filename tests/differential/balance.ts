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
 * hold a rare feature are taken first, the others fill up in the order generated. The same for the same seed.
 */
export function balancedPairs(
  seed: number,
  count: number,
  share: number,
  decider: (pair: Pair) => Decision,
): readonly DecidedPair[] {
  const candidates = generatePairs(seed, count * CANDIDATES).map((pair) => ({ ...pair, decided: decider(pair) }));
  const features = new Map(candidates.map((pair) => [pair, featuresOf(pair, pair.decided)]));
  const holders = (feature: string) => candidates.filter((pair) => features.get(pair)!.has(feature));
  const rarestFirst = FEATURES.map((feature) => [feature, holders(feature)] as const).sort(
    ([, a], [, b]) => a.length - b.length,
  );
  const taken = new Set<DecidedPair>();
  for (const [feature, pairs] of rarestFirst) {
    let missing = Math.ceil(count * share) - [...taken].filter((pair) => features.get(pair)!.has(feature)).length;
    for (const pair of pairs) {
      if (missing > 0 && taken.size < count && !taken.has(pair)) {
        taken.add(pair);
        missing -= 1;
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
