import type { KubeObject } from '../api/object.ts';
import { Redacted } from '../base/redacted.ts';

/**
 * The value of one key of a Secret as it may travel in a header: decoded (`stringData` wins over `data`, as on
 * Kubernetes), surrounding white space trimmed. Null when the key is missing, empty, not UTF-8, or holds a control
 * character (egress-policy §6.2 step 4).
 */
export function secretValue(secret: KubeObject, key: string): Redacted<string> | null {
  const text = member(secret['stringData'], key) ?? decode(member(secret['data'], key));
  const value = text?.trim();
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  return value === undefined || value === '' || /[\u0000-\u0008\u000a-\u001f\u007f]/.test(value)
    ? null
    : new Redacted(value);
}

/** Keys of a Secret that {@link secretValue} can give, sorted. */
export function usableKeys(secret: KubeObject): readonly string[] {
  const names = new Set([...keysOf(secret['stringData']), ...keysOf(secret['data'])]);
  return [...names].filter((key) => secretValue(secret, key) !== null).sort();
}

function keysOf(map: unknown): string[] {
  return map !== null && typeof map === 'object' ? Object.keys(map) : [];
}

function member(map: unknown, key: string): string | undefined {
  if (map === null || typeof map !== 'object' || !Object.hasOwn(map, key)) {
    return undefined;
  }
  const value = (map as Record<string, unknown>)[key];
  return typeof value === 'string' ? value : undefined;
}

function decode(base64: string | undefined): string | undefined {
  if (base64 === undefined) {
    return undefined;
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(base64, 'base64'));
  } catch {
    return undefined;
  }
}
