import type { MatchedRule } from '../api/decision.ts';
import { refText } from '../api/object.ts';

const PREFIX = 'sandgate_ext_proc';

/**
 * Response code details of a request that the processor answered: the reason and the rule behind it, in one word, so
 * that the access log can tell who decided. Envoy allows no white space in it.
 */
export function encodeDetails(reason: string, rule: MatchedRule | null): string {
  const parts = rule === null ? [reason] : [reason, refText(rule.profile), rule.rule];
  return [PREFIX, ...parts.map(encodeURIComponent)].join(':');
}

/** Reads {@link encodeDetails} back; null for details that Envoy wrote itself. */
export function decodeDetails(
  details: string,
): { readonly reason: string; readonly policy: string; readonly rule: string } | null {
  const [prefix, reason = '', policy = '', rule = ''] = details.split(':').map(decode);
  return prefix === PREFIX ? { reason, policy, rule } : null;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
