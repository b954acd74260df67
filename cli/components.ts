import { join } from 'node:path';
import type { Logger } from '../base/logger.ts';
import type { EnvoyProcess, EnvoyState } from '../envoy/supervise.ts';
import type { Pki } from '../identity/pki-directory.ts';
import type { Layout } from '../local/layout.ts';
import type { NodeNamespace } from '../local/node-namespace.ts';
import { Child, type ChildState, FAILURES } from './child-process.ts';
import { startGateway } from './gateways.ts';
import { nodeFlags, type RoleName } from './roles/names.ts';

/** One process of the plane. */
export interface Component {
  readonly name: RoleName;
  readonly state: ChildState;
  /** Null while it is not running. */
  readonly pid: number | null;
  readonly restarts: number;
  /** Throws when it is not ready in time. */
  ready(): Promise<void>;
  stop(): Promise<void>;
}

export interface ComponentOptions {
  readonly without: readonly string[];
  readonly layout: Layout;
  readonly pki: Pki;
  /** Path of the Envoy binary. */
  readonly binary: string;
  readonly node: NodeNamespace;
  readonly logger: Logger;
  /** Told when a component begins to fail again and again, and when it is well again. */
  readonly onTrouble: (name: RoleName, state: 'failing' | 'running') => void;
}

const READY_MS = 60_000;

/** Starts every role that is not left out, in the order in which they depend on each other. */
export async function startComponents(
  options: ComponentOptions,
  started: (component: Component) => void,
): Promise<readonly Component[]> {
  const { without, node } = options;
  const wanted = (role: RoleName) => !without.includes(role);
  const inNode = (argv: readonly string[]) => node.wrap(argv);
  const components: Component[] = [];
  const add = (component: Component) => {
    components.push(component);
    started(component);
  };
  for (const role of ['control-plane', 'egress-processor', 'ingress-processor'] as const) {
    if (wanted(role)) {
      add(childComponent(options, role, role === 'ingress-processor' ? inNode : undefined));
    }
  }
  for (const role of ['egress', 'ingress'] as const) {
    if (wanted(`${role}-gateway`)) {
      add(await gatewayComponent(options, role, role === 'ingress' ? inNode : undefined));
    }
  }
  if (wanted('controller')) {
    add(childComponent(options, 'controller'));
  }
  return components;
}

type Wrap = (argv: readonly string[]) => readonly string[];

/** Reports the way into trouble and out of it, each once. */
function troubleOf(name: RoleName, { onTrouble }: ComponentOptions): (state: ChildState) => void {
  let isFailing = false;
  return (state) => {
    if (state === 'failing' && !isFailing) {
      isFailing = true;
      onTrouble(name, 'failing');
    } else if (state === 'running' && isFailing) {
      isFailing = false;
      onTrouble(name, 'running');
    }
  };
}

function childComponent(options: ComponentOptions, role: RoleName, wrap?: Wrap): Component {
  const child = new Child({
    name: role,
    argv: [
      process.execPath,
      ...nodeFlags(role),
      join(import.meta.dirname, 'main.ts'),
      role,
      '--dir',
      options.layout.dir,
    ],
    logger: options.logger,
    graceMs: role === 'controller' ? 15_000 : 5000,
    onState: troubleOf(role, options),
    ...(wrap === undefined ? {} : { wrap }),
  });
  return {
    name: role,
    get state() {
      return child.state;
    },
    get pid() {
      return child.pid ?? null;
    },
    get restarts() {
      return child.restarts;
    },
    ready: () => child.ready(READY_MS),
    stop: () => child.stop(),
  };
}

async function gatewayComponent(options: ComponentOptions, role: 'egress' | 'ingress', wrap?: Wrap) {
  const { layout, pki, binary, logger } = options;
  const name = `${role}-gateway` as const;
  const health = new EnvoyHealth(troubleOf(name, options));
  const envoy: EnvoyProcess = await startGateway({
    ...{ role, layout, pki, binary, logger, concurrency: 1 },
    onState: (state) => health.see(state),
    ...(wrap === undefined ? {} : { wrap }),
  });
  const component: Component = {
    name,
    get state() {
      return health.state;
    },
    get pid() {
      return envoy.pid;
    },
    get restarts() {
      return envoy.restarts;
    },
    ready: () => envoy.ready(READY_MS),
    stop: () => envoy.stop(),
  };
  return component;
}

/** The state of an Envoy in the words of a child. */
class EnvoyHealth {
  state: ChildState = 'starting';
  readonly #tell: (state: ChildState) => void;
  #failures = 0;

  constructor(tell: (state: ChildState) => void) {
    this.#tell = tell;
  }

  see(state: EnvoyState): void {
    if (state === 'live') {
      this.#failures = 0;
      this.state = 'running';
    } else if (state === 'waiting') {
      this.#failures += 1;
      this.state = this.#failures >= FAILURES ? 'failing' : 'starting';
    } else if (state === 'stopping' || state === 'stopped') {
      this.state = 'stopped';
    }
    this.#tell(this.state);
  }
}
