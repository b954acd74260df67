import { parseStaticTemplate, renderStaticTemplate } from '../api/static-template.ts';
import { contentHash } from '../base/canonical.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Redacted } from '../base/redacted.ts';
import type { Certificate } from '../identity/certificates.ts';
import type { Pki } from '../identity/pki-directory.ts';
import type { TokenSubject } from '../identity/sandbox-token.ts';
import type { CredentialSource } from '../policy-compiler/compilation.ts';
import { GATEWAY_SECRET } from '../policy-compiler/output.ts';
import { type EnvoyJson, resource, typeUrl } from '../proto/resource.ts';
import type { EncodedResource } from '../xds/view.ts';

const SECRET = 'envoy.extensions.transport_sockets.tls.v3.Secret';

/** Name of the sidecar's own token. */
export const TOKEN_SECRET = 'sandbox-token';

/** What could not be made is tried again after this, milliseconds. */
const RETRY_MS = 1000;

interface Made {
  readonly resource: EncodedResource;
  /** Milliseconds since the epoch. */
  readonly renewAt: number;
}

/**
 * Makes the SDS resources, outside of snapshots and hashes (D7). They are sensitive: nothing of them is ever logged or
 * dumped. Values live here only as encoded resources. What has to be issued or signed is made in the background.
 */
export class SecretResources {
  readonly #pki: Pki;
  readonly #logger: Logger;
  readonly #changed: () => void;
  readonly #leaves = new Map<string, Made>();
  readonly #tokens = new Map<string, Made & { readonly pod: string }>();
  readonly #minting = new Map<string, Promise<void>>();
  #credentials: ReadonlyMap<string, EncodedResource> = new Map();
  #gateway: EncodedResource | null = null;
  #retry: NodeJS.Timeout | null = null;
  #closed = false;
  #tokenRevision = 0;

  /** `changed` is called when a secret has become available or new. */
  constructor(pki: Pki, logger: Logger, changed: () => void) {
    this.#pki = pki;
    this.#logger = logger;
    this.#changed = changed;
  }

  /**
   * The rendered credentials by name of their secret. One whose Secret or key is missing is left out: Envoy then has no
   * value and refuses. An unchanged one stays the same object.
   */
  credentials(
    sources: ReadonlyMap<string, CredentialSource>,
    valueFor: (source: CredentialSource) => Redacted<string> | null,
  ): readonly EncodedResource[] {
    const made = [...sources].flatMap(([name, source]) => {
      const fresh = credential(name, source, valueFor(source));
      const known = this.#credentials.get(name);
      return fresh === null ? [] : [known?.version === fresh.version ? known : fresh];
    });
    this.#credentials = new Map(made.map((one) => [one.name, one]));
    return made;
  }

  /** The certificate that the egress gateway shows to sidecars, or null while it is being issued. */
  gateway(): EncodedResource | null {
    if (this.#gateway === null) {
      this.#renewGateway();
    }
    return this.#gateway;
  }

  /** The leaf of an intercepted name, or null while it is being issued. */
  leaf(name: string): EncodedResource | null {
    const known = this.#leaves.get(name);
    if (known === undefined) {
      this.#issueLeaf(name);
    }
    return known?.resource ?? null;
  }

  /**
   * Whether the gateway's certificate and all of these leaves are there; what is not is being made, and `changed`
   * follows.
   */
  isReady(leaves: readonly string[]): boolean {
    const missing = leaves.filter((name) => this.leaf(name) === null);
    return this.gateway() !== null && missing.length === 0;
  }

  /** Grows with every token that is signed: until then {@link token} says what it said. */
  get tokenRevision(): number {
    return this.#tokenRevision;
  }

  /** The token of a sandbox's sidecar, or null while it is being signed; a new Pod gets a new one. */
  token(subject: TokenSubject): EncodedResource | null {
    const known = this.#tokens.get(subject.uid);
    if (known === undefined || known.pod !== subject.pod) {
      this.#sign(subject);
      return null;
    }
    return known.resource;
  }

