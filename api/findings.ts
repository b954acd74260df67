import type { FieldError } from '../base/errors.ts';

/** What checking one object found, in the two levels of D2, and what is worth a word all the same. */
export interface Findings {
  /** The object is invalid: it must not take the place of its last good form. */
  readonly invalid: readonly FieldError[];
  /**
   * `apply` refuses these too; in a stored object only what is named is left out, and a condition says so. Never part of
   * what rejects, blocks or denies: there the object is invalid, since it would be weaker than it reads.
   */
  readonly omitted: readonly FieldError[];
  /** What is well-formed and has no effect: `apply` and a condition say so. */
  readonly warnings: readonly FieldError[];
}

export const NO_FINDINGS: Findings = { invalid: [], omitted: [], warnings: [] };

/** Every finding of the two levels. */
export function allFindings(findings: Findings): readonly FieldError[] {
  return [...findings.invalid, ...findings.omitted];
}
