import type { HostEntry, PolicyFacts } from '../api/facts.ts';
import type { KubeObject } from '../api/object.ts';
import { canonicalJson } from '../base/canonical.ts';
import { sameItems } from '../base/items.ts';
import { isUid } from '../identity/spiffe.ts';
import { Kept, KeptByKey, sameMembers } from './keep.ts';
import type { LastGood } from './last-good.ts';
import { PolicyForms } from './records.ts';
import { podFacts, sandboxFacts } from './sandboxes.ts';
import { usableKeys } from './secrets.ts';
import { ServiceAddresses } from './services.ts';

/** The objects that facts are made from, each list in the order of namespace and name. */
export interface WorldObjects {
  readonly sandboxes: readonly KubeObject[];
  readonly policies: readonly KubeObject[];
  readonly pods: readonly KubeObject[];
  readonly secrets: readonly KubeObject[];
  readonly services: readonly KubeObject[];
  readonly endpointSlices: readonly KubeObject[];
}

/** What the operator set, apart from objects. */
export interface WorldSettings {
  readonly hosts: Readonly<Record<string, HostEntry>>;
  /** Namespace of the control plane. */
  readonly rootNamespace: string;
}

/** What is kept besides the objects. */
export interface KeptState {
  /** Persisted last good forms of policies, by uid. */
  readonly lastGood: ReadonlyMap<string, LastGood>;
  readonly virtualAddresses: Readonly<Record<string, string>>;
}

type Facts<K extends keyof PolicyFacts> = PolicyFacts[K];

/**
 * Makes the facts of all decisions from objects, settings and kept state. Sorted, so that equal worlds are equal
 * whatever they were before; entries of unchanged objects stay the same entries (see `keep.ts`).
 */
export class FactsBuilder {
  readonly #policies = new PolicyForms();
  readonly #services = new ServiceAddresses();
  readonly #sandboxes = new Kept<[readonly KubeObject[], readonly KubeObject[]], Facts<'sandboxes'>>(sameItems);
  readonly #sandbox = new KeptByKey<Facts<'sandboxes'>[number]>(sameJson);
  readonly #pods = new Kept<[readonly KubeObject[]], Facts<'pods'>>(sameItems);
  readonly #pod = new KeptByKey<Facts<'pods'>[number]>(sameJson);
  readonly #secretKeys = new Kept<[readonly KubeObject[]], Facts<'secretKeys'>>(sameMembers);
  readonly #keys = new KeptByKey<readonly string[]>(sameJson);

  build(objects: WorldObjects, settings: WorldSettings, kept: KeptState): PolicyFacts {
    const { records, invalidSpecs } = this.#policies.choose(objects.policies, kept.lastGood);
    const pods = this.#pods.get([objects.pods], (all) => this.#podFacts(all));
    return {
      sandboxes: this.#sandboxes.get([objects.sandboxes, objects.pods], (...lists) => this.#sandboxFacts(...lists)),
      policies: records,
      services: this.#services.of(objects.services, objects.endpointSlices, pods),
      pods,
      invalidSpecs,
      secretKeys: this.#secretKeys.get([objects.secrets], (all) => this.#keyFacts(all)),
      hosts: settings.hosts,
      virtualAddresses: kept.virtualAddresses,
      rootNamespace: settings.rootNamespace,
    };
  }

  #sandboxFacts(sandboxes: readonly KubeObject[], pods: readonly KubeObject[]): Facts<'sandboxes'> {
    const podByName = new Map(pods.map((pod) => [nameText(pod), pod]));
    this.#sandbox.turn();
    return sandboxes.flatMap((sandbox) => {
      const { uid = '' } = sandbox.metadata;
      const pod = podByName.get(nameText(sandbox));
      // Without a proper uid it has no identity, so nobody can speak for it.
      return isUid(uid) ? [this.#sandbox.get(uid, [sandbox, pod], () => sandboxFacts(sandbox, pod))] : [];
    });
  }

  #podFacts(pods: readonly KubeObject[]): Facts<'pods'> {
    this.#pod.turn();
    return pods.map((pod) => this.#pod.get(nameText(pod), [pod], () => podFacts(pod)));
  }

  #keyFacts(secrets: readonly KubeObject[]): Facts<'secretKeys'> {
    this.#keys.turn();
    return Object.fromEntries(
      secrets.map((secret) => {
        const name = nameText(secret);
        return [name, this.#keys.get(name, [secret], () => usableKeys(secret))];
      }),
    );
  }
}

function nameText({ metadata }: KubeObject): string {
  return `${metadata.namespace}/${metadata.name}`;
}

function sameJson(a: unknown, b: unknown): boolean {
  return canonicalJson(a) === canonicalJson(b);
}
