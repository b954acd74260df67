import { sameItems } from '../base/items.ts';
import type { TokenSubject } from '../identity/sandbox-token.ts';
import { parseSpiffeId, type Role } from '../identity/spiffe.ts';
import type { Compilation } from '../policy-compiler/compilation.ts';
import { encoded, type ResourceJson } from '../policy-compiler/output.ts';
import type { WorldView } from '../world/world.ts';
import type { Caller, EncodedResource, ResourceView, ViewSource } from '../xds/view.ts';
import type { Unpublished } from './plane.ts';
import { overlay, ResourceTable } from './resource-table.ts';
import type { SecretResources } from './secret-resources.ts';

/** The view of a sidecar with the token and the set that it is made from. */
interface SidecarView {
  readonly token: EncodedResource;
  readonly set: ResourceTable;
  readonly view: ResourceView;
}

/** The view of a gateway with what it was made from. */
interface RoleTable {
  readonly resources: readonly ResourceJson[];
  readonly secrets: readonly EncodedResource[];
  readonly table: ResourceTable;
}

/** The views of a publication with everything that they depend on. */
interface KnownSource {
  readonly from: readonly unknown[];
  readonly source: ViewSource;
}

const EMPTY = ResourceTable.empty;
const NO_SECRETS: readonly EncodedResource[] = [];
const NO_TABLE: RoleTable = { resources: [], secrets: NO_SECRETS, table: EMPTY };

/**
 * One view per identity over one set of encoded resources (D30). A view is made from the verified certificate alone: a
 * sidecar sees the resources of its sandbox's L4 set and its own token, and nothing of any other (D6). A view of which
 * nothing changed stays the same object, so that its streams need not be compared again.
 */
export class Views {
  readonly #secrets: SecretResources;
  #egress: RoleTable = NO_TABLE;
  #ingress: RoleTable = NO_TABLE;
  readonly #sets = new WeakMap<readonly ResourceJson[], ResourceTable>();
  readonly #sidecars = new Map<string, SidecarView>();
  #known: KnownSource | null = null;

  constructor(secrets: SecretResources) {
    this.#secrets = secrets;
  }

  /**
   * The views of a publication; `subjects` are the sandboxes with a Pod, by uid. When no view of anybody can differ from
   * those of the publication before, it is the same object as before.
   */
  source({ world, compilation, ingress }: Unpublished, subjects: ReadonlyMap<string, TokenSubject>): ViewSource {
    this.#egress = this.#role(this.#egress, compilation.egress, this.#egressSecrets(world, compilation));
    this.#ingress = this.#role(this.#ingress, ingress, NO_SECRETS);
    const roles: Readonly<Partial<Record<Role, ResourceTable>>> = {
      egress: this.#egress.table,
      ingress: this.#ingress.table,
    };
    const from = [roles.egress, roles.ingress, compilation, subjects, this.#secrets.tokenRevision];
    if (this.#known !== null && sameItems(this.#known.from, from)) {
      return this.#known.source;
    }
    this.#forget(subjects);
    this.#known = { from, source: this.#source(roles, compilation, subjects) };
    return this.#known.source;
  }

  #source(
    roles: Readonly<Partial<Record<Role, ResourceTable>>>,
    compilation: Compilation,
    subjects: ReadonlyMap<string, TokenSubject>,
  ): ViewSource {
    return {
      viewOf: (caller: Caller) => {
        const identity = parseSpiffeId(caller.spiffeId);
        if (identity === null) {
          return undefined;
        }
        if (identity.kind === 'role') {
          return roles[identity.role];
        }
        const subject = subjects.get(identity.uid);
        return subject?.spiffeId === caller.spiffeId ? this.#sidecar(compilation, subject) : EMPTY;
      },
    };
  }

  /** Null until its token is signed: without one, what the sidecar has would be taken from it. */
  #sidecar(compilation: Compilation, subject: TokenSubject): ResourceView | null {
    const resources = compilation.sidecarSets.get(compilation.subjects.get(subject.uid)?.l4Set ?? '');
    if (resources === undefined) {
      return EMPTY;
    }
    const token = this.#secrets.token(subject);
    if (token === null) {
      return null;
    }
    const set = this.#set(resources);
    const known = this.#sidecars.get(subject.uid);
    if (known?.token === token && known.set === set) {
      return known.view;
    }
    const view = overlay(ResourceTable.of([token]), set);
    this.#sidecars.set(subject.uid, { token, set, view });
    return view;
  }

  #set(resources: readonly ResourceJson[]): ResourceTable {
    const known = this.#sets.get(resources);
    if (known !== undefined) {
      return known;
    }
    const table = ResourceTable.of(resources.map(encoded));
    this.#sets.set(resources, table);
    return table;
  }

  #role(known: RoleTable, resources: readonly ResourceJson[], secrets: readonly EncodedResource[]): RoleTable {
    return known.resources === resources && sameItems(known.secrets, secrets)
      ? known
      : { resources, secrets, table: ResourceTable.of([...resources.map(encoded), ...secrets], known.table) };
  }

  #egressSecrets(world: WorldView, compilation: Compilation): readonly EncodedResource[] {
    const credentials = this.#secrets.credentials(compilation.credentials, ({ namespace, name, key }) =>
      world.secret(namespace, name, key),
    );
    const issued = [this.#secrets.gateway(), ...compilation.leaves.map((name) => this.#secrets.leaf(name))];
    return [...credentials, ...issued.filter((resource) => resource !== null)];
  }

  #forget(subjects: ReadonlyMap<string, TokenSubject>): void {
    for (const uid of this.#sidecars.keys()) {
      if (!subjects.has(uid)) {
        this.#sidecars.delete(uid);
      }
    }
  }
}
