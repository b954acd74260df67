/** The suites; run as a program, `run-suite.ts SUITE OPTIONS`, it measures one and prints its figures as JSON. */
import { measured } from './report.ts';
import { clearStages, ip, type Suite, type SuiteContext } from './suite.ts';

export const SUITES: Readonly<Record<string, Suite>> = {
  egress: { loads: true, load: () => import('./egress.ts') },
  ingress: { loads: true, load: () => import('./ingress.ts') },
  xds: { loads: false, load: () => import('./xds.ts') },
  memory: { loads: false, load: () => import('./memory.ts') },
  start: { loads: false, load: () => import('./start.ts') },
};

type SuiteOptions = Omit<SuiteContext, 'say'> & { readonly isolated: boolean };

async function runOne(name: string, { isolated, ...numbers }: SuiteOptions): Promise<void> {
  if (isolated) {
    await ip('link', 'set', 'lo', 'up');
  }
  const { run } = await SUITES[name]!.load();
  const metrics = await run({ ...numbers, say: (line) => void process.stderr.write(`${name}: ${line}\n`) });
  process.stdout.write(`${JSON.stringify(measured(metrics))}\n`);
}

if (import.meta.main) {
  const [name = '', options = '{}'] = process.argv.slice(2);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void clearStages().finally(() => process.exit(1)));
  }
  try {
    await runOne(name, JSON.parse(options) as SuiteOptions);
    process.exit(0);
  } catch (error) {
    process.stderr.write(`${name}: ${(error as Error).stack}\n`);
    process.exit(1);
  }
}
