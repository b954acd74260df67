import './reflect-metadata.ts';
import {
  createPrivateKey,
  createPublicKey,
  X509Certificate as NodeCertificate,
  randomBytes,
  webcrypto,
} from 'node:crypto';
import * as x509 from '@peculiar/x509';
import { CodedError } from '../base/errors.ts';
import { Redacted } from '../base/redacted.ts';

/** A certificate with its private key, both PEM; times are milliseconds since the epoch. */
export interface Certificate {
  readonly certificatePem: string;
  /** PKCS #8. */
  readonly keyPem: Redacted;
  readonly notAfter: number;
  /** When two thirds of the life are over: issue a new one from here on. */
  readonly renewAt: number;
}

/** What to issue. `keyPem` keeps an existing key, so that only the certificate has to be replaced. */
export interface IssueRequest {
  readonly now: number;
  readonly lifetimeMs: number;
  readonly keyPem?: Redacted;
}

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

/** Certificates are valid from a little before now, for clocks that lag. */
const BACKDATE_MS = 5 * 60_000;

const LDH_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * Whether a name may have an interception leaf: lower-case LDH labels, at most 253 characters, no trailing dot, no
 * wildcard, no address. Upper case is refused because a matcher sees the lower-cased SNI while a certificate is asked
 * for by the raw one.
 */
export function isLeafName(name: string): boolean {
  const labels = name.split('.');
  return name.length <= 253 && labels.every((label) => LDH_LABEL.test(label)) && !/^[0-9]+$/.test(labels.at(-1)!);
}

/** A CA with its key in memory. Issues certificates; never signs another CA. */
export class CertificateAuthority {
  readonly certificatePem: string;
  readonly keyPem: Redacted;
  readonly notAfter: number;
  readonly #certificate: x509.X509Certificate;
  readonly #key: webcrypto.CryptoKey;

  private constructor(certificate: x509.X509Certificate, key: webcrypto.CryptoKey, keyPem: Redacted) {
    this.#certificate = certificate;
    this.#key = key;
    this.certificatePem = `${certificate.toString('pem')}\n`;
    this.keyPem = keyPem;
    this.notAfter = certificate.notAfter.getTime();
  }

  /** A self-signed certificate for a key (PKCS #8 PEM, ECDSA P-256); the same key may be signed anew at any time. */
  static async create(commonName: string, request: IssueRequest): Promise<CertificateAuthority> {
    const keyPem = request.keyPem ?? (await createKey());
    const keys = await importKey(keyPem);
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      serialNumber: serial(),
      name: `CN=${commonName}`,
      ...validity(request),
      signingAlgorithm: ALGORITHM,
      keys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    });
    return new CertificateAuthority(certificate, keys.privateKey, keyPem);
  }

  /** Takes up a stored CA; throws `invalid-certificate` when certificate and key do not belong together. */
  static async load(certificatePem: string, keyPem: Redacted): Promise<CertificateAuthority> {
    try {
      const certificate = new x509.X509Certificate(certificatePem);
      const keys = await importKey(keyPem);
      const own = new NodeCertificate(certificatePem);
      if (!own.ca || !own.checkPrivateKey(createPrivateKey(keyPem.reveal()))) {
        throw new Error('not a CA certificate of this key');
      }
      return new CertificateAuthority(certificate, keys.privateKey, keyPem);
    } catch (error) {
      throw new CodedError('invalid-certificate', 'the CA certificate and its key cannot be read or do not match', {
        cause: error,
      });
    }
  }

  /** A certificate for a workload: one SPIFFE URI, client and server use. */
  async issueWorkload(spiffeId: string, request: IssueRequest): Promise<Certificate> {
    return this.#issue([{ type: 'url', value: spiffeId }], 'CN=Sandgate workload', true, request);
  }

  /** A server certificate for exactly one DNS name; throws `invalid-name` unless {@link isLeafName}. */
  async issueLeaf(name: string, request: IssueRequest): Promise<Certificate> {
    if (!isLeafName(name)) {
      throw new CodedError('invalid-name', 'a leaf is issued for one lower-case DNS name only');
    }
    return this.#issue([{ type: 'dns', value: name }], 'CN=Sandgate interception', false, request);
  }

  async #issue(
    names: x509.JsonGeneralName[],
    subject: string,
    client: boolean,
    request: IssueRequest,
  ): Promise<Certificate> {
    const keyPem = request.keyPem ?? (await createKey());
    const { publicKey } = await importKey(keyPem);
    const usages = [x509.ExtendedKeyUsage.serverAuth, ...(client ? [x509.ExtendedKeyUsage.clientAuth] : [])];
    const times = validity(request);
    const certificate = await x509.X509CertificateGenerator.create({
      serialNumber: serial(),
      subject,
      issuer: this.#certificate.subjectName,
      ...times,
      notAfter: new Date(Math.min(times.notAfter.getTime(), this.notAfter)),
      signingAlgorithm: ALGORITHM,
      signingKey: this.#key,
      publicKey,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension(usages),
        new x509.SubjectAlternativeNameExtension(names),
        await x509.AuthorityKeyIdentifierExtension.create(this.#certificate.publicKey),
      ],
    });
    return describe(`${certificate.toString('pem')}\n`, keyPem, times.notBefore.getTime());
  }
}

/** A stored certificate with its key, or null when it is unreadable, foreign to the CA or to the key. */
export function readCertificate(certificatePem: string, keyPem: Redacted, caPem: string): Certificate | null {
  try {
    const certificate = new NodeCertificate(certificatePem);
    const issuer = new NodeCertificate(caPem);
    if (!certificate.checkIssued(issuer) || !certificate.verify(issuer.publicKey)) {
      return null;
    }
    if (!certificate.checkPrivateKey(createPrivateKey(keyPem.reveal()))) {
      return null;
    }
    return describe(certificatePem, keyPem, Date.parse(certificate.validFrom));
  } catch {
    return null;
  }
}

/** A new ECDSA P-256 key as PKCS #8 PEM. */
export async function createKey(): Promise<Redacted> {
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  return new Redacted(pem(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)));
}

async function importKey(keyPem: Redacted): Promise<webcrypto.CryptoKeyPair> {
  const key = createPrivateKey(keyPem.reveal());
  const { subtle } = webcrypto;
  const [pkcs8, spki] = [
    key.export({ type: 'pkcs8', format: 'der' }),
    createPublicKey(key).export({ type: 'spki', format: 'der' }),
  ];
  return {
    privateKey: await subtle.importKey('pkcs8', Uint8Array.from(pkcs8), ALGORITHM, false, ['sign']),
    publicKey: await subtle.importKey('spki', Uint8Array.from(spki), ALGORITHM, true, ['verify']),
  };
}

function describe(certificatePem: string, keyPem: Redacted, notBefore: number): Certificate {
  const notAfter = Date.parse(new NodeCertificate(certificatePem).validTo);
  const begin = notBefore + BACKDATE_MS;
  return { certificatePem, keyPem, notAfter, renewAt: begin + ((notAfter - begin) * 2) / 3 };
}

function validity({ now, lifetimeMs }: IssueRequest): { notBefore: Date; notAfter: Date } {
  return { notBefore: new Date(now - BACKDATE_MS), notAfter: new Date(now + lifetimeMs) };
}

/** 127 random bits: a positive serial number. */
function serial(): string {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0]! & 0x7f) | 0x01;
  return bytes.toString('hex');
}

function pem(pkcs8: ArrayBuffer): string {
  const lines =
    Buffer.from(pkcs8)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN PRIVATE KEY-----\n${lines.join('\n')}\n-----END PRIVATE KEY-----\n`;
}
