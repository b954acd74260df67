import type { FieldError } from '../base/errors.ts';
import type { LabelSelector } from './common.ts';
import { isLabelValue, isQualifiedName, labelErrors } from './names.ts';

const OPERATORS: Readonly<Record<string, 'some' | 'none'>> = {
  In: 'some',
  NotIn: 'some',
  Exists: 'none',
  DoesNotExist: 'none',
};

/** What is wrong with a LabelSelector that fits its schema: operators, their values, keys (crds B8). */
export function selectorErrors(selector: LabelSelector, path: string): FieldError[] {
  const errors: FieldError[] = labelErrors(selector.matchLabels ?? {}, `${path}.matchLabels`);
  for (const [index, { key, operator, values = [] }] of (selector.matchExpressions ?? []).entries()) {
    const at = `${path}.matchExpressions[${index}]`;
    const wants = Object.hasOwn(OPERATORS, operator) ? OPERATORS[operator] : undefined;
    if (!isQualifiedName(key)) {
      errors.push({ path: `${at}.key`, reason: `${JSON.stringify(key)} is no label key` });
    }
    if (wants === undefined) {
      const reason = `${JSON.stringify(operator)} is not one of ${Object.keys(OPERATORS).join(', ')}`;
      errors.push({ path: `${at}.operator`, reason });
    } else if (wants === 'some' && values.length === 0) {
      errors.push({ path: `${at}.values`, reason: `must have at least one value with operator ${operator}` });
    } else if (wants === 'none' && values.length > 0) {
      errors.push({ path: `${at}.values`, reason: `must be absent with operator ${operator}` });
    }
    for (const [position, value] of values.entries()) {
      if (!isLabelValue(value)) {
        errors.push({ path: `${at}.values[${position}]`, reason: `${JSON.stringify(value)} is no label value` });
      }
    }
  }
  return errors;
}
