import type { PolicyFacts } from '../api/facts.ts';
import type { ObjectRef } from '../api/object.ts';
import type { ResourceJson, ResourceName } from '../policy-compiler/output.ts';
import { findSandbox } from './explain.ts';
import type { Published } from './plane.ts';

/**
 * The part of a publication that one sandbox needs: its scopes in the gateways with everything that they require, and
 * the set of its sidecar. Throws `not-found` for an unknown sandbox.
 */
export function resourcesOf(
  { world, compilation, ingress }: Pick<Published, 'world' | 'compilation' | 'ingress'>,
  sandbox: string,
): Pick<Published, 'ingress'> & { readonly compilation: Pick<Published['compilation'], 'egress' | 'sidecarSets'> } {
  const found = findSandbox(world.facts, sandbox);
  const set = compilation.subjects.get(found.uid)?.l4Set ?? '';
  const own = compilation.sidecarSets.get(set);
  return {
    compilation: {
      egress: reachable(compilation.egress, ({ name }) => name === found.uid || name === `i:${found.uid}`),
      sidecarSets: new Map(own === undefined ? [] : [[set, own]]),
    },
    ingress: reachable(ingress, ({ origins }) => origins.some((ref) => isSandbox(ref, found))),
  };
}

function isSandbox({ kind, namespace, name }: ObjectRef, sandbox: PolicyFacts['sandboxes'][number]): boolean {
  return kind === 'Sandbox' && namespace === sandbox.namespace && name === sandbox.name;
}

/** The resources that fit, and all that these require, in the order of the list. */
function reachable(
  resources: readonly ResourceJson[],
  fits: (resource: ResourceJson) => boolean,
): readonly ResourceJson[] {
  const key = ({ typeUrl, name }: ResourceName) => `${typeUrl} ${name}`;
  const byKey = new Map(resources.map((resource) => [key(resource), resource]));
  const reached = new Set(resources.filter(fits));
  for (const resource of reached) {
    for (const required of resource.requires) {
      const next = byKey.get(key(required));
      if (next !== undefined) {
        reached.add(next);
      }
    }
  }
  return resources.filter((resource) => reached.has(resource));
}
