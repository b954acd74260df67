/** The path of a request target: everything before the first `?`. */
export function pathOf(target: string): string {
  const mark = target.indexOf('?');
  return mark < 0 ? target : target.slice(0, mark);
}

/**
 * RE2 source that finds what makes a path odd (D8): what a server may take for another path. It is searched in the path
 * without query. Escaped unreserved characters are letters, digits, `-`, `.`, `_`, `~`; `%25` may escape an escape.
 */
export const ODD_PATH =
  '//|/\\.\\.?(?:/|$)|\\\\|;|%(?:2[5deDEfF]|3[0-9]|4[1-9a-fA-F]|5[0-9aA]|5[cCfF]|6[1-9a-fA-F]|7[0-9aAeE])';

const odd = new RegExp(ODD_PATH);

/** Whether normalising or decoding could change the path; such a path is decided in every form (D8). */
export function isOddPath(path: string): boolean {
  return odd.test(path);
}

/**
 * The form in which a lenient server may read the path: unreserved characters, `/` and `\` unescaped, `\` as `/`,
 * parameters after `;` dropped, slashes merged, dot segments resolved. What does not begin with `/` stays as it is. The
 * upstream always receives the raw path (D8).
 */
export function normalPath(path: string): string {
  if (!path.startsWith('/')) {
    return path;
  }
  const unescaped = path.replaceAll(/%([0-9a-fA-F]{2})/g, (whole, digits: string) => {
    const char = String.fromCharCode(Number.parseInt(digits, 16));
    return /[A-Za-z0-9\-._~/\\]/.test(char) ? char : whole;
  });
  const segments: string[] = [];
  const parts = unescaped.replaceAll('\\', '/').split('/');
  for (const [index, part] of parts.entries()) {
    const segment = part.replace(/;.*$/s, '');
    const last = index === parts.length - 1;
    if (segment === '..') {
      segments.pop();
    }
    const dots = segment === '.' || segment === '..';
    if (!dots && (segment !== '' || last)) {
      segments.push(segment);
    } else if (dots && last) {
      segments.push('');
    }
  }
  return `/${segments.join('/')}`;
}

/**
 * The path as servers read it that decode again what they have decoded, up to the end: what {@link normalPath} unescapes,
 * and `%` itself, until nothing is left to unescape. One pass, whatever the nesting: an escape is undone as soon as its
 * last character is there, and may complete another.
 */
export function decodedPath(path: string): string {
  const decoded: string[] = [];
  for (const char of path) {
    decoded.push(char);
    while (decoded.at(-3) === '%') {
      const plain = UNESCAPED.get((decoded.at(-2)! + decoded.at(-1)!).toLowerCase());
      if (plain === undefined) {
        break;
      }
      decoded.length -= 3;
      decoded.push(plain);
    }
  }
  return decoded.join('');
}

/** What an escape stands for, by its digits in lower case; nothing for one that is not undone. */
const UNESCAPED: ReadonlyMap<string, string> = new Map(
  Array.from(
    { length: 128 },
    (_, code) => [code.toString(16).padStart(2, '0'), String.fromCharCode(code)] as const,
  ).filter(([, char]) => /[A-Za-z0-9\-._~/\\%]/.test(char)),
);

let last: { readonly path: string; readonly forms: readonly string[] } = { path: '', forms: [] };

/** Every form in which a lenient server may read an odd path. Many clauses look at one request, so the last is kept. */
export function lenientForms(path: string): readonly string[] {
  if (last.path !== path) {
    last = { path, forms: [...new Set([normalPath(path), normalPath(decodedPath(path))])] };
  }
  return last.forms;
}
