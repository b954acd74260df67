/**
 * The room `control-plane/` is the composition: world → compile → publish over xDS, conditions back onto the objects,
 * access logs in. It leaves the protocol to `xds/` and the meaning of policies to `policy-compiler/`.
 */
import { contentHash } from '../base/canonical.ts';
import type { ResourceJson } from '../policy-compiler/output.ts';
import { resource, typeUrl } from '../proto/resource.ts';
import type { EncodedResource } from '../xds/view.ts';

/**
 * Encodes compiled resources, each content once: the compiler gives the same object for an unchanged resource, so a
 * changed policy costs the encoding of what it changed.
 */
export class ResourceEncoder {
  readonly #known = new WeakMap<ResourceJson, EncodedResource>();

  encode(json: ResourceJson): EncodedResource {
    const known = this.#known.get(json);
    if (known !== undefined) {
      return known;
    }
    const bytes = resource(json.type, json.json);
    const encoded: EncodedResource = {
      typeUrl: typeUrl(json.type),
      name: json.name,
      version: contentHash(bytes),
      bytes,
      sensitive: json.sensitive,
      origins: json.origins,
      requires: json.requires.map((key) => ({ typeUrl: typeUrl(key.type), name: key.name })),
    };
    this.#known.set(json, encoded);
    return encoded;
  }
}
