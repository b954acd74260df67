import { compareText } from '../base/canonical.ts';
import type { EncodedResource, ResourceView } from '../xds/view.ts';

const NONE: ReadonlyMap<string, EncodedResource> = new Map();

/** An immutable view over a set of encoded resources, by type and name. Of two with one name the later one counts. */
export class ResourceTable implements ResourceView {
  readonly #types = new Map<string, Map<string, EncodedResource>>();

  constructor(resources: Iterable<EncodedResource>) {
    const unsorted = new Set<string>();
    let names = new Map<string, EncodedResource>();
    let type = '';
    let last = '';
    for (const resource of resources) {
      const { typeUrl, name } = resource;
      // Compiled resources come sorted; sorting tens of thousands again would cost more than all the rest.
      if (typeUrl !== type) {
        const known = this.#types.get(typeUrl);
        if (known !== undefined) {
          unsorted.add(typeUrl);
        }
        names = known ?? new Map();
        this.#types.set(typeUrl, names);
        type = typeUrl;
      } else if (name < last) {
        unsorted.add(typeUrl);
      }
      names.set(name, resource);
      last = name;
    }
    for (const typeUrl of unsorted) {
      this.#types.set(typeUrl, new Map([...this.#types.get(typeUrl)!].sort(([a], [b]) => compareText(a, b))));
    }
  }

  names(typeUrl: string): Iterable<string> {
    return (this.#types.get(typeUrl) ?? NONE).keys();
  }

  get(typeUrl: string, name: string): EncodedResource | undefined {
    return this.#types.get(typeUrl)?.get(name);
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
