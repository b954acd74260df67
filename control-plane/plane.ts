import type { PolicyFacts } from '../api/facts.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { counter, histogram } from '../base/metrics.ts';
import type { TokenSubject } from '../identity/sandbox-token.ts';
import { sandboxId } from '../identity/spiffe.ts';
import type { Compilation, CompilerSettings } from '../policy-compiler/compilation.ts';
import type { Compiler } from '../policy-compiler/compile.ts';
import type { ResourceJson } from '../policy-compiler/output.ts';
import { shadowedChains } from '../policy-compiler/sidecar-chains.ts';
import { Kept } from '../world/keep.ts';
import type { WorldView } from '../world/world.ts';
import type { ViewSource } from '../xds/view.ts';
import type { SecretResources } from './secret-resources.ts';
import { Views } from './views.ts';

const compileSeconds = histogram(
  'sandgate_compile_seconds',
  'Time from a changed world to its resources, encoded',
  [],
  [0.001, 0.005, 0.02, 0.1, 0.5, 2],
);

const overcutTotal = counter(
  'sandgate_overcut_chains_total',
  'Filter chains of sidecars whose connections a change ended although some of them stay allowed (D14)',
  ['reason'],
);

/** What one state of the world was compiled to, as it was published. */
export interface Published {
  readonly sequence: number;
  readonly world: WorldView;
  readonly compilation: Compilation;
  /** Resources of the ingress gateway. */
  readonly ingress: readonly ResourceJson[];
}

/** What is about to be published. */
export type Unpublished = Omit<Published, 'sequence'>;

export interface PlaneOptions {
  readonly compiler: Compiler;
  /** The compiler's settings at this moment; the key set in it changes with a rotation. */
  settings(): CompilerSettings;
  /** The ingress gateway's resources of a state of the world. */
  compileIngress(world: WorldView): readonly ResourceJson[];
  readonly secrets: SecretResources;
  publish(source: ViewSource, published: Published): void;
  /** Another state of the world of which nobody's view differs: what was published stands for it too. */
  restate(published: Published): void;
  readonly logger: Logger;
  /** How long a compilation waits for its certificates, milliseconds; default 2000. */
  readonly patienceMs?: number;
}

type Subjects = ReadonlyMap<string, TokenSubject>;

/** The latest compilation, and what it was made from. */
interface Compiled {
  readonly facts: PolicyFacts;
  readonly settings: CompilerSettings;
  readonly compilation: Compilation;
}

/** A certificate is issued within milliseconds; when that fails, everything else goes on without it. */
const PATIENCE_MS = 2000;

/** Compiles each state of the world and publishes what came out. */
export class Plane {
  readonly #options: PlaneOptions;
  readonly #views: Views;
  readonly #tokenSubjects = new Kept<[PolicyFacts['sandboxes'], WorldView['podUids']], Subjects>();
  #compiled: Compiled | null = null;
  #source: ViewSource | null = null;
  #next: Unpublished | null = null;
  #published: Published | null = null;
  #subjects: Subjects = new Map();
  #patience: NodeJS.Timeout | null = null;

  constructor(options: PlaneOptions) {
    this.#options = options;
    this.#views = new Views(options.secrets);
  }

  /** What is published; null before the first time. */
  get published(): Published | null {
    return this.#published;
  }

  /** Whose tokens are handed out, by Sandbox uid. */
  get subjects(): Subjects {
    return this.#subjects;
  }

  /**
   * Compiles and publishes a state of the world. A failure keeps what was published before. Gives the names that need a
   * virtual address.
   */
  update(world: WorldView): readonly string[] {
    const done = compileSeconds.startTimer();
    try {
      const compilation = this.#compile(world.facts, this.#options.settings());
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

  /** A change that is no fact, such as a condition that was written, leaves the compilation as it is. */
  #compile(facts: PolicyFacts, settings: CompilerSettings): Compilation {
    const known = this.#compiled;
    if (known !== null && known.settings === settings && sameFacts(known.facts, facts)) {
      return known.compilation;
    }
    const compilation = this.#options.compiler.compile(facts, settings);
    this.#compiled = { facts, settings, compilation };
    return compilation;
  }

  /**
   * Publishes the latest compilation with secrets as they are now. One that intercepts a name whose leaf is still being
   * issued waits for it, so that no sandbox meets a handshake without a certificate; but not for long.
   */
  refresh(): void {
    if (this.#next === null) {
      return;
    }
    if (this.#options.secrets.isReady(this.#next.compilation.leaves)) {
      this.#show(this.#next);
    } else {
      this.#patience ??= setTimeout(() => {
        this.#options.logger.warn({}, 'published without certificates that could not be issued in time');
        this.#show(this.#next!);
      }, this.#options.patienceMs ?? PATIENCE_MS);
    }
  }

  /** Nothing is published any more. */
  close(): void {
    this.#next = null;
    clearTimeout(this.#patience ?? undefined);
  }

  #show(next: Unpublished): void {
    clearTimeout(this.#patience ?? undefined);
    this.#patience = null;
    const before = this.#published;
    this.#subjects = this.#tokenSubjects.get([next.world.facts.sandboxes, next.world.podUids], tokenSubjects);
    const source = this.#views.source(next, this.#subjects);
    if (before !== null && source === this.#source) {
      this.#published = { ...next, sequence: before.sequence };
      this.#options.restate(this.#published);
      return;
    }
    this.#source = source;
    this.#published = { ...next, sequence: (before?.sequence ?? 0) + 1 };
    this.#options.publish(source, this.#published);
    if (before !== null && before.compilation !== next.compilation) {
      overcutTotal.inc({ reason: 'shadowed' }, overcutChains(before.compilation, next.compilation));
    }
  }
}

/**
 * How many filter chains of sidecars a change cuts although they stay (D14): all their connections end because some may
 * have become forbidden. Connections themselves are known to Envoy alone.
 */
export function overcutChains(before: Compilation, after: Compilation): number {
  const counts = new Map<string, number>();
  let total = 0;
  for (const [uid, { l4Set }] of after.subjects) {
    const earlier = before.subjects.get(uid)?.l4Set;
    if (earlier !== undefined && earlier !== l4Set) {
      const key = `${earlier} ${l4Set}`;
      const count =
        counts.get(key) ??
        shadowedChains(before.sidecarChains.get(earlier) ?? [], after.sidecarChains.get(l4Set) ?? []).length;
      counts.set(key, count);
      total += count;
    }
  }
  return total;
}

/** Sandboxes with a Pod that is theirs: whom the issuer signs tokens for. */
function tokenSubjects(sandboxes: PolicyFacts['sandboxes'], podUids: WorldView['podUids']): Subjects {
  const subjects = sandboxes.flatMap(({ uid, namespace }): [string, TokenSubject][] => {
    const pod = podUids.get(uid);
    return pod === undefined ? [] : [[uid, { uid, pod, spiffeId: sandboxId({ namespace, uid }) }]];
  });
  return new Map(subjects);
}

/** Whether all parts are the same objects; `world/` keeps what did not change. */
function sameFacts(a: PolicyFacts, b: PolicyFacts): boolean {
  return (Object.keys(a) as (keyof PolicyFacts)[]).every((part) => a[part] === b[part]);
}
