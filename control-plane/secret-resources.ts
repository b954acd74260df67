import { parseStaticTemplate, renderStaticTemplate } from '../api/static-template.ts';
import { contentHash } from '../base/canonical.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Redacted } from '../base/redacted.ts';
import type { Pki } from '../identity/pki-directory.ts';
import type { TokenSubject } from '../identity/sandbox-token.ts';
import type { CredentialSource } from '../policy-compiler/compilation.ts';
import { type EnvoyJson, resource, typeUrl } from '../proto/resource.ts';
import type { EncodedResource } from '../xds/view.ts';

const SECRET = 'envoy.extensions.transport_sockets.tls.v3.Secret';

/** Name of the sidecar's own token. */
export const TOKEN_SECRET = 'sandbox-token';

/**
 * Makes the SDS resources, outside of snapshots and hashes (D7). They are sensitive: nothing of them is ever logged or
 * dumped. Values live here only as encoded resources.
 */
export class SecretResources {
  readonly #pki: Pki;
  readonly #logger: Logger;
  readonly #changed: () => void;
  readonly #leaves = new Map<string, { readonly resource: EncodedResource; readonly renewAt: number }>();
  readonly #tokens = new Map<string, { readonly resource: EncodedResource; readonly renewAt: number; pod: string }>();
  readonly #minting = new Set<string>();

  /** `changed` is called when a token or leaf has become available or new after it was asked for. */
  constructor(pki: Pki, logger: Logger, changed: () => void) {
    this.#pki = pki;
    this.#logger = logger;
    this.#changed = changed;
  }

  /** The rendered credential, or null when the Secret or its key is missing: Envoy then has no value and refuses. */
  credential(name: string, source: CredentialSource, value: Redacted<string> | null): EncodedResource | null {
    if (value === null) {
      return null;
    }
    const parts = parseStaticTemplate(source.template);
    if (parts === null) {
      return null;
    }
    const rendered = renderStaticTemplate(parts, value.reveal());
    return secretResource(name, { genericSecret: { secret: { inlineString: rendered } } });
  }

  /** The leaf of an intercepted name, or null while it is being issued. */
  leaf(name: string): EncodedResource | null {
    const known = this.#leaves.get(name);
    if (known === undefined) {
      void this.#mint(`leaf ${name}`, async () => {
        const { certificatePem, keyPem, renewAt } = await this.#pki.issueLeaf(name);
        const resource = secretResource(`leaf:${name}`, {
          tlsCertificate: {
            certificateChain: { inlineString: certificatePem },
            privateKey: { inlineString: keyPem.reveal() },
          },
        });
        this.#leaves.set(name, { resource, renewAt });
      });
    }
    return known?.resource ?? null;
  }

  /** Whether every one of these leaves is there; those that are not are being issued, and `changed` follows. */
  hasLeaves(names: readonly string[]): boolean {
    return names.map((name) => this.leaf(name)).every((leaf) => leaf !== null);
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

  /** Renews what is due; `subjects` are the sandboxes that are still there, and what is left of others is dropped. */
  renew(now: number, subjects: ReadonlyMap<string, TokenSubject>): void {
    for (const [uid, { renewAt }] of this.#tokens) {
      const subject = subjects.get(uid);
      if (subject === undefined) {
        this.#tokens.delete(uid);
      } else if (now >= renewAt) {
        this.#sign(subject);
      }
    }
    for (const [name, { renewAt }] of this.#leaves) {
      if (now >= renewAt) {
        this.#leaves.delete(name);
        this.leaf(name);
      }
    }
  }

  #sign(subject: TokenSubject): void {
    void this.#mint(`token ${subject.uid}`, async () => {
      const tokens = await this.#pki.tokens();
      const { token, renewAt } = await tokens.issue(subject);
      const resource = secretResource(TOKEN_SECRET, { genericSecret: { secret: { inlineString: token.reveal() } } });
      this.#tokens.set(subject.uid, { resource, renewAt, pod: subject.pod });
    });
  }

  async #mint(key: string, work: () => Promise<void>): Promise<void> {
    if (this.#minting.has(key)) {
      return;
    }
    this.#minting.add(key);
    try {
      await work();
      this.#changed();
    } catch (error) {
      this.#logger.error({ what: key, error: errorText(error) }, 'a secret could not be made');
    } finally {
      this.#minting.delete(key);
    }
  }
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
