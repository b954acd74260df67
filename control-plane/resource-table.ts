import { compareText } from '../base/canonical.ts';
import type { EncodedResource, ResourceView } from '../xds/view.ts';

const NONE: ReadonlyMap<string, EncodedResource> = new Map();

/** An immutable view over a set of encoded resources, by type and name. */
export class ResourceTable implements ResourceView {
  readonly #types = new Map<string, Map<string, EncodedResource>>();

  constructor(resources: Iterable<EncodedResource>) {
    for (const resource of [...resources].sort((a, b) => compareText(a.name, b.name))) {
      const names = this.#types.get(resource.typeUrl) ?? new Map<string, EncodedResource>();
      names.set(resource.name, resource);
      this.#types.set(resource.typeUrl, names);
    }
  }

  names(typeUrl: string): Iterable<string> {
    return (this.#types.get(typeUrl) ?? NONE).keys();
  }

  get(typeUrl: string, name: string): EncodedResource | undefined {
    return this.#types.get(typeUrl)?.get(name);
  }

  /** Every resource, by type and name. */
  *all(): Iterable<EncodedResource> {
    for (const names of this.#types.values()) {
      yield* names.values();
    }
  }
}

/** A view that adds resources of its own to a shared one; its own win on an equal name. */
export function overlay(own: ResourceView, shared: ResourceView): ResourceView {
  return {
    *names(typeUrl) {
      const seen = new Set(own.names(typeUrl));
      yield* [...seen, ...[...shared.names(typeUrl)].filter((name) => !seen.has(name))].sort(compareText);
    },
    get: (typeUrl, name) => own.get(typeUrl, name) ?? shared.get(typeUrl, name),
  };
}
