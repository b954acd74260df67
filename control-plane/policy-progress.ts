import type { KubeObject } from '../api/object.ts';
import { refOf, refText } from '../api/object.ts';
import { rejection as storedRejection } from '../world/records.ts';
import type { Rejection } from '../xds/view.ts';
import type { Published } from './plane.ts';
import type { PolicyState } from './status.ts';

interface Known {
  readonly uid: string;
  readonly generation: number;
  /** The first publication with this generation. */
  readonly sequence: number;
}

/** Follows each policy's present generation from its publication to its acknowledgement or refusal. */
export class PolicyProgress {
  readonly #known = new Map<string, Known>();
  readonly #refused = new Map<string, { readonly generation: number; readonly text: string }>();
  readonly #withdrawals = new Map<string, number>();
  #published: Published | null = null;

  /** Notes what a publication contains. */
  published(published: Published): void {
    this.#published = published;
    const present = new Set<string>();
    for (const object of published.world.policies) {
      const key = refText(refOf(object));
      present.add(key);
      const { uid = '', generation = 0 } = object.metadata;
      const known = this.#known.get(key);
      if (known === undefined || known.uid !== uid || known.generation !== generation) {
        this.#known.set(key, { uid, generation, sequence: published.sequence });
        this.#refused.delete(key);
      }
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
   * since everything older had been acknowledged before. They are reported as refused until their next generation.
   */
  refused(rejection: Rejection): readonly KubeObject[] {
    const candidates = rejection.origins
      .map((origin) => refText(origin))
      .flatMap((key) => {
        const known = this.#known.get(key);
        return known === undefined || this.#refused.has(key) ? [] : [{ key, known }];
      });
    const newest = Math.max(...candidates.map(({ known }) => known.sequence));
    const culprits = candidates.filter(({ known }) => known.sequence === newest);
    const text = `${rejection.name}: ${rejection.detail ?? 'the reason is not shown, since it may hold a secret'}`;
    for (const { key, known } of culprits) {
      this.#refused.set(key, { generation: known.generation, text });
    }
    const keys = new Set(culprits.map(({ key }) => key));
    return (this.#published?.world.policies ?? []).filter((object) => keys.has(refText(refOf(object))));
  }

  /** What the conditions of every policy are made from. */
  states(published: Published): readonly PolicyState[] {
    const byRef = new Map(published.world.facts.policies.map((record) => [refText(record.ref), record]));
    return published.world.policies.flatMap((object): PolicyState[] => {
      const key = refText(refOf(object));
      const record = byRef.get(key);
      const refused = this.#refused.get(key);
      return record === undefined
        ? []
        : [
            {
              object,
              record,
              findings: published.compilation.findings.filter((finding) => refText(finding.ref) === key),
              sequence: this.#known.get(key)?.sequence ?? published.sequence,
              refused:
                refused !== undefined && refused.generation === object.metadata.generation
                  ? refused.text
                  : stored(object),
            },
          ];
    });
  }

  /** The first publication without a native route of this sandbox, `now` when it is this one. */
  withdrawnSince(uid: string, now: number): number {
    const since = this.#withdrawals.get(uid) ?? now;
    this.#withdrawals.set(uid, since);
    return since;
  }

  /** The sandbox has a route again. */
  notWithdrawn(uid: string): void {
    this.#withdrawals.delete(uid);
  }
}

/** The refusal that the object's own conditions tell of, so that it outlives a restart. */
function stored(object: KubeObject): string | null {
  return storedRejection(object)?.replace(/^refused by Envoy: /, '') ?? null;
}
