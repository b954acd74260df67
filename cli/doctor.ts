import type { Command } from 'commander';
import { errorText, isCoded } from '../base/errors.ts';
import { findEnvoy, locateEnvoy } from '../envoy/find.ts';
import type { Capability } from '../local/capabilities.ts';
import { outputFormat } from './output.ts';

interface DoctorOptions {
  readonly installEnvoy?: boolean;
  readonly output?: string;
}

/** What `doctor` found. */
interface Findings {
  /** Whether local mode can run here, every sandbox isolated. */
  readonly ok: boolean;
  readonly mode: 'namespaces' | 'advisory';
  readonly capabilities: readonly Capability[];
  /** The commands that bring what is missing and required, as one line; null: nothing is, or no command helps. */
  readonly fix: string | null;
}

/** `sandgate doctor`: what this machine can do, what is missing, how to get it. Changes nothing unless it is told to. */
export function registerDoctor(program: Command): void {
  program
    .command('doctor')
    .description('what this machine can do, what is missing, how to get it; status 1 when local mode cannot run')
    .option('--install-envoy', 'download the pinned Envoy if it is missing, as the first start of local mode does')
    .option('-o, --output <format>', 'json')
    .addHelpText('after', '\nNothing is installed or downloaded otherwise.\n\nExample:\n  $ sandgate doctor\n')
    .action(doctor);
}

async function doctor(options: DoctorOptions): Promise<void> {
  const format = outputFormat(options.output, ['json']);
  const { detectCapabilities } = await import('../local/capabilities.ts');
  const { mode, list } = await detectCapabilities();
  const capabilities = [...list, await envoy(options.installEnvoy === true)];
  const missing = capabilities.filter(({ ok, required }) => required && !ok);
  const fixes = missing.flatMap(({ fix }) => (fix === null ? [] : [fix]));
  const findings = { ok: missing.length === 0, mode, capabilities, fix: fixes.join(' && ') || null };
  process.stdout.write(format === 'json' ? `${JSON.stringify(findings)}\n` : words(findings));
  process.exitCode = findings.ok ? 0 : 1;
}

async function envoy(install: boolean): Promise<Capability> {
  const found = { name: 'envoy', required: true, fix: null };
  try {
    const path = install
      ? await findEnvoy({ onProgress: (text) => process.stderr.write(`${text}\n`) })
      : await locateEnvoy();
    return path === null
      ? { ...found, ok: false, detail: 'not on this machine yet', fix: 'sandgate doctor --install-envoy' }
      : { ...found, ok: true, detail: path };
  } catch (error) {
    const fix = isCoded(error, 'envoy-version') ? 'unset SANDGATE_ENVOY' : null;
    return { ...found, ok: false, detail: errorText(error), fix };
  }
}

function words({ ok, mode, capabilities, fix }: Findings): string {
  const lines = capabilities.map(({ name, ok: isThere, required, detail, fix: own }) => {
    const mark = isThere ? 'ok     ' : required ? 'MISSING' : 'without';
    return `${mark} ${name}: ${detail}${isThere || required || own === null ? '' : ` — ${own}`}`;
  });
  const verdict = ok
    ? 'local mode can run: each sandbox is isolated'
    : `local mode cannot run${mode === 'namespaces' ? ' yet' : ': sandboxes cannot be isolated'}`;
  return `${[...lines, '', verdict, ...(fix === null ? [] : ['mend it with:', `  ${fix}`])].join('\n')}\n`;
}
