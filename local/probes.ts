import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Container, ContainerProbe } from '../api/pod.ts';
import type { ExecSpec } from './exec.ts';
import type { NetworkProber, ProbeResult } from './network-probe.ts';

/** What the probes of one running container need. */
export interface ProbeSurroundings {
  readonly container: Container;
  readonly podAddress: string;
  readonly prober: NetworkProber;
  /** How to run a command in the container. */
  enter(command: readonly string[]): Promise<ExecSpec>;
  /** Whether its processes are frozen: probes wait then. */
  frozen(): boolean;
}

/** What the probes find out about one running container. */
export interface ProbeReports {
  started(): void;
  ready(ready: boolean, detail: string): void;
  /** A startup or liveness probe has failed for good: the container is to be killed. */
  unhealthy(detail: string): void;
}

/** A container that is not ready yet is asked this often, so that a person need not wait for `periodSeconds`. */
const FIRST_PERIOD_MS = 250;

/** Watches one running container until the signal; a container without a probe is started and ready at once. */
export function watchProbes(at: ProbeSurroundings, reports: ProbeReports, signal: AbortSignal): void {
  const { startupProbe, readinessProbe, livenessProbe } = at.container;
  const watchRunning = (): void => {
    reports.started();
    if (readinessProbe === undefined) {
      reports.ready(true, '');
    } else {
      let ready = false;
      void watch(
        at,
        readinessProbe,
        () => !ready,
        signal,
        (result, streak) => {
          const wanted = result.ok ? (readinessProbe.successThreshold ?? 1) : (readinessProbe.failureThreshold ?? 3);
          if (streak >= Math.max(1, wanted) || (!ready && !result.ok)) {
            ready = result.ok;
            reports.ready(ready, result.detail);
          }
        },
      );
    }
    if (livenessProbe !== undefined) {
      void watch(at, livenessProbe, () => false, signal, failing(livenessProbe, 'liveness', reports));
    }
  };
  if (startupProbe === undefined) {
    watchRunning();
    return;
  }
  const started = new AbortController();
  const failed = failing(startupProbe, 'startup', reports);
  void watch(
    at,
    startupProbe,
    () => true,
    AbortSignal.any([signal, started.signal]),
    (result, streak) => {
      if (result.ok) {
        started.abort();
        watchRunning();
      } else {
        failed(result, streak);
      }
    },
  );
}

function failing(probe: ContainerProbe, name: string, reports: ProbeReports) {
  return (result: ProbeResult, streak: number): void => {
    if (!result.ok && streak >= Math.max(1, probe.failureThreshold ?? 3)) {
      reports.unhealthy(`${name} probe failed: ${result.detail}`);
    }
  };
}

/** Probes again and again; `seen` gets each result and how many equal ones in a row it makes. */
async function watch(
  at: ProbeSurroundings,
  probe: ContainerProbe,
  hurry: () => boolean,
  signal: AbortSignal,
  seen: (result: ProbeResult, streak: number) => void,
): Promise<void> {
  const periodMs = Math.max(1, probe.periodSeconds ?? 10) * 1000;
  let last: { readonly ok: boolean; readonly streak: number } = { ok: false, streak: 0 };
  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal }).then(
      () => {},
      () => {},
    );
  await pause((probe.initialDelaySeconds ?? 0) * 1000);
  while (!signal.aborted) {
    if (!at.frozen()) {
      const result = await runProbe(at, probe, signal);
      // A container frozen meanwhile has not failed.
      if (!signal.aborted && !at.frozen()) {
        last = { ok: result.ok, streak: result.ok === last.ok ? last.streak + 1 : 1 };
        seen(result, last.streak);
      }
    }
    await pause(hurry() ? Math.min(FIRST_PERIOD_MS, periodMs) : periodMs);
  }
}

async function runProbe(at: ProbeSurroundings, probe: ContainerProbe, signal: AbortSignal): Promise<ProbeResult> {
  const timeoutMs = Math.max(1, probe.timeoutSeconds ?? 1) * 1000;
  if (probe.exec !== undefined) {
    return runExec(await at.enter(probe.exec.command ?? []), timeoutMs, signal);
  }
  const action = probe.httpGet ?? probe.tcpSocket;
  if (action === undefined) {
    return { ok: false, detail: 'the probe has neither exec nor httpGet nor tcpSocket' };
  }
  const port = portOf(at.container, action.port);
  if (port === null) {
    return { ok: false, detail: `there is no port ${JSON.stringify(action.port)}` };
  }
  const host = action.host ?? at.podAddress;
  if (probe.httpGet === undefined) {
    return at.prober.ask({ kind: 'tcp', host, port, timeoutMs });
  }
  const { path = '/', scheme, httpHeaders = [] } = probe.httpGet;
  return at.prober.ask({
    kind: scheme === 'HTTPS' ? 'https' : 'http',
    host,
    port,
    path: path.startsWith('/') ? path : `/${path}`,
    headers: Object.fromEntries(httpHeaders.map(({ name, value }) => [name, value])),
    timeoutMs,
  });
}

function portOf(container: Container, port: number | string): number | null {
  const named = (container.ports ?? []).find(({ name }) => name === port)?.containerPort;
  const value = typeof port === 'number' ? port : (named ?? Number(port));
  return Number.isInteger(value) && value > 0 && value < 65_536 ? value : null;
}

async function runExec(spec: ExecSpec, timeoutMs: number, signal: AbortSignal): Promise<ProbeResult> {
  const child = spawn(spec.argv[0]!, spec.argv.slice(1), {
    env: spec.env.reveal(),
    stdio: 'ignore',
    detached: true,
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    signal,
  });
  return new Promise((done) => {
    child.once('error', () => done({ ok: false, detail: 'the command could not be started' }));
    child.once('exit', (code, killed) =>
      done({
        ok: code === 0,
        detail: killed === null ? `the command ended with ${code}` : 'the command took too long',
      }),
    );
  });
}
