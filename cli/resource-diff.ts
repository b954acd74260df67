import { compareText } from '../base/canonical.ts';
import type { Published } from '../control-plane/plane.ts';
import { type PrintedResource, printed } from '../control-plane/routes.ts';
import type { ResourceJson } from '../policy-compiler/output.ts';
import { HIDDEN } from './documents.ts';

type Plane = Pick<Published, 'compilation' | 'ingress' | 'world'>;

/** The resources of one Envoy that come, change and go; what is secret of them is `[redacted]`. */
export interface ResourceChange {
  readonly added: readonly PrintedResource[];
  readonly changed: readonly (Pick<PrintedResource, 'type' | 'name'> & {
    readonly before: unknown;
    readonly after: unknown;
  })[];
  readonly removed: readonly PrintedResource[];
}

/** The same by role; sandboxes whose sidecars change alike are together. */
export interface ResourceChanges {
  readonly egress: ResourceChange;
  readonly ingress: ResourceChange;
  readonly sidecars: readonly (ResourceChange & { readonly sandboxes: readonly string[] })[];
}

/** A resource with what tells its versions apart, which need not be fit to print. */
interface Compared {
  readonly printed: PrintedResource;
  readonly content: string;
}

/** Compares what the Envoys of two planes get. */
export function resourceChanges(before: Plane, after: Plane): ResourceChanges {
  return {
    egress: change(egress(before), egress(after)),
    ingress: change(before.ingress.map(compared), after.ingress.map(compared)),
    sidecars: sidecars(before, after),
  };
}

function compared(resource: ResourceJson): Compared {
  return { printed: printed(resource), content: resource.version };
}

const SECRET = 'envoy.extensions.transport_sockets.tls.v3.Secret';

/** The gateway's secrets are made apart from its other resources: a credential changes with its Secret. */
function egress({ compilation, world }: Plane): Compared[] {
  const secret = (name: string, content: string) => ({
    printed: { type: SECRET, name, resource: HIDDEN } as const,
    content,
  });
  const credentials = [...compilation.credentials].flatMap(([id, { namespace, name, key }]) => {
    const value = world.secret(namespace, name, key);
    return value === null ? [] : [secret(id, value.reveal())];
  });
  const leaves = compilation.leaves.map((name) => secret(`leaf:${name}`, name));
  return [...compilation.egress.map(compared), ...credentials, ...leaves];
}

function sidecars(before: Plane, after: Plane): ResourceChanges['sidecars'] {
  const [old, now] = [setsOf(before), setsOf(after)];
  const names = [...new Set([...old.keys(), ...now.keys()])].sort(compareText);
  const pairs = Map.groupBy(names, (name) => JSON.stringify([old.get(name), now.get(name)]));
  return [...pairs.values()]
    .map((sandboxes) => {
      const resources = ({ compilation }: Plane, sets: ReadonlyMap<string, string>) =>
        (compilation.sidecarSets.get(sets.get(sandboxes[0]!) ?? '') ?? []).map(compared);
      return { sandboxes, ...change(resources(before, old), resources(after, now)) };
    })
    .filter(({ added, changed, removed }) => added.length + changed.length + removed.length > 0);
}

/** The L4 set of every sandbox, by `namespace/name`. */
function setsOf({ compilation, world }: Plane): ReadonlyMap<string, string> {
  return new Map(
    world.facts.sandboxes.map(({ namespace, name, uid }) => [
      `${namespace}/${name}`,
      compilation.subjects.get(uid)?.l4Set ?? '',
    ]),
  );
}

function change(before: readonly Compared[], after: readonly Compared[]): ResourceChange {
  const key = ({ printed: { type, name } }: Compared) => `${type} ${name}`;
  const [old, now] = [before, after].map((all) => new Map(all.map((one) => [key(one), one])));
  const ordered = (all: readonly Compared[]) => [...all].sort((a, b) => compareText(key(a), key(b)));
  return {
    added: ordered(after.filter((one) => !old!.has(key(one)))).map((one) => one.printed),
    removed: ordered(before.filter((one) => !now!.has(key(one)))).map((one) => one.printed),
    changed: ordered(after).flatMap((one) => {
      const was = old!.get(key(one));
      const { type, name, resource } = one.printed;
      return was === undefined || was.content === one.content
        ? []
        : [{ type, name, before: was.printed.resource, after: resource }];
    }),
  };
}
