import { startLocalMode } from './local-mode.ts';
import { type Metrics, median, metric } from './report.ts';
import { onStage, type SuiteContext } from './suite.ts';

/** How long `sandgate up` takes in an empty directory until it is ready, with Envoy at hand. */
export async function run({ rounds, say }: SuiteContext): Promise<Metrics> {
  const times: number[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    await onStage(async (stage) => {
      const { readyMs } = await startLocalMode(stage);
      times.push(readyMs);
      say(`round ${round}  ready after ${readyMs.toFixed(0)} ms`);
    });
  }
  return { 'start.ready_ms': metric(median(times), 'ms', 'sandgate up in an empty directory, nothing to download') };
}
