import type { ObjectRef } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import { logRate } from './access-log.ts';
import { dialClusterResource, fixedClusters } from './clusters.ts';
import type { CompilerSettings } from './compilation.ts';
import { type Dial, dialCluster } from './dial.ts';
import { innerListener } from './inner-listener.ts';
import { pin } from './members.ts';
import { Memo } from './memo.ts';
import { outerListener, tunnelResources } from './outer-listener.ts';
import { CLUSTER, kept, LISTENER, nameOf, type ResourceJson, type Resources, resourceJson } from './output.ts';
import type { Plan } from './plan.ts';
import { routeTable } from './route-table.ts';
import { SharedMemo } from './shared.ts';

/** Some resources of the gateway and the clusters that they dial, with their names. */
interface GatewayPart {
  readonly resources: readonly ResourceJson[];
  readonly dials: readonly (readonly [cluster: string, dial: Dial])[];
}

/** Makes the egress gateway's resources, the scopes of sandboxes apart; what it made is for one value of the settings. */
export class GatewayMemo {
  readonly #tables = new SharedMemo<GatewayPart>();
  readonly #listeners = new SharedMemo<GatewayPart>();
  readonly #clusters = new Memo<ResourceJson>();
  readonly #settings: CompilerSettings;
  readonly #wanted: Resources;
  readonly #fixed: readonly ResourceJson[];

  constructor(settings: CompilerSettings, wanted: Resources) {
    this.#settings = settings;
    this.#wanted = wanted;
    this.#fixed = [outerListener(settings), logRate(), ...fixedClusters(settings)];
  }

  /** Sorted by type and name. */
  resources(plans: readonly Plan[]): readonly ResourceJson[] {
    const originsOf = ({ l7 }: Plan) => l7.origins;
    const tables = this.#tables.of(
      plans,
      ({ l7 }) => l7.tableHash,
      originsOf,
      (plan, origins) => this.#table(plan, origins),
    );
    const listeners = this.#listeners.of(
      plans,
      ({ egress }) => egress.hash,
      originsOf,
      (plan, origins) => this.#listener(plan, origins),
    );
    const parts = [...tables.values(), ...listeners.values()];
    const dials = new Map<string, Dial>();
    for (const part of parts) {
      for (const [name, dial] of part.dials) {
        dials.set(name, dial);
      }
    }
    const clusters = [...dials].map(([name, dial]) =>
      this.#clusters.get(name, () => dialClusterResource(dial, this.#settings)),
    );
    this.#clusters.turn();
    return sortedByType([...this.#fixed, ...clusters, ...parts.flatMap(({ resources }) => resources)]);
  }

  #table(plan: Plan, origins: readonly ObjectRef[]): GatewayPart {
    const { resource, dials } = routeTable({ ...plan.l7, origins });
    return { resources: [kept(resource, this.#wanted), pin(resource.name)], dials: namedDials(dials) };
  }

  #listener({ egress }: Plan, origins: readonly ObjectRef[]): GatewayPart {
    const { listener, dials } = innerListener(egress, this.#settings);
    const named = namedDials(dials);
    const always = ['deny', ...(this.#settings.resolver === null ? [] : ['resolver'])];
    const requires = [...named.map(([name]) => name), ...always].map((name) => nameOf(CLUSTER, name));
    const { hash } = egress;
    return {
      resources: [
        kept(resourceJson(LISTENER, `in-${hash}`, listener, origins, requires), this.#wanted),
        ...tunnelResources(hash),
        pin(`eset-${hash}`),
      ],
      dials: named,
    };
  }
}

/** Each type by itself: what comes of the sorted parts is a few sorted runs, which cost little more than a look. */
function sortedByType(resources: readonly ResourceJson[]): readonly ResourceJson[] {
  const byType = Map.groupBy(resources, ({ type }) => type);
  return [...byType.keys()]
    .sort(compareText)
    .flatMap((type) => byType.get(type)!.sort((a, b) => compareText(a.name, b.name)));
}

/** Most names of a listener are dialled in one way. */
function namedDials(dials: readonly Dial[]): GatewayPart['dials'] {
  return [...new Map(dials.map((dial) => [dialCluster(dial), dial]))];
}
