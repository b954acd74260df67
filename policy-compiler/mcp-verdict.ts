import type { McpToolPolicy } from '../api/security-profile.ts';

/** What scanning the complete body of a request found (egress-policy §4, steps 1–6). */
export type McpCall =
  /** `tools/call`; `tool` is null when the name is absent, no string or empty; `version` is the header's value. */
  | { readonly kind: 'call'; readonly tool: string | null; readonly version: string | null }
  /** A readable message that is no tool call. */
  | { readonly kind: 'other' }
  | { readonly kind: 'unreadable' }
  /** No body, or only white space. */
  | { readonly kind: 'empty' };

export const MCP_VERSIONS: readonly string[] = ['2025-06-18', '2025-11-25', '2026-07-28'];

/** The only method that a policy governs. */
export const MCP_CALL = 'tools/call';

/**
 * The verdict of one policy about one message (egress-policy §4, steps 1 and 7–11). What cannot be read is denied where
 * the default or any rule denies (D13): the body could hide the denied call.
 */
export function mcpVerdict(policy: McpToolPolicy, call: McpCall): 'allow' | 'deny' {
  switch (call.kind) {
    case 'empty':
    case 'other':
      return 'allow';
    case 'unreadable':
      return policy.defaultAction === 'allow' && policy.rules.every(({ action }) => action === 'allow')
        ? 'allow'
        : 'deny';
    case 'call':
      return callVerdict(policy, call.tool, call.version);
  }
}

function callVerdict(policy: McpToolPolicy, tool: string | null, version: string | null): 'allow' | 'deny' {
  if (version === null || !MCP_VERSIONS.includes(version)) {
    return policy.unsupportedVersionAction === 'passthrough' ? 'allow' : 'deny';
  }
  const rule =
    tool === null || tool === ''
      ? undefined
      : policy.rules.find(
          ({ method, toolNames = [] }) => method === MCP_CALL && (toolNames.length === 0 || toolNames.includes(tool)),
        );
  return (rule?.action ?? policy.defaultAction) === 'allow' ? 'allow' : 'deny';
}
