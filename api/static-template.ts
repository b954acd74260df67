/** One piece of a value template: literal text, or the place of the credential. */
export type TemplatePart = { readonly literal: string } | { readonly token: true };

const PLACEHOLDER = /^\{\{[ \t\r\n]*\.Token[ \t\r\n]*\}\}/;

/**
 * Parses a template that holds only literal text and `{{ .Token }}` (egress-policy §6.3, the part that is carried
 * out). Null for anything else: another placeholder, a function, a trim marker, an action that is not closed.
 */
export function parseStaticTemplate(source: string): readonly TemplatePart[] | null {
  const parts: TemplatePart[] = [];
  let rest = source;
  while (rest !== '') {
    const open = rest.indexOf('{{');
    if (open !== 0) {
      parts.push({ literal: open < 0 ? rest : rest.slice(0, open) });
      rest = open < 0 ? '' : rest.slice(open);
      continue;
    }
    const placeholder = PLACEHOLDER.exec(rest);
    if (placeholder === null) {
      return null;
    }
    parts.push({ token: true });
    rest = rest.slice(placeholder[0].length);
  }
  return parts;
}

/** The template with the credential in its place. */
export function renderStaticTemplate(parts: readonly TemplatePart[], token: string): string {
  return parts.map((part) => ('literal' in part ? part.literal : token)).join('');
}
