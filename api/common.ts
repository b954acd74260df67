import type { Type } from 'typebox';
import { type DeepReadonly, int64, list, object, oneOf, optional, text, textMap, time } from './schema.ts';

/** Blocks that several kinds share (crds §1). */

/** B8: a LabelSelector; which operators are valid is no matter of the schema. */
export const labelSelector = (description: string) =>
  object(
    {
      matchLabels: optional(textMap()),
      matchExpressions: optional(
        list(
          object({
            key: text(),
            operator: text(),
            values: optional(list(text(), { listType: 'atomic' })),
          }),
          { listType: 'atomic' },
        ),
      ),
    },
    { description, mapType: 'atomic' },
  );

export type LabelSelector = DeepReadonly<Type.Static<ReturnType<typeof labelSelector>>>;

const CONDITION_TYPE =
  '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$';

export const CONDITION_REASON = '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$';

/** B9: one condition. */
const condition = object({
  type: text({ maxLength: 316, pattern: CONDITION_TYPE }),
  status: oneOf(['True', 'False', 'Unknown']),
  reason: text({ minLength: 1, maxLength: 1024, pattern: CONDITION_REASON }),
  message: text({ maxLength: 32768 }),
  lastTransitionTime: time(),
  observedGeneration: optional(int64({ minimum: 0 })),
});

export type Condition = DeepReadonly<Type.Static<typeof condition>>;

/** B9: the list of conditions of a status. */
export const conditions = (maxItems?: number) =>
  list(condition, { listKeys: ['type'], ...(maxItems === undefined ? {} : { maxItems }) });
