import type { PolicyFacts } from '../api/facts.ts';
import type { KubeObject } from '../api/object.ts';
import { canonicalAddress } from '../base/addresses.ts';
import { canonicalJson } from '../base/canonical.ts';
import { sameItems } from '../base/items.ts';
import { Kept, KeptByKey } from './keep.ts';
import { member } from './sandboxes.ts';

const SLICE_SERVICE = 'kubernetes.io/service-name';

type Services = PolicyFacts['services'];
type Pods = PolicyFacts['pods'];
type Objects = readonly KubeObject[];

const NO_OBJECTS: Objects = [];
const NO_PODS: Pods = [];

/**
 * The addresses behind each Service (egress-policy §2.2): its primary cluster address, every address of its
 * EndpointSlices, ready or not, and, where no slice exists, the addresses of the Pods that its selector selects.
 * Entries of Services of which nothing changed stay the same objects.
 */
export class ServiceAddresses {
  readonly #all = new Kept<[Objects, Objects, Pods], Services>(sameItems);
  readonly #service = new KeptByKey<Services[number]>((a, b) => canonicalJson(a) === canonicalJson(b));

  of(services: Objects, slices: Objects, pods: Pods): Services {
    return this.#all.get([services, slices, pods], () => this.#make(services, slices, pods));
  }

  #make(services: Objects, slices: Objects, pods: Pods): Services {
    const slicesOf = Map.groupBy(slices, ({ metadata }) => `${metadata.namespace}/${metadata.labels?.[SLICE_SERVICE]}`);
    const podsOf = Map.groupBy(pods, ({ namespace }) => namespace);
    this.#service.turn();
    return services.map((service) => {
      const { namespace = '', name } = service.metadata;
      const key = `${namespace}/${name}`;
      const own = slicesOf.get(key) ?? NO_OBJECTS;
      const candidates = own.length > 0 ? NO_PODS : (podsOf.get(namespace) ?? NO_PODS);
      return this.#service.get(key, [service, ...own, ...candidates], () => {
        const behind = own.length > 0 ? own.flatMap(sliceAddresses) : selectedAddresses(service, candidates);
        return { namespace, name, addresses: addressesOf(service, behind) };
      });
    });
  }
}

function addressesOf(service: KubeObject, behind: readonly string[]): readonly string[] {
  const cluster = member(service.spec, 'clusterIP');
  const texts = [...(typeof cluster === 'string' && cluster !== 'None' ? [cluster] : []), ...behind];
  const canonical = texts.map(canonicalAddress).filter((address) => address !== null);
  return [...new Set(canonical)].sort();
}

function sliceAddresses(slice: KubeObject): string[] {
  const endpoints = slice['endpoints'];
  const lists = Array.isArray(endpoints) ? endpoints.map((endpoint: unknown) => member(endpoint, 'addresses')) : [];
  return lists.flat().filter((address): address is string => typeof address === 'string');
}

/** A Service without a selector selects nothing. */
function selectedAddresses(service: KubeObject, pods: Pods): readonly string[] {
  const selector = member(service.spec, 'selector');
  const wanted = selector !== null && typeof selector === 'object' ? Object.entries(selector) : [];
  return wanted.length === 0
    ? []
    : pods
        .filter(({ labels }) => wanted.every(([key, value]) => member(labels, key) === value))
        .flatMap(({ addresses }) => addresses);
}
