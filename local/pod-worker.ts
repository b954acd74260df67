import { chownSync, mkdirSync } from 'node:fs';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { notedFields } from '../api/field-classes.ts';
import { ANNOTATION_FREEZE, ANNOTATION_GRACE } from '../api/labels.ts';
import type { Container, Pod } from '../api/pod.ts';
import { errorText, isCoded } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { type ContainerProcess, signalContainer, startContainer } from './container-process.ts';
import { type BackOff, ContainerRunner, timeText } from './container-runner.ts';
import type { ContainerMount } from './container-setup.ts';
import { type ContainerRecord, enterSpec, writeContainerRecord } from './exec.ts';
import { addFinalizer, removeFinalizer } from './finalizer.ts';
import { ContainerLog } from './log-file.ts';
import type { NetworkProber } from './network-probe.ts';
import { normalised, PRODUCT_NODE, podProblems, userOf } from './pod-check.ts';
import { CA_BUNDLE_PATH, hostnameOf, PodData } from './pod-data.ts';
import { openPodSandbox, type PodNode, type PodSandbox } from './pod-sandbox.ts';
import { type PodState, phaseOf, podStatus, StatusWriter } from './pod-status.ts';
import { watchProbes } from './probes.ts';
import type { Settings } from './settings.ts';

/** What a worker needs beside its Pod. */
export interface WorkerContext extends PodNode {
  readonly store: ObjectStore;
  readonly prober: NetworkProber;
  readonly backOff: BackOff;
  /** The settings in force now. */
  settings(): Settings;
}

const RETRY_MS = 2000;
const DEFAULT_GRACE_SECONDS = 30;

/** Runs one Pod from its first sight to its end, and keeps its status. */
export class PodWorker {
  readonly uid: string;
  #pod: Pod;
  readonly #context: WorkerContext;
  readonly #logger: Logger;
  readonly #status: StatusWriter;
  readonly #abort = new AbortController();
  readonly #logs = new Map<string, ContainerLog>();
  readonly #records = new Map<string, ContainerRecord>();
  readonly #startTime = timeText();
  /** Restarts before this agent, by container; one that ran when the agent before ended counts. */
  readonly #restarts: ReadonlyMap<string, number>;
  #running: Promise<void> = Promise.resolve();
  #ending: Promise<void> | null = null;
  #failure: PodState['failure'] = null;
  #waiting: PodState['waiting'] = null;
  #sandbox: PodSandbox | null = null;
  #runners: ContainerRunner[] = [];
  #freeze: PodState['freeze'] = 'never';
  #freezing: Promise<void> = Promise.resolve();
  #idle = new Set<string>();

