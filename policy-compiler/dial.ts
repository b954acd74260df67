import { contentHash } from '../base/canonical.ts';
import type { DialName, DialPiece } from './policy-set.ts';

/** How the gateway reaches the upstream of a request. */
export interface Dial {
  /**
   * `name`: the gateway resolves the name. `hosts`: the operator's address for it. `captured`: the address that the
   * sandbox connected to.
   */
  readonly kind: 'name' | 'hosts' | 'captured';
  readonly tls: boolean;
  /** Ranges beyond the private ones that must not be dialled; only with `name`. */
  readonly notDialled: readonly string[];
  /** Credentials by header, sorted by header. */
  readonly injections: readonly { readonly header: string; readonly id: string }[];
}

/** Name of the cluster: what it holds, so that all tables share it. */
export function dialCluster({ kind, tls, notDialled, injections }: Dial): string {
  const plain = `${kind}:${tls ? 'tls' : 'plain'}`;
  return notDialled.length === 0 && injections.length === 0
    ? plain
    : `${plain}:${contentHash({ notDialled, injections })}`;
}

/** What the external processor writes into the plan header to have a request dialled with its credentials. */
export function planOf(dial: Dial): string {
  return contentHash(dialCluster(dial));
}

/** The dial of a request; `name` is the name behind its virtual address, null when it came to another address. */
export function dialOf(
  name: { readonly name: DialName; readonly piece: DialPiece } | null,
  tls: boolean,
  injections: Dial['injections'],
): Dial {
  if (name === null) {
    return { kind: 'captured', tls, notDialled: [], injections };
  }
  return name.name.host === null
    ? { kind: 'name', tls, notDialled: name.piece.notDialled, injections }
    : { kind: 'hosts', tls, notDialled: [], injections };
}