  /**
   * Renews what is due; what there is stays until then. `subjects` are the sandboxes that are still there, `leaves` the
   * names that are still intercepted: what is left of others is dropped.
   */
  renew(now: number, subjects: ReadonlyMap<string, TokenSubject>, leaves: readonly string[]): void {
    for (const [uid, { renewAt }] of this.#tokens) {
      const subject = subjects.get(uid);
      if (subject === undefined) {
        this.#tokens.delete(uid);
      } else if (now >= renewAt) {
        this.#sign(subject);
      }
    }
    const wanted = new Set(leaves);
    for (const [name, { renewAt }] of this.#leaves) {
      if (!wanted.has(name)) {
        this.#leaves.delete(name);
      } else if (now >= renewAt) {
        this.#issueLeaf(name);
      }
    }
    this.#renewGateway();
  }

  /** Resolves when nothing is being made any more, and nothing will be. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry ?? undefined);
    await Promise.all(this.#minting.values());
  }

  #issueLeaf(name: string): void {
    this.#mint(`leaf ${name}`, async () => {
      const leaf = await this.#pki.issueLeaf(name);
      this.#leaves.set(name, { resource: certificateResource(`leaf:${name}`, leaf), renewAt: leaf.renewAt });
      return true;
    });
  }

  /** The certificate lies in a file, which the gateway's supervisor renews as well; whoever does, the file counts. */
  #renewGateway(): void {
    this.#mint('gateway', async () => {
      const fresh = certificateResource(GATEWAY_SECRET, await this.#pki.issueRoleCertificate('egress'));
      const isNew = this.#gateway?.version !== fresh.version;
      if (isNew) {
        this.#gateway = fresh;
      }
      return isNew;
    });
  }

  #sign(subject: TokenSubject): void {
    this.#mint(`token ${subject.uid}`, async () => {
      const tokens = await this.#pki.tokens();
      const { token, renewAt } = await tokens.issue(subject);
      const made = secretResource(TOKEN_SECRET, { genericSecret: { secret: { inlineString: token.reveal() } } });
      this.#tokens.set(subject.uid, { resource: made, renewAt, pod: subject.pod });
      this.#tokenRevision += 1;
      return true;
    });
  }

  /** Each key is worked on once at a time; `work` tells whether anything is new. */
  #mint(key: string, work: () => Promise<boolean>): void {
    if (!this.#minting.has(key) && !this.#closed) {
      this.#minting.set(key, this.#attempt(key, work));
    }
  }

  async #attempt(key: string, work: () => Promise<boolean>): Promise<void> {
    let isNew = false;
    try {
      isNew = await work();
    } catch (error) {
      this.#logger.error({ what: key, error: errorText(error) }, 'a secret could not be made; it is tried again');
      // Whoever still wants it asks again then.
      this.#retry ??= setTimeout(() => {
        this.#retry = null;
        this.#changed();
      }, RETRY_MS);
    }
    this.#minting.delete(key);
    if (isNew && !this.#closed) {
      this.#changed();
    }
  }
}

function credential(name: string, source: CredentialSource, value: Redacted<string> | null): EncodedResource | null {
  const parts = value === null ? null : parseStaticTemplate(source.template);
  if (value === null || parts === null) {
    return null;
  }
  const rendered = renderStaticTemplate(parts, value.reveal());
  return secretResource(name, { genericSecret: { secret: { inlineString: rendered } } });
}

function certificateResource(name: string, { certificatePem, keyPem }: Certificate): EncodedResource {
  return secretResource(name, {
    tlsCertificate: {
      certificateChain: { inlineString: certificatePem },
      privateKey: { inlineString: keyPem.reveal() },
    },
  });
}

function secretResource(name: string, content: Omit<EnvoyJson[typeof SECRET], 'name'>): EncodedResource {
  const bytes = resource(SECRET, { name, ...content });
  return {
    typeUrl: typeUrl(SECRET),
    name,
    version: contentHash(bytes),
    bytes,
    sensitive: true,
    origins: [],
    requires: [],
  };
}
