import { compileRegex } from '../base/regex.ts';
import { CONDITION_REASON, type Condition } from './common.ts';

/** Conditions of a status (crds B9, lifecycle §0.5, D31). */

/** What a condition says; time and generation are added when it is set. */
export interface ConditionValue {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  /** A text that is no CamelCase word is rewritten until it is one. */
  readonly reason: string;
  readonly message?: string;
}

const MESSAGE_BYTES = 1024;
const reasonPattern = compileRegex(CONDITION_REASON);

/** The condition of that type, or undefined; a list that is none has no conditions. */
export function findCondition(list: readonly Condition[] | undefined, type: string): Condition | undefined {
  return Array.isArray(list) ? list.find((entry: Condition) => entry?.type === type) : undefined;
}

/** Whether the condition of that type is True. */
export function isConditionTrue(list: readonly Condition[] | undefined, type: string): boolean {
  return findCondition(list, type)?.status === 'True';
}

/**
 * The list with one condition set. It is the same list when nothing changed; `lastTransitionTime` moves only when the
 * status does. `now` is RFC 3339, `generation` that of the object that was looked at.
 */
export function setCondition(
  list: readonly Condition[] | undefined,
  value: ConditionValue,
  at: { readonly now: string; readonly generation: number },
): readonly Condition[] {
  const known = Array.isArray(list) ? list : [];
  const old = findCondition(known, value.type);
  const next: Condition = {
    type: value.type,
    status: value.status,
    reason: conditionReason(value.reason),
    message: cutMessage(value.message ?? ''),
    lastTransitionTime: old !== undefined && old.status === value.status ? old.lastTransitionTime : at.now,
    observedGeneration: at.generation,
  };
  if (old === undefined) {
    return [...known, next];
  }
  const same = (['status', 'reason', 'message', 'observedGeneration'] as const).every((key) => old[key] === next[key]);
  return same ? known : known.map((entry: Condition) => (entry === old ? next : entry));
}

/** The list without conditions of these types; the same list when there are none. */
export function withoutConditions(
  list: readonly Condition[] | undefined,
  ...types: readonly string[]
): readonly Condition[] {
  const known = Array.isArray(list) ? list : [];
  return known.some((entry: Condition) => types.includes(entry.type))
    ? known.filter((entry: Condition) => !types.includes(entry.type))
    : known;
}

/** A reason that fits the schema: other characters become `_`, an empty one `Unknown`. */
export function conditionReason(text: string): string {
  if (text.length <= 1024 && reasonPattern.fullMatch(text)) {
    return text;
  }
  const word = text
    .slice(0, 1024)
    .replace(/[^A-Za-z0-9_,:]/g, '_')
    .replace(/^[^A-Za-z]+/, '')
    .replace(/[,:]+$/, '');
  return word === '' ? 'Unknown' : word;
}

/** At most {@link MESSAGE_BYTES} bytes of UTF-8, whole characters, with `...` after a cut. */
export function cutMessage(text: string): string {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= MESSAGE_BYTES) {
    return text;
  }
  let end = MESSAGE_BYTES;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) {
    end -= 1;
  }
  return `${bytes.subarray(0, end).toString('utf8')}...`;
}
