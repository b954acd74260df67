import { type ObjectRef, refText } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import { sameItems } from '../base/items.ts';
import type { Plan } from './plan.ts';

interface Kept<V> {
  readonly plans: readonly Plan[];
  /** The distinct origins of all of them. */
  readonly origins: string;
  readonly value: V;
}

/**
 * Plans that share a hash share a value, made from what the hash stands for and from the origins of all of them. It is
 * kept while hash and origins are the same; the same plans have the same, which is seen without reading them.
 */
export class SharedMemo<V> {
  #known = new Map<string, Kept<V>>();

  /** By hash, ascending. `make` gets one of the plans, and must read of it only what the hash covers. */
  of(
    plans: readonly Plan[],
    hashOf: (plan: Plan) => string,
    originsOf: (plan: Plan) => readonly ObjectRef[],
    make: (plan: Plan, origins: readonly ObjectRef[]) => V,
  ): ReadonlyMap<string, V> {
    const groups = Map.groupBy(plans, hashOf);
    const current = new Map<string, Kept<V>>();
    for (const hash of [...groups.keys()].sort(compareText)) {
      const members = groups.get(hash)!;
      const known = this.#known.get(hash);
      if (known !== undefined && sameItems(known.plans, members)) {
        current.set(hash, known);
        continue;
      }
      const all = members.flatMap(originsOf);
      const origins = [...new Set(all.map(refText))].sort().join('\n');
      const value = known?.origins === origins ? known.value : make(members[0]!, all);
      current.set(hash, { plans: members, origins, value });
    }
    this.#known = current;
    return new Map([...current].map(([hash, { value }]) => [hash, value]));
  }
}
