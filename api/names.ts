import type { FieldError } from '../base/errors.ts';
import { isMap, memberPath } from './schema-check.ts';

/** Kubernetes' rules of names, labels and annotations. */

const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const QUALIFIED = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

/** Lower-case letters, digits and `-`, at most 63. */
export function isDnsLabel(text: string): boolean {
  return text.length <= 63 && DNS_LABEL.test(text);
}

/** Labels of letters, digits and `-` joined with dots, at most 253. */
export function isDnsSubdomain(text: string): boolean {
  return text.length <= 253 && DNS_SUBDOMAIN.test(text);
}

/** A key of a label or annotation: a name of at most 63 with an optional DNS prefix and `/`. */
export function isQualifiedName(text: string): boolean {
  const parts = text.split('/');
  const name = parts.at(-1)!;
  const prefixGood = parts.length === 1 || (parts.length === 2 && isDnsSubdomain(parts[0]!));
  return prefixGood && name.length <= 63 && QUALIFIED.test(name);
}

/** Empty, or at most 63 letters, digits, `-`, `_`, `.` with a letter or digit at both ends. */
export function isLabelValue(text: string): boolean {
  return text === '' || (text.length <= 63 && QUALIFIED.test(text));
}

/** Errors of a map of labels. */
export function labelErrors(value: unknown, path: string): FieldError[] {
  return mapErrors(value, path, (text) =>
    isLabelValue(text)
      ? null
      : `${JSON.stringify(text)} is no label value: at most 63 letters, digits, "-", "_" and ".", a letter or digit at both ends`,
  );
}

/** Errors of a map of annotations. */
export function annotationErrors(value: unknown, path: string): FieldError[] {
  return mapErrors(value, path, () => null);
}

function mapErrors(value: unknown, path: string, problem: (text: string) => string | null): FieldError[] {
  if (!isMap(value)) {
    return [{ path, reason: 'must be a map of strings' }];
  }
  return Object.entries(value).flatMap(([key, member]) => {
    const at = memberPath(path, key);
    if (!isQualifiedName(key)) {
      return [
        { path: at, reason: 'is no valid key: at most 63 letters, digits, "-", "_", ".", with an optional DNS prefix' },
      ];
    }
    if (typeof member !== 'string') {
      return [{ path: at, reason: 'must be a string (put quotes around numbers, true and false)' }];
    }
    const reason = problem(member);
    return reason === null ? [] : [{ path: at, reason }];
  });
}
