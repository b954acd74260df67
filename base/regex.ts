import { RE2JS } from 're2js';
import { CodedError, errorText } from './errors.ts';

/** A compiled RE2 expression: linear time, the dialect that Envoy uses. */
export interface Regex {
  /** Unanchored search, as the specification's Regex tests are (egress-policy §3.2). */
  search(text: string): boolean;
  /** The whole text. */
  fullMatch(text: string): boolean;
}

/** Compiles an RE2 expression; throws `invalid-regex` with RE2's reason. `.` matches every character, also newlines. */
export function compileRegex(source: string): Regex {
  try {
    const compiled = RE2JS.compile(source, RE2JS.DOTALL);
    return { search: (text) => compiled.matcher(text).find(), fullMatch: (text) => compiled.matches(text) };
  } catch (error) {
    throw new CodedError('invalid-regex', `invalid regular expression: ${errorText(error)}`, { cause: error });
  }
}
