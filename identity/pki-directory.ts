import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { contentHash } from '../base/canonical.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { CodedError } from '../base/errors.ts';
import { Redacted } from '../base/redacted.ts';
import { SingleFlight } from '../base/single-flight.ts';
import { type Certificate, CertificateAuthority, createKey, isLeafName, readCertificate } from './certificates.ts';
import { createPrivate, privateDirectory, readPrivate, replacePrivate } from './files.ts';
import {
  createTokenKey,
  parseTokenKeys,
  rotateTokenKeys,
  SandboxTokens,
  serializeTokenKeys,
  type TokenKey,
} from './sandbox-token.ts';
import { type Role, roleId, type SandboxIdentity, sandboxId } from './spiffe.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const CA_LIFETIME_MS = 3650 * DAY_MS;
const WORKLOAD_LIFETIME_MS = DAY_MS;
const LEAF_LIFETIME_MS = 30 * DAY_MS;

/** A certificate that lies in two files, for a process that reads files. */
export interface CertificateFiles extends Certificate {
  readonly certificateFile: string;
  readonly keyFile: string;
}

/**
 * What `pki/` can do. Every method may be called by several processes at once: keys are created once (the first wins)
 * and certificates are replaced by a rename.
 */
export interface Pki {
  readonly directory: string;
  /** Certificate of the CA of workloads: what a server or client of the plane trusts. */
  readonly caPem: string;
  readonly caFile: string;
  /** Certificate of the CA of interception leaves: what a sandbox trusts in addition to public roots. */
  readonly mitmCaPem: string;
  /** A new certificate, 24 h, with a key of its own; nothing is stored. */
  issueSidecarCertificate(identity: SandboxIdentity): Promise<Certificate>;
  /** The role's certificate in `<role>.crt` and `<role>.key`; issued anew (same key) when `renewAt` has come. */
  issueRoleCertificate(role: Role): Promise<CertificateFiles>;
  /** The leaf of one lower-case DNS name, with the CA appended; kept in `leaves/`, so restarts present equal bytes. */
  issueLeaf(name: string): Promise<Certificate>;
  /** Issuer and verifier of sandbox tokens with the keys as they are stored now. */
  tokens(): Promise<SandboxTokens>;
  /** Starts a rotation of the token key: see `rotateTokenKeys`. */
  rotateTokenKey(): Promise<void>;
}

/** Loads `pki/`, creating what is missing. Throws `key-exposed`, `invalid-certificate` or `certificate-expired`. */
export async function openPki(directory: string, clock: Clock = systemClock): Promise<Pki> {
  await privateDirectory(directory);
  const ca = await openAuthority(directory, 'ca', 'Sandgate workload CA', clock);
  const mitm = await openAuthority(directory, 'mitm-ca', 'Sandgate interception CA', clock);
  await mkdir(join(directory, 'leaves'), { recursive: true, mode: 0o700 });
  await createPrivate(join(directory, 'token.jwk'), serializeTokenKeys([await createTokenKey(0)]));
  return new PkiDirectory(directory, clock, ca, mitm);
}

class PkiDirectory implements Pki {
  readonly directory: string;
  readonly caPem: string;
  readonly caFile: string;
  readonly mitmCaPem: string;
  readonly #clock: Clock;
  readonly #ca: CertificateAuthority;
  readonly #mitm: CertificateAuthority;
  readonly #leaves = new Map<string, Certificate>();
  readonly #issuing = new SingleFlight<string, Certificate>();

  constructor(directory: string, clock: Clock, ca: CertificateAuthority, mitm: CertificateAuthority) {
    this.directory = directory;
    this.#clock = clock;
    this.#ca = ca;
    this.#mitm = mitm;
    this.caPem = ca.certificatePem;
    this.caFile = join(directory, 'ca.crt');
    this.mitmCaPem = mitm.certificatePem;
  }

  async issueSidecarCertificate(identity: SandboxIdentity): Promise<Certificate> {
    return this.#ca.issueWorkload(sandboxId(identity), { now: this.#clock.now(), lifetimeMs: WORKLOAD_LIFETIME_MS });
  }

