/** Roles of a plane that are processes of their own and may be run apart (`up --without ROLE`, `sandgate ROLE`). */
export const ROLE_NAMES = [
  'control-plane',
  'controller',
  'egress-processor',
  'ingress-processor',
  'egress-gateway',
  'ingress-gateway',
] as const;

export type RoleName = (typeof ROLE_NAMES)[number];

/**
 * Flags of Node for the process of a role: a small nursery, which is most of what an idle process holds, but one large
 * enough for those that answer every request, or an eighth of their time goes into collecting it.
 */
export function nodeFlags(role: RoleName): readonly string[] {
  return [`--max-semi-space-size=${role.endsWith('-processor') ? 16 : 4}`];
}
