import { startGateway } from './envoys.ts';
import { startLocalMode } from './local-mode.ts';
import { BenchPlane, pause } from './plane.ts';
import { commandOf, processTree, pssMb } from './processes.ts';
import { type Metrics, metric } from './report.ts';
import { onStage, type SuiteContext } from './suite.ts';
import { fleetWorld } from './worlds.ts';

const SANDBOXES = 10_000;
/** What a process needs only while it starts has been given back by then (D29). */
const SETTLE_MS = 30_000;

/** Proportional set sizes of local mode without sandboxes, and of a control plane with many. */
export async function run(context: SuiteContext): Promise<Metrics> {
  return { ...(await localMode(context)), ...(await controlPlane(context)) };
}

function localMode({ say }: SuiteContext): Promise<Metrics> {
  return onStage(async (stage) => {
    say('starting local mode; measuring 30 s after it is ready …');
    const plane = await startLocalMode(stage);
    await pause(SETTLE_MS);
    const sizes = processTree(plane.pid).map((pid) => ({ command: commandOf(pid), mb: pssMb(pid) }));
    for (const { command, mb } of sizes) {
      say(`${mb.toFixed(1).padStart(7)} MB  ${command.slice(0, 120)}`);
    }
    const total = sizes.reduce((sum, { mb }) => sum + mb, 0);
    return { 'memory.local_pss_mb': metric(total, 'MB', `${sizes.length} processes of sandgate up, no sandboxes`) };
  });
}

function controlPlane({ say }: SuiteContext): Promise<Metrics> {
  return onStage(async (stage) => {
    say(`starting a control plane with ${SANDBOXES} sandboxes in 300 policy sets, and two Envoys …`);
    const plane = await BenchPlane.start({ world: fleetWorld(SANDBOXES), settings: '', roles: ['control-plane'] });
    stage.defer(() => plane.close());
    const envoys = {
      egress: stage.keep(await startGateway(plane, 'egress', null)),
      ingress: stage.keep(await startGateway(plane, 'ingress', null)),
    };
    await plane.settled(2);
    say('everything is acknowledged; measuring in 30 s …');
    await pause(SETTLE_MS);
    await plane.settled(2);
    for (const [name, envoy] of Object.entries(envoys)) {
      say(`${pssMb(envoy.pid!).toFixed(1).padStart(7)} MB  ${name} Envoy`);
    }
    const against = '10,000 sandboxes in 300 policy sets, two Envoys connected, everything acknowledged';
    return { 'memory.control_plane_pss_mb': metric(pssMb(plane.pid('control-plane')), 'MB', against) };
  });
}
