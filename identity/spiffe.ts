/**
 * The room `identity/` says who a process is: the private CA, role, sidecar and interception certificates, sandbox
 * tokens. It knows no policy and no Envoy.
 */
import { CodedError } from '../base/errors.ts';

/** Part of every id; one installation has one trust domain (docs/architecture.md, Identities). */
export const TRUST_DOMAIN = 'sandgate.local';

/** The processes that own a certificate of their own. */
export const ROLES = ['control-plane', 'egress', 'ingress'] as const;
export type Role = (typeof ROLES)[number];

/** A sandbox as its sidecar's certificate names it. */
export interface SandboxIdentity {
  readonly namespace: string;
  /** The Sandbox object's uid, never its name: names come back, uids do not (D5). */
  readonly uid: string;
}

/** What a SPIFFE id of this trust domain says. */
export type Identity =
  | { readonly kind: 'role'; readonly role: Role }
  | ({ readonly kind: 'sandbox' } & SandboxIdentity);

const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * Whether the text can be a Sandbox uid. Keys with another meaning in a scope table, such as `!pin-…` and `i:…`, have a
 * character that no uid has, so a token can never name one (D33).
 */
export function isUid(text: string): boolean {
  return LABEL.test(text);
}

/** `spiffe://sandgate.local/role/<role>`. */
export function roleId(role: Role): string {
  return `spiffe://${TRUST_DOMAIN}/role/${role}`;
}

/** `spiffe://sandgate.local/ns/<namespace>/sandbox/<uid>`; throws `invalid-identity` for anything but plain labels. */
export function sandboxId({ namespace, uid }: SandboxIdentity): string {
  if (!LABEL.test(namespace)) {
    throw new CodedError('invalid-identity', 'namespace must be a lower-case DNS label');
  }
  if (!isUid(uid)) {
    throw new CodedError('invalid-identity', 'uid must be lower-case letters, digits and -, at most 63');
  }
  return `spiffe://${TRUST_DOMAIN}/ns/${namespace}/sandbox/${uid}`;
}

/** The identity behind a SPIFFE id, or null when it is not exactly one that {@link roleId} or {@link sandboxId} makes. */
export function parseSpiffeId(text: string): Identity | null {
  const prefix = `spiffe://${TRUST_DOMAIN}/`;
  if (!text.startsWith(prefix)) {
    return null;
  }
  const parts = text.slice(prefix.length).split('/');
  if (parts.length === 2 && parts[0] === 'role') {
    const role = ROLES.find((known) => known === parts[1]);
    return role === undefined ? null : { kind: 'role', role };
  }
  const [ns, namespace = '', sandbox, uid = ''] = parts;
  if (parts.length !== 4 || ns !== 'ns' || sandbox !== 'sandbox' || !LABEL.test(namespace) || !isUid(uid)) {
    return null;
  }
  return { kind: 'sandbox', namespace, uid };
}

/**
 * The one SPIFFE id in a certificate's subject alternative names, in Node's text form (`URI:spiffe://…, DNS:…`); null
 * when there is none or more than one URI, or when it is not of this trust domain.
 */
export function spiffeIdOfAltNames(subjectAltName: string | undefined): string | null {
  const uris = (subjectAltName ?? '').split(', ').filter((part) => part.startsWith('URI:'));
  const id = uris.length === 1 ? uris[0]!.slice('URI:'.length) : '';
  return parseSpiffeId(id) === null ? null : id;
}
