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
