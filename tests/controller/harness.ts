import { findCondition } from '../../api/conditions.ts';
import { kindNamed } from '../../api/kinds.ts';
import type { KubeObject } from '../../api/object.ts';
import type { SandboxStatus } from '../../api/sandbox.ts';
import { ManualClock } from '../../base/clock.ts';
import { isCoded } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { SandboxReconciler, type SandboxReconcilerOptions } from '../../controller/sandbox-reconciler.ts';
import { releasePod } from '../../controller/withdrawal.ts';
import { MemoryStore } from '../../store/table-store.ts';

export const KEY = { namespace: 'lab', name: 'fox' };
export const NOW = Date.UTC(2030, 0, 1);

/** Log lines of one test. */
export function recordingLogger(lines: { level: string; fields: object; message: string }[]): Logger {
  const at = (level: string) => (fields: object, message: string) => void lines.push({ level, fields, message });
  const logger: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => logger,
  };
  return logger;
}

/** One Sandbox in a store in memory, a clock that is moved by hand, and a node agent that does as it is told. */
export class World {
  readonly clock = new ManualClock(NOW);
  readonly store = new MemoryStore({ kinds: kindNamed, clock: this.clock });
  readonly lines: { level: string; fields: object; message: string }[] = [];
  readonly withdrawals: string[] = [];
  withdrawal: (uid: string) => Promise<void> = async () => {};
  reconciler: SandboxReconciler;
  readonly #settings: SandboxReconcilerOptions['settings'];

  constructor(settings: SandboxReconcilerOptions['settings'] = { shortIds: false }) {
    this.#settings = settings;
    this.reconciler = this.restarted();
  }

  /** A controller that has just been started. */
  restarted(): SandboxReconciler {
    this.reconciler = new SandboxReconciler({
      store: this.store,
      clock: this.clock,
      logger: recordingLogger(this.lines),
      settings: this.#settings,
      withdrawal: async (uid) => {
        this.withdrawals.push(uid);
        await this.withdrawal(uid);
      },
    });
    return this.reconciler;
  }

  async create(spec: object = {}, metadata: object = {}): Promise<KubeObject> {
    return this.store.create({
      apiVersion: 'agents.kruise.io/v1alpha1',
      kind: 'Sandbox',
      metadata: { ...KEY, ...metadata },
      spec: { template: { spec: { containers: [{ name: 'main', command: ['serve'] }] } }, ...spec },
    });
  }

  sandbox(): Promise<KubeObject | null> {
    return this.#find('Sandbox');
  }

  pod(): Promise<KubeObject | null> {
    return this.#find('Pod');
  }

  async #find(kind: string): Promise<KubeObject | null> {
    try {
      return await this.store.get(kind, KEY);
    } catch (error) {
      if (isCoded(error, 'not-found')) {
        return null;
      }
      throw error;
    }
  }

  async status(): Promise<SandboxStatus> {
    return ((await this.sandbox())?.status ?? {}) as SandboxStatus;
  }

  async phase(): Promise<string | undefined> {
    return (await this.status()).phase;
  }

  /** `True/PodReady`, or undefined. */
  async condition(type: string): Promise<string | undefined> {
    const found = findCondition((await this.status()).conditions, type);
    return found === undefined ? undefined : `${found.status}/${found.reason}`;
  }

  async patchSpec(spec: object): Promise<void> {
    await this.store.patch('Sandbox', KEY, { type: 'merge', body: { spec } });
  }

  async podStatus(status: object): Promise<void> {
    await this.store.patchStatus('Pod', KEY, { type: 'merge', body: { status } });
  }

  /** The node agent starts the Pod. */
  async start(ip = '10.244.0.5'): Promise<void> {
    await this.podStatus({ phase: 'Running', podIP: ip, conditions: [{ type: 'Ready', status: 'True' }] });
  }

  /** The node agent does what the freeze annotation says. */
  async obeyFreeze(): Promise<void> {
    const pod = await this.pod();
    const freeze = pod?.metadata.annotations?.['sandgate.dev/freeze'] === 'true';
    await this.podStatus({
      conditions: [
        { type: 'Ready', status: freeze ? 'False' : 'True' },
        { type: 'ContainersPaused', status: freeze ? 'True' : 'False' },
        { type: 'ContainersResumed', status: freeze ? 'False' : 'True' },
      ],
    });
  }

  pass(): Promise<unknown> {
    return this.reconciler.reconcile(KEY);
  }

  release(): Promise<void> {
    return releasePod(this.store, KEY, (uid) => this.reconciler.withdraw(uid));
  }

  /** Passes until one changes nothing any more. */
  async settle(): Promise<void> {
    for (let round = 0; round < 10; round += 1) {
      const before = (await this.sandbox())?.metadata.resourceVersion;
      await this.pass();
      if ((await this.sandbox())?.metadata.resourceVersion === before) {
        return;
      }
    }
    throw new Error('the Sandbox does not settle');
  }

  /** A Sandbox that runs and is ready. */
  async running(spec: object = {}, metadata: object = {}): Promise<void> {
    await this.create(spec, metadata);
    await this.settle();
    await this.start();
    await this.settle();
  }

  events(): string[] {
    return this.lines.map(({ fields }) => (fields as { event?: string }).event).filter((event) => event !== undefined);
  }
}
