import * as assert from 'node:assert/strict';
import type { Decision, ExplainedDecision } from '../../api/decision.ts';

/**
 * A decision without what two deciders name on their own: the hash of the policy set, and who answers. Everything
 * else, to the last word of a body, has to be the same.
 */
export function comparable(decision: Decision | ExplainedDecision): Pick<Decision, 'tls' | 'l4' | 'l7'> {
  const { tls, l4, l7 } = decision;
  return { tls, l4, l7 };
}

/** Throws an assertion error that shows the difference. */
export function assertSame(explained: Decision, decided: Decision): void {
  assert.deepEqual(comparable(explained), comparable(decided));
}

/** Whether two deciders agree. */
export function agree(explained: Decision, decided: Decision): boolean {
  try {
    assertSame(explained, decided);
    return true;
  } catch {
    return false;
  }
}
