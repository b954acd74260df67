import { compareText } from '../base/canonical.ts';
import { sameItems } from '../base/items.ts';
import type { EncodedResource, ResourceView } from '../xds/view.ts';

/** The resources of one type. */
interface TypeTable {
  /** As they came. */
  readonly given: readonly EncodedResource[];
  /** By name, ascending. */
  readonly sorted: readonly EncodedResource[];
  readonly byName: ReadonlyMap<string, EncodedResource>;
}

const NONE: TypeTable = { given: [], sorted: [], byName: new Map() };

/** An immutable view over a set of encoded resources, by type and name. Of two with one name the later one counts. */
export class ResourceTable implements ResourceView {
  readonly #types: ReadonlyMap<string, TypeTable>;

  private constructor(types: ReadonlyMap<string, TypeTable>) {
    this.#types = types;
  }

  /** Types of which `known` holds the same objects are taken from it; it is the result when that is all. */
  static of(resources: readonly EncodedResource[], known: ResourceTable = ResourceTable.empty): ResourceTable {
    const types = new Map<string, TypeTable>();
    for (const [typeUrl, given] of byType(resources)) {
      const before = known.#types.get(typeUrl);
      types.set(typeUrl, before !== undefined && sameItems(before.given, given) ? before : typeTable(given));
    }
    const isSame =
      types.size === known.#types.size && [...types].every(([typeUrl, type]) => type === known.#types.get(typeUrl));
    return isSame ? known : new ResourceTable(types);
  }

  static readonly empty: ResourceTable = new ResourceTable(new Map());

  names(typeUrl: string): Iterable<string> {
    return (this.#types.get(typeUrl) ?? NONE).byName.keys();
  }

  get(typeUrl: string, name: string): EncodedResource | undefined {
    return this.#types.get(typeUrl)?.byName.get(name);
  }

  changedSince(earlier: ResourceView, typeUrl: string): readonly string[] | null {
    if (!(earlier instanceof ResourceTable)) {
      return null;
    }
    const [before, after] = [earlier.#types.get(typeUrl) ?? NONE, this.#types.get(typeUrl) ?? NONE];
    return before === after ? [] : differences(before.sorted, after.sorted);
  }
}

function byType(resources: readonly EncodedResource[]): Map<string, EncodedResource[]> {
  const types = new Map<string, EncodedResource[]>();
  let type: string | null = null;
  let list: EncodedResource[] = [];
  for (const resource of resources) {
    if (resource.typeUrl !== type) {
      type = resource.typeUrl;
      list = types.get(type) ?? [];
      types.set(type, list);
    }
    list.push(resource);
  }
  return types;
}

/** Compiled resources come sorted; sorting tens of thousands again would cost more than all the rest. */
function typeTable(given: readonly EncodedResource[]): TypeTable {
  const byName = new Map(given.map((resource) => [resource.name, resource]));
  const isSorted = given.every(({ name }, at) => at === 0 || given[at - 1]!.name < name);
  if (isSorted) {
    return { given, sorted: given, byName };
  }
  const sorted = [...byName.values()].sort((a, b) => compareText(a.name, b.name));
  return { given, sorted, byName: new Map(sorted.map((resource) => [resource.name, resource])) };
}

/** Names under which two sorted lists have different objects. */
function differences(before: readonly EncodedResource[], after: readonly EncodedResource[]): readonly string[] {
  const names: string[] = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    const [old, fresh] = [before[i], after[j]];
    if (old === fresh) {
      i += 1;
      j += 1;
      continue;
    }
    const order = old === undefined ? 1 : fresh === undefined ? -1 : compareText(old.name, fresh.name);
    names.push(order <= 0 ? old!.name : fresh!.name);
    i += order <= 0 ? 1 : 0;
    j += order >= 0 ? 1 : 0;
  }
  return names;
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
