/** The longest reason that is kept. */
const MAX_DETAIL = 500;

const PGV_MARKER = ': Proto constraint validation failed';

/**
 * Signs that a text quotes the resource: Envoy prints it after `goo.gle/debug…` (the rest of that word changes per
 * process), and a secret's fields have these names.
 */
const QUOTES = /goo\.gle\/|inline_string|inline_bytes|private_key|type_url:|-----BEGIN|\n\s*[a-z_]+ \{/;

const UNPACK = /^Unable to unpack as ([A-Za-z0-9_.]+)/;

/**
 * Envoy's reason for a rejection without any content of the resource: for a constraint only the part after the marker,
 * for an unparsable resource only its type. Whatever else quotes content becomes a sentence that says so. A sensitive
 * resource has no reason at all (D7).
 */
export function nackDetail(message: string, sensitive: boolean): string | null {
  if (sensitive) {
    return null;
  }
  const unpack = UNPACK.exec(message);
  if (unpack !== null) {
    return `cannot be parsed as ${unpack[1]}`;
  }
  const marker = message.lastIndexOf(PGV_MARKER);
  const text = marker >= 0 ? message.slice(marker + 2) : message;
  if (QUOTES.test(text)) {
    return 'rejected by Envoy; the reason quotes the resource and is not kept';
  }
  const line = text.replace(/[\p{Cc}\s]+/gu, ' ').trim();
  return line.length > MAX_DETAIL ? `${line.slice(0, MAX_DETAIL)}…` : line;
}

/**
 * Which of the names of a rejected response its text blames. Only clusters and listeners are named, as
 * `Error adding/updating cluster(s) a: <reason>, b: <reason>` or one a line. The answer is a hint for the order of the
 * next tries, never a verdict: reasons are free text.
 */
export function blamedNames(message: string, candidates: readonly string[]): string[] {
  const start = /^Error adding\/updating (?:cluster|listener)\(s\) /.exec(message);
  if (start === null) {
    return [];
  }
  const list = message.slice(start[0].length);
  return candidates.filter((name) =>
    [`${name}: `, `, ${name}: `, `\n${name}: `].some((text, index) =>
      index === 0 ? list.startsWith(text) : list.includes(text),
    ),
  );
}

/**
 * How to send the members of a rejected response again: blamed ones alone and the others together; without a usable
 * hint, two halves.
 */
export function suspects(message: string, names: readonly string[]): string[][] {
  const blamed = blamedNames(message, names);
  if (blamed.length === 0) {
    const middle = names.length >> 1;
    return [names.slice(0, middle), names.slice(middle)];
  }
  const rest = names.filter((name) => !blamed.includes(name));
  return [...(rest.length > 0 ? [rest] : []), ...blamed.map((name) => [name])];
}