  async issueRoleCertificate(role: Role): Promise<CertificateFiles> {
    const [certificateFile, keyFile] = [join(this.directory, `${role}.crt`), join(this.directory, `${role}.key`)];
    const keyPem = await ensureKey(keyFile);
    const stored = readCertificate((await readPrivate(certificateFile)) ?? '', keyPem, this.caPem);
    const now = this.#clock.now();
    if (stored !== null && now < stored.renewAt) {
      return { ...stored, certificateFile, keyFile };
    }
    // The key stays, so that the pair on disk fits together at every moment.
    const issued = await this.#ca.issueWorkload(roleId(role), { now, lifetimeMs: WORKLOAD_LIFETIME_MS, keyPem });
    await replacePrivate(certificateFile, issued.certificatePem);
    return { ...issued, certificateFile, keyFile };
  }

  async issueLeaf(name: string): Promise<Certificate> {
    if (!isLeafName(name)) {
      throw new CodedError('invalid-name', 'a leaf is issued for one lower-case DNS name only');
    }
    const known = this.#leaves.get(name);
    if (known !== undefined && this.#clock.now() < known.renewAt) {
      return known;
    }
    return this.#issuing.run(name, async () => {
      const leaf = await this.#storedLeaf(name);
      this.#leaves.set(name, leaf);
      return leaf;
    });
  }

  async #storedLeaf(name: string): Promise<Certificate> {
    const file = join(this.directory, 'leaves', `${contentHash(name, 32)}.pem`);
    const now = this.#clock.now();
    const stored = this.#parseLeaf(await readPrivate(file));
    if (stored !== null && now < stored.renewAt) {
      return stored;
    }
    const issued = await this.#mitm.issueLeaf(name, { now, lifetimeMs: LEAF_LIFETIME_MS });
    const text = `${issued.keyPem.reveal()}${issued.certificatePem}${this.mitmCaPem}`;
    if (stored === null) {
      const winner = this.#parseLeaf(await createPrivate(file, text));
      if (winner !== null) {
        return winner;
      }
    }
    await replacePrivate(file, text);
    return { ...issued, certificatePem: issued.certificatePem + this.mitmCaPem };
  }

  #parseLeaf(text: string | null): Certificate | null {
    const at = text?.indexOf('-----BEGIN CERTIFICATE-----') ?? -1;
    return text === null || at < 0
      ? null
      : readCertificate(text.slice(at), new Redacted(text.slice(0, at)), this.mitmCaPem);
  }

  async tokens(): Promise<SandboxTokens> {
    return new SandboxTokens(await this.#tokenKeys(), this.#clock);
  }

  async rotateTokenKey(): Promise<void> {
    const keys = await rotateTokenKeys(await this.#tokenKeys(), this.#clock.now());
    await replacePrivate(join(this.directory, 'token.jwk'), serializeTokenKeys(keys));
  }

  async #tokenKeys(): Promise<TokenKey[]> {
    return parseTokenKeys((await readPrivate(join(this.directory, 'token.jwk'))) ?? '');
  }
}

async function ensureKey(file: string): Promise<Redacted> {
  const stored = await readPrivate(file);
  return new Redacted(stored ?? (await createPrivate(file, (await createKey()).reveal())));
}

/** The key decides who came first; any starter may sign the certificate for it, and again the first one wins. */
async function openAuthority(
  directory: string,
  name: string,
  subject: string,
  clock: Clock,
): Promise<CertificateAuthority> {
  const keyPem = await ensureKey(join(directory, `${name}.key`));
  const file = join(directory, `${name}.crt`);
  const now = clock.now();
  const stored = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') {
      throw error;
    }
    return null;
  });
  const fresh = async (): Promise<string> =>
    (await CertificateAuthority.create(subject, { now, lifetimeMs: CA_LIFETIME_MS, keyPem })).certificatePem;
  const authority = await CertificateAuthority.load(stored ?? (await createPrivate(file, await fresh())), keyPem);
  if (now >= authority.notAfter) {
    throw new CodedError('certificate-expired', `${file} has expired; remove ${name}.crt and ${name}.key and restart`);
  }
  return authority;
}
