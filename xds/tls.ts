import { experimental, type ServerCredentials } from '@grpc/grpc-js';
import type { Redacted } from '../base/redacted.ts';
import { spiffeIdOfAltNames } from '../identity/spiffe.ts';
import type { Caller } from './view.ts';

/** What the server shows and what it asks of its clients; all PEM. */
export interface ServerTls {
  readonly certificatePem: string;
  readonly keyPem: Redacted;
  /** The CA of workloads; every client must present a certificate of it. */
  readonly caPem: string;
}

type CaListener = experimental.CaCertificateUpdateListener;
type IdentityListener = experimental.IdentityCertificateUpdateListener;

/** Server credentials of mutual TLS whose certificate can be replaced while connections live. */
export class RotatingTls implements experimental.CertificateProvider {
  #tls: ServerTls;
  readonly #cas = new Set<CaListener>();
  readonly #identities = new Set<IdentityListener>();

  constructor(tls: ServerTls) {
    this.#tls = tls;
  }

  credentials(): ServerCredentials {
    return experimental.createCertificateProviderServerCredentials(this, this, true);
  }

  /** New connections see the new certificate; those that stand keep theirs. */
  replace(tls: ServerTls): void {
    this.#tls = tls;
    for (const listener of this.#cas) {
      this.#tellCa(listener);
    }
    for (const listener of this.#identities) {
      this.#tellIdentity(listener);
    }
  }

  addCaCertificateListener(listener: CaListener): void {
    this.#cas.add(listener);
    // Later, because the credentials register their own watcher only after this call.
    process.nextTick(() => this.#tellCa(listener));
  }

  removeCaCertificateListener(listener: CaListener): void {
    this.#cas.delete(listener);
  }

  addIdentityCertificateListener(listener: IdentityListener): void {
    this.#identities.add(listener);
    process.nextTick(() => this.#tellIdentity(listener));
  }

  removeIdentityCertificateListener(listener: IdentityListener): void {
    this.#identities.delete(listener);
  }

  #tellCa(listener: CaListener): void {
    listener({ caCertificate: Buffer.from(this.#tls.caPem) });
  }

  #tellIdentity(listener: IdentityListener): void {
    const { certificatePem, keyPem } = this.#tls;
    listener({ certificate: Buffer.from(certificatePem), privateKey: Buffer.from(keyPem.reveal()) });
  }
}

/** A call of a grpc-js server, as far as its peer is concerned. */
export interface AuthenticatedCall {
  getAuthContext(): { readonly sslPeerCertificate?: { readonly subjectaltname?: string | undefined } };
}

/** Who calls: the one SPIFFE id of the verified client certificate; null when there is none (D6). */
export function callerOf(call: AuthenticatedCall): Caller | null {
  const spiffeId = spiffeIdOfAltNames(call.getAuthContext().sslPeerCertificate?.subjectaltname);
  return spiffeId === null ? null : { spiffeId };
}