  constructor(pod: Pod, context: WorkerContext) {
    this.uid = pod.metadata.uid!;
    this.#pod = pod;
    this.#context = context;
    this.#restarts = new Map(
      (pod.status?.containerStatuses ?? []).map(({ name, restartCount = 0, state }) => [
        name,
        restartCount + (state?.running === undefined ? 0 : 1),
      ]),
    );
    this.#logger = context.logger.child({ pod: `${pod.metadata.namespace}/${pod.metadata.name}` });
    this.#status = new StatusWriter(context.store, this.#logger, () => ({
      pod: this.#pod,
      status: podStatus(this.#pod, this.#state()),
    }));
  }

  /** Starts the Pod, or ends what is left of one that is being deleted. */
  start(): void {
    if (this.#pod.metadata.deletionTimestamp !== undefined) {
      this.update(this.#pod);
      return;
    }
    this.#running = this.#run().catch((error: unknown) => {
      if (!this.#abort.signal.aborted) {
        this.#logger.error({ error: errorText(error) }, 'the Pod cannot be run');
      }
    });
  }

  /** A newer form of the Pod: freezing and deletion are looked at. */
  update(pod: Pod): void {
    this.#pod = pod;
    if (pod.metadata.deletionTimestamp !== undefined) {
      void this.end(graceSeconds(pod) * 1000);
      return;
    }
    this.#followFreeze();
  }

  /** Ends every process and removes everything of the Pod; called again it waits for the same end. */
  end(graceMs: number): Promise<void> {
    this.#ending ??= this.#end(graceMs).catch((error: unknown) => {
      this.#logger.error({ error: errorText(error) }, 'the Pod did not end cleanly');
    });
    return this.#ending;
  }

  /** The same at the end of the agent: the object stays as it is. */
  async abandon(): Promise<void> {
    this.#abort.abort();
    await this.#status.close();
    await this.end(0);
  }

  #state(): PodState {
    const { node } = this.#context;
    const address = this.#sandbox?.address;
    const idle = [...this.#idle].map((name) => `container ${name} has no command here and idles`);
    return {
      addresses: address === undefined ? null : [address.ipv4, ...(node.ipv6 ? [address.ipv6] : [])],
      failure: this.#failure,
      waiting: this.#waiting,
      sidecarLive: this.#sandbox?.sidecar?.live ?? null,
      runners: this.#runners,
      restarts: (name) => this.#restarts.get(name) ?? 0,
      freeze: this.#freeze,
      notes: [...idle, ...notedFields('Pod', this.#pod.spec).map(({ path, reason }) => `${path} ${reason}`)],
      ending: this.#ending !== null,
      startTime: this.#startTime,
    };
  }

  readonly #touch = (): void => this.#status.touch();

  async #run(): Promise<void> {
    const { signal } = this.#abort;
    this.#failure = this.#cannotRun();
    this.#touch();
    if (this.#failure !== null) {
      return;
    }
    const sandbox = await this.#openSandbox();
    this.#sandbox = sandbox;
    this.#touch();
    if (sandbox.sidecar !== null) {
      this.#wait('ContainerCreating', 'waiting for the sidecar and its policy');
      await sandbox.sidecar.ready();
    }
    signal.throwIfAborted();
    this.#waiting = null;
    await this.#heldWhileFrozen();
    this.#runners = this.#pod.spec.containers.map((container) => this.#runner(container, sandbox));
    this.#touch();
    await Promise.all(this.#runners.map((runner) => runner.run()));
    // It is over: what is left is the object, the status and the logs.
    await sandbox.namespace.close();
    await sandbox.sidecar?.stop();
  }

  /** What forbids running it: its fields, or an earlier life that must not be repeated. */
  #cannotRun(): PodState['failure'] {
    const problems = podProblems(this.#pod.spec);
    if (problems.length > 0) {
      const message = problems.map(({ path, reason }) => `${path}: ${reason}`).join('; ');
      return { reason: 'UnsupportedField', message };
    }
    const hadRun = this.#pod.status?.phase === 'Running';
    return hadRun && this.#pod.spec.restartPolicy === 'Never'
      ? {
          reason: 'ContainerStatusUnknown',
          message: 'its processes ended with the node agent, and restartPolicy is Never',
        }
      : null;
  }

  async #openSandbox(): Promise<PodSandbox> {
    for (;;) {
      try {
        await addFinalizer(this.#context.store, this.#pod);
        const sandbox = await openPodSandbox(this.#context, this.#pod, this.#touch);
        if (this.#abort.signal.aborted) {
          await sandbox.close();
        }
        this.#abort.signal.throwIfAborted();
        return sandbox;
      } catch (error) {
        this.#abort.signal.throwIfAborted();
        this.#logger.warn({ error: errorText(error) }, 'the namespaces of the Pod could not be made');
        this.#wait('CreateContainerError', errorText(error));
        await sleep(RETRY_MS, undefined, { signal: this.#abort.signal });
      }
    }
  }

  #wait(reason: string, message: string): void {
    this.#waiting = { reason, message };
    this.#touch();
  }

  #runner(container: Container, sandbox: PodSandbox): ContainerRunner {
    const { name } = container;
    return new ContainerRunner({
      container,
      restartPolicy: this.#pod.spec.restartPolicy ?? 'Always',
      backOff: this.#context.backOff,
      restartCount: this.#restarts.get(name) ?? 0,
      start: () => this.#startContainer(container, sandbox),
      watch: (_process, reports, signal) =>
        watchProbes(
          {
            container,
            podAddress: sandbox.address.ipv4,
            prober: this.#context.prober,
            enter: async (command) => {
              const { env } = await this.#data(sandbox).program(container, this.#context.settings());
              return enterSpec(this.#context.node, this.#records.get(name)!, { command, tty: false }, env);
            },
            frozen: () => this.#freeze === 'frozen',
          },
          reports,
          signal,
        ),
      changed: this.#touch,
    });
  }

  #data(sandbox: PodSandbox): PodData {
    return new PodData(this.#context.store, this.#pod, sandbox.address.ipv4);
  }

  async #startContainer(container: Container, sandbox: PodSandbox): Promise<ContainerProcess> {
    const { node, layout } = this.#context;
    const { name } = container;
    const data = this.#data(sandbox);
    const { env, argv, idle } = await data.program(container, this.#context.settings());
    const user = userOf(this.#pod.spec, container);
    const workingDir = container.workingDir ?? '/';
    const joinFiles = sandbox.cgroup.joinFiles;
    const plan = {
      folder: join(sandbox.folder, 'containers', name),
      byRoot: node.byRoot,
      hostname: hostnameOf(this.#pod),
      podAddress: sandbox.address.ipv4,
      outerUid: sandbox.outerUid,
      ...user,
      env: env.reveal(),
      workingDir,
      mounts: await this.#mounts(container, sandbox, data, argv),
      argv,
    };
    this.#idle[idle ? 'add' : 'delete'](name);
    const process = await startContainer(plan, {
      node,
      holderPid: sandbox.namespace.holder.pid,
      joinFiles,
      log: this.#log(name, sandbox).fd,
    });
    const record = { ...process.main, ...user, workingDir, joinFiles };
    this.#records.set(name, record);
    await writeContainerRecord(layout, this.uid, name, record);
    return process;
  }

  #log(name: string, sandbox: PodSandbox): ContainerLog {
    const known = this.#logs.get(name);
    if (known !== undefined) {
      return known;
    }
    const owner = this.#context.node.byRoot ? sandbox.outerUid : null;
    const log = new ContainerLog(join(sandbox.folder, `${name}.log`), owner);
    this.#logs.set(name, log);
    return log;
  }

  async #mounts(
    container: Container,
    sandbox: PodSandbox,
    data: PodData,
    argv: readonly string[],
  ): Promise<ContainerMount[]> {
    const mounts: ContainerMount[] = [
      { kind: 'bind', path: CA_BUNDLE_PATH, source: join(sandbox.folder, 'ca-bundle.pem'), readOnly: true },
    ];
    if (argv.some((word) => word.includes(PRODUCT_NODE))) {
      mounts.push({ kind: 'bind', path: PRODUCT_NODE, source: process.execPath, readOnly: true });
    }
    for (const mount of container.volumeMounts ?? []) {
      const path = normalised(mount.mountPath);
      const volume = (this.#pod.spec.volumes ?? []).find(({ name }) => name === mount.name)!;
      if (volume.secret !== undefined || volume.configMap !== undefined) {
        const part = mount.subPath === undefined || mount.subPath === '' ? null : normalised(mount.subPath);
        mounts.push({ kind: 'files', path, files: await data.files(volume), part });
      } else {
        const source = await this.#emptyDir(volume.name, sandbox);
        mounts.push({ kind: 'bind', path, source, readOnly: mount.readOnly === true });
      }
    }
    return mounts;
  }

  async #emptyDir(name: string, sandbox: PodSandbox): Promise<string> {
    const folder = join(sandbox.folder, 'volumes', name);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    await chmod(folder, 0o777);
    if (this.#context.node.byRoot) {
      chownSync(folder, sandbox.outerUid, sandbox.outerUid);
    }
    return folder;
  }

  get #wantsFreeze(): boolean {
    return this.#pod.metadata.annotations?.[ANNOTATION_FREEZE] === 'true';
  }

  /** A Pod that is paused when its agent starts is not started: what was frozen has gone with the old agent. */
  async #heldWhileFrozen(): Promise<void> {
    while (this.#wantsFreeze) {
      if (this.#freeze !== 'frozen') {
        this.#freeze = 'frozen';
        this.#touch();
      }
      await sleep(100, undefined, { signal: this.#abort.signal });
    }
    if (this.#freeze === 'frozen') {
      this.#freeze = 'thawed';
    }
  }

  /** Brings the processes to what the annotation says, one change after the other. */
  #followFreeze(): void {
    this.#freezing = this.#freezing.then(async () => {
      const wanted = this.#wantsFreeze;
      if (this.#runners.length === 0 || this.#abort.signal.aborted || wanted === (this.#freeze === 'frozen')) {
        return;
      }
      try {
        await this.#setFrozen(wanted);
        this.#freeze = wanted ? 'frozen' : 'thawed';
        this.#touch();
      } catch (error) {
        this.#logger.error({ error: errorText(error) }, `the Pod could not be ${wanted ? 'frozen' : 'thawed'}`);
        setTimeout(() => this.#followFreeze(), RETRY_MS).unref();
      }
    });
  }

  async #setFrozen(frozen: boolean): Promise<void> {
    if (this.#sandbox!.cgroup.canFreeze) {
      await this.#sandbox!.cgroup.freeze(frozen);
      return;
    }
    for (const { process } of this.#runners) {
      if (process !== null) {
        await signalContainer(process.main, frozen);
      }
    }
  }

  async #end(graceMs: number): Promise<void> {
    this.#abort.abort();
    this.#touch();
    await this.#freezing;
    // Frozen processes cannot take leave, and some kinds of frozen ones die only when they are thawed.
    const frozen = this.#freeze === 'frozen';
    const grace = frozen ? 0 : graceMs;
    if (frozen && this.#runners.length > 0) {
      for (const { process } of this.#runners) {
        process?.kill();
      }
      await this.#setFrozen(false);
    }
    await Promise.all(this.#runners.map((runner) => runner.stop(grace)));
    const sandbox = this.#sandbox;
    await sandbox?.namespace.close();
    await sandbox?.sidecar?.stop();
    await this.#running;
    for (const log of this.#logs.values()) {
      log.close();
    }
    await sandbox?.close();
    await this.#status.settled();
    await this.#status.close();
    if (this.#pod.metadata.deletionTimestamp !== undefined) {
      await removeFinalizer(this.#context.store, this.#pod).catch((error: unknown) => {
        if (!isCoded(error, 'unavailable')) {
          throw error;
        }
      });
    }
  }

  /** The phase as it is reported. */
  get phase(): string {
    return phaseOf(this.#pod, this.#state());
  }
}

/** Seconds that the processes get: what the deletion asks for, as a pause does, else what the Pod says. */
function graceSeconds(pod: Pod): number {
  const asked = Number(pod.metadata.annotations?.[ANNOTATION_GRACE] ?? Number.NaN);
  return asked >= 0 ? asked : (pod.spec.terminationGracePeriodSeconds ?? DEFAULT_GRACE_SECONDS);
}
