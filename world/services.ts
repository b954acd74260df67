import type { PolicyFacts } from '../api/facts.ts';
import type { KubeObject } from '../api/object.ts';
import { canonicalAddress } from '../base/addresses.ts';
import { member, podAddresses } from './sandboxes.ts';

const SLICE_SERVICE = 'kubernetes.io/service-name';

/**
 * The addresses behind each Service (egress-policy §2.2): its primary cluster address, every address of its
 * EndpointSlices, ready or not, and, where no slice exists, the addresses of the Pods that its selector selects.
 */
export function serviceFacts(
  services: readonly KubeObject[],
  slices: readonly KubeObject[],
  pods: readonly KubeObject[],
): PolicyFacts['services'] {
  return services.map((service) => {
    const namespace = service.metadata.namespace ?? '';
    const own = slices.filter(
      (slice) =>
        slice.metadata.namespace === namespace && slice.metadata.labels?.[SLICE_SERVICE] === service.metadata.name,
    );
    const behind = own.length > 0 ? own.flatMap(sliceAddresses) : selectedAddresses(service, pods);
    const cluster = member(service.spec, 'clusterIP');
    const addresses = [...(typeof cluster === 'string' && cluster !== 'None' ? [cluster] : []), ...behind];
    const canonical = addresses.map(canonicalAddress).filter((address) => address !== null);
    return { namespace, name: service.metadata.name, addresses: [...new Set(canonical)].sort() };
  });
}

function sliceAddresses(slice: KubeObject): string[] {
  const endpoints = slice['endpoints'];
  const lists = Array.isArray(endpoints) ? endpoints.map((endpoint: unknown) => member(endpoint, 'addresses')) : [];
  return lists.flat().filter((address): address is string => typeof address === 'string');
}

function selectedAddresses(service: KubeObject, pods: readonly KubeObject[]): readonly string[] {
  const selector = member(service.spec, 'selector');
  const wanted = selector !== null && typeof selector === 'object' ? Object.entries(selector) : [];
  if (wanted.length === 0) {
    return [];
  }
  return pods
    .filter((pod) => pod.metadata.namespace === service.metadata.namespace)
    .filter((pod) => wanted.every(([key, value]) => pod.metadata.labels?.[key] === value))
    .flatMap(podAddresses);
}
