/** The path of a request target: everything before the first `?`. */
export function pathOf(target: string): string {
  const mark = target.indexOf('?');
  return mark < 0 ? target : target.slice(0, mark);
}

/**
 * RE2 source that finds what makes a path odd (D8): what a server may take for another path. It is searched in the path
 * without query. Escaped unreserved characters are letters, digits, `-`, `.`, `_`, `~`.
 */
export const ODD_PATH =
  '//|/\\.\\.?(?:/|$)|\\\\|;|%(?:2[deDEfF]|3[0-9]|4[1-9a-fA-F]|5[0-9aA]|5[cCfF]|6[1-9a-fA-F]|7[0-9aAeE])';

const odd = new RegExp(ODD_PATH);

/** Whether normalising could change the path; such a path is decided in both forms (D8). */
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
