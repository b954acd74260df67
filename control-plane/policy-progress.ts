import type { KubeObject } from '../api/object.ts';
import { refOf, refText } from '../api/object.ts';
import type { Finding } from '../policy-compiler/output.ts';
import { rejection as storedRejection } from '../world/records.ts';
import type { Rejection } from '../xds/view.ts';
import type { Published } from './plane.ts';
import type { PolicyState } from './status.ts';

interface Known {
  readonly object: KubeObject;
  readonly uid: string;
  readonly generation: number;
  /** The first publication with this generation. */
  readonly sequence: number;
}

const NO_FINDINGS: readonly Finding[] = [];

/** Follows each policy's present generation from its publication to its acknowledgement or refusal. */
export class PolicyProgress {
  readonly #known = new Map<string, Known>();
  readonly #refused = new Map<string, string>();
  readonly #keys = new WeakMap<KubeObject, string>();
  #published: Published | null = null;

  /** Notes what a publication contains. A new generation, or a new object of the name, starts afresh. */
  published(published: Published): void {
    const isUnchanged = published.world.policies === this.#published?.world.policies;
    this.#published = published;
    if (isUnchanged) {
      return;
    }
    const present = new Set<string>();
    for (const object of published.world.policies) {
      const key = this.#keyOf(object);
      present.add(key);
      const known = this.#known.get(key);
      if (known?.object === object) {
        continue;
      }
      const { uid = '', generation = 0 } = object.metadata;
      const isSame = known?.uid === uid && known.generation === generation;
      if (!isSame) {
        this.#refused.delete(key);
      }
      const sequence = isSame ? known.sequence : published.sequence;
      this.#known.set(key, { object, uid, generation, sequence });
    }
    for (const key of this.#known.keys()) {
      if (!present.has(key)) {
        this.#known.delete(key);
        this.#refused.delete(key);
      }
    }
  }

  /**
   * Finds the objects behind a refusal: of those that the refused resource was made from, the ones that changed last,
   * since everything older had been acknowledged before. They count as refused until their next generation. After a
   * restart everything seems new; what is known to have been in force is then blamed only if nothing else is left.
   */
  refused(rejection: Rejection): readonly KubeObject[] {
    const candidates = [...new Set(rejection.origins.map((origin) => refText(origin)))].flatMap((key) => {
      const known = this.#known.get(key);
      const isOver = known === undefined || this.#refused.has(key) || storedRejection(known.object) !== null;
      return isOver ? [] : [{ key, known, rank: this.#isProven(known) ? -1 : known.sequence }];
    });
    const newest = Math.max(...candidates.map(({ rank }) => rank));
    const ranked = candidates.filter(({ rank }) => rank === newest);
    const last = Math.max(...ranked.map(({ known }) => known.sequence));
    const culprits = ranked.filter(({ known }) => known.sequence === last);
    const text = `${rejection.name}: ${rejection.detail ?? 'the reason is not shown, since it may hold a secret'}`;
    for (const { key } of culprits) {
      this.#refused.set(key, text);
    }
    return culprits.map(({ known }) => known.object);
  }

  #keyOf(object: KubeObject): string {
    const key = this.#keys.get(object) ?? refText(refOf(object));
    this.#keys.set(object, key);
    return key;
  }

  /** Whether every Envoy once took exactly this generation (D2). */
  #isProven({ uid, generation }: Known): boolean {
    return this.#published?.world.lastGood.get(uid)?.generation === generation;
  }

  /** What the conditions of every policy are made from. */
  states(published: Published): readonly PolicyState[] {
    const records = new Map(published.world.facts.policies.map((record) => [refText(record.ref), record]));
    const findings = Map.groupBy(published.compilation.findings, ({ ref }) => refText(ref));
    return published.world.policies.flatMap((object): PolicyState[] => {
      const key = this.#keyOf(object);
      const record = records.get(key);
      const sequence = this.#known.get(key)?.sequence ?? published.sequence;
      const refused = this.#refused.get(key) ?? stored(object);
      return record === undefined
        ? []
        : [{ object, record, findings: findings.get(key) ?? NO_FINDINGS, sequence, refused }];
    });
  }
}

/** The refusal that the object's own conditions tell of, so that it outlives a restart. */
function stored(object: KubeObject): string | null {
  return storedRejection(object)?.replace(/^refused by Envoy: /, '') ?? null;
}
