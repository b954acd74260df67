import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { histogram } from '../base/metrics.ts';
import type { TokenSubject } from '../identity/sandbox-token.ts';
import { parseSpiffeId, sandboxId } from '../identity/spiffe.ts';
import type { Compilation, CompilerSettings } from '../policy-compiler/compilation.ts';
import type { Compiler } from '../policy-compiler/compile.ts';
import type { ResourceJson } from '../policy-compiler/output.ts';
import type { WorldView } from '../world/world.ts';
import type { Caller, EncodedResource, ResourceView, ViewSource } from '../xds/view.ts';
import { ResourceEncoder } from './encode.ts';
import { overlay, ResourceTable } from './resource-table.ts';
import type { SecretResources } from './secret-resources.ts';

const compileSeconds = histogram(
  'sandgate_compile_seconds',
  'Time from a changed world to its resources, encoded',
  [],
  [0.001, 0.005, 0.02, 0.1, 0.5, 2],
);

/** What one state of the world was compiled to, as it was published. */
export interface Published {
  readonly sequence: number;
  readonly world: WorldView;
  readonly compilation: Compilation;
  /** Resources of the ingress gateway. */
  readonly ingress: readonly ResourceJson[];
}

export interface PlaneOptions {
  readonly compiler: Compiler;
  /** The compiler's settings at this moment; the key set in it changes with a rotation. */
  settings(): CompilerSettings;
  /** The ingress gateway's resources of a state of the world. */
  compileIngress(world: WorldView): readonly ResourceJson[];
  readonly secrets: SecretResources;
  publish(source: ViewSource, published: Published): void;
  readonly logger: Logger;
}

const EMPTY = new ResourceTable([]);

/**
 * Compiles each state of the world and publishes what came out, as one view per identity over one set of encoded
 * resources (D30). A view is made from the verified certificate alone: a sidecar sees the resources of its sandbox's L4
 * set and its own token, and nothing of any other (D6).
 */
export class Plane {
  readonly #options: PlaneOptions;
  readonly #encoder = new ResourceEncoder();
  #sequence = 0;
  #next: Omit<Published, 'sequence'> | null = null;
  #published: Published | null = null;
  #subjects: ReadonlyMap<string, TokenSubject> = new Map();

  constructor(options: PlaneOptions) {
    this.#options = options;
  }

  /** What is published; null before the first time. */
  get published(): Published | null {
    return this.#published;
  }

  /** Whose tokens are handed out, by Sandbox uid. */
  get subjects(): ReadonlyMap<string, TokenSubject> {
    return this.#subjects;
  }

  /**
   * Compiles and publishes a state of the world. A failure keeps what was published before. Gives the names that need a
   * virtual address.
   */
  update(world: WorldView): readonly string[] {
    const done = compileSeconds.startTimer();
    try {
      const compilation = this.#options.compiler.compile(world.facts, this.#options.settings());
      const ingress = this.#options.compileIngress(world);
      this.#next = { world, compilation, ingress };
      this.refresh();
      return compilation.listedNames;
    } catch (error) {
      this.#options.logger.error({ error: errorText(error) }, 'the policies could not be compiled; the last ones stay');
      return [];
    } finally {
      done();
    }
  }

  /**
   * Publishes the latest compilation with secrets as they are now. One that intercepts a name whose leaf is still being
   * issued waits for it, so that no sandbox meets a handshake without a certificate.
   */
  refresh(): void {
    if (this.#next !== null && this.#options.secrets.hasLeaves(this.#next.compilation.leaves)) {
      this.#show({ ...this.#next, sequence: this.#sequence + 1 });
    }
  }

  #show(next: Published): void {
    this.#subjects = tokenSubjects(next.world);
    const source = this.#viewSource(next);
    this.#sequence = next.sequence;
    this.#published = next;
    this.#options.publish(source, next);
  }

  #viewSource({ world, compilation, ingress }: Published): ViewSource {
    const encode = (resources: readonly ResourceJson[]) => resources.map((json) => this.#encoder.encode(json));
    const egress = new ResourceTable([...encode(compilation.egress), ...this.#egressSecrets(world, compilation)]);
    const ingressTable = new ResourceTable(encode(ingress));
    const sidecarTables = new Map<string, ResourceTable>();
    const sidecarTable = (set: string): ResourceTable => {
      const known = sidecarTables.get(set);
      if (known !== undefined) {
        return known;
      }
      const table = new ResourceTable(encode(compilation.sidecarSets.get(set) ?? []));
      sidecarTables.set(set, table);
      return table;
    };
    return {
      viewOf: (caller: Caller): ResourceView | undefined => {
        const identity = parseSpiffeId(caller.spiffeId);
        if (identity === null) {
          return undefined;
        }
        if (identity.kind === 'role') {
          return identity.role === 'egress' ? egress : identity.role === 'ingress' ? ingressTable : undefined;
        }
        const plan = compilation.subjects.get(identity.uid);
        const subject = this.#subjects.get(identity.uid);
        if (plan === undefined || subject?.spiffeId !== caller.spiffeId) {
          return EMPTY;
        }
        const token = this.#options.secrets.token(subject);
        return overlay(token === null ? EMPTY : new ResourceTable([token]), sidecarTable(plan.l4Set));
      },
    };
  }

  #egressSecrets(world: WorldView, compilation: Compilation): EncodedResource[] {
    const { secrets } = this.#options;
    const credentials = [...compilation.credentials].map(([name, source]) =>
      secrets.credential(name, source, world.secret(source.namespace, source.name, source.key)),
    );
    return [...credentials, ...compilation.leaves.map((name) => secrets.leaf(name))].filter(
      (resource) => resource !== null,
    );
  }
}

/** Sandboxes with a Pod that is theirs: whom the issuer signs tokens for. */
function tokenSubjects(world: WorldView): ReadonlyMap<string, TokenSubject> {
  const subjects = world.facts.sandboxes.flatMap(({ uid, namespace }): [string, TokenSubject][] => {
    const pod = world.podUids.get(uid);
    return pod === undefined ? [] : [[uid, { uid, pod, spiffeId: sandboxId({ namespace, uid }) }]];
  });
  return new Map(subjects);
}
