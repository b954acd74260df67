import type { HostEntry, PolicyFacts } from '../api/facts.ts';
import { kindNamed } from '../api/kinds.ts';
import type { KubeObject } from '../api/object.ts';
import { validateObject } from '../api/validate.ts';
import type { LastGood } from './last-good.ts';
import { type PolicyCheck, type PolicyRecords, policyRecords } from './records.ts';
import { podAddresses, sandboxFacts } from './sandboxes.ts';
import { usableKeys } from './secrets.ts';
import { serviceFacts } from './services.ts';

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
  readonly lastGood: ReadonlyMap<string, LastGood>;
  /** This process's own memory of good forms; kept up to date by {@link buildFacts}. */
  readonly remembered: Map<string, LastGood>;
  readonly virtualAddresses: Readonly<Record<string, string>>;
}

/** Checks a policy against schema and meaning (D2), once per stored form. */
export function policyCheck(): PolicyCheck {
  const known = new WeakMap<KubeObject, ReturnType<PolicyCheck>>();
  return (object) => {
    const cached = known.get(object);
    if (cached !== undefined) {
      return cached;
    }
    const { invalid } = validateObject(object);
    const kind = kindNamed(object.kind);
    const defaulted = invalid.length > 0 || kind === undefined ? null : kind.defaults(object);
    const result = { errors: invalid, defaulted } as ReturnType<PolicyCheck>;
    known.set(object, result);
    return result;
  };
}

/** Makes the facts of all decisions from objects, settings and kept state. Sorted, so that equal worlds are equal. */
export function buildFacts(
  objects: WorldObjects,
  settings: WorldSettings,
  kept: KeptState,
  check: PolicyCheck,
): PolicyFacts {
  const podByName = new Map(objects.pods.map((pod) => [`${pod.metadata.namespace}/${pod.metadata.name}`, pod]));
  const { records, invalidSpecs }: PolicyRecords = policyRecords(
    objects.policies,
    kept.lastGood,
    kept.remembered,
    check,
  );
  return {
    sandboxes: objects.sandboxes
      .filter((sandbox) => (sandbox.metadata.uid ?? '') !== '')
      .map((sandbox) => sandboxFacts(sandbox, podByName.get(`${sandbox.metadata.namespace}/${sandbox.metadata.name}`))),
    policies: records,
    services: serviceFacts(objects.services, objects.endpointSlices, objects.pods),
    pods: objects.pods.map((pod) => ({
      namespace: pod.metadata.namespace ?? '',
      labels: pod.metadata.labels ?? {},
      addresses: podAddresses(pod),
    })),
    invalidSpecs,
    secretKeys: Object.fromEntries(
      objects.secrets.map((secret) => [`${secret.metadata.namespace}/${secret.metadata.name}`, usableKeys(secret)]),
    ),
    hosts: settings.hosts,
    virtualAddresses: kept.virtualAddresses,
    rootNamespace: settings.rootNamespace,
  };
}
