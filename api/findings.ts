import type { FieldError } from '../base/errors.ts';

/** What checking one object found, in the two levels of D2. */
export interface Findings {
  /** The object is invalid: it must not take the place of its last good form. */
  readonly invalid: readonly FieldError[];
  /** `apply` refuses these too; in a stored object only what is named is left out, and a condition says so. */
  readonly omitted: readonly FieldError[];
}

/** Every finding of both levels. */
export function allFindings(findings: Findings): readonly FieldError[] {
  return [...findings.invalid, ...findings.omitted];
}
