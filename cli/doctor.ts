import type { Command } from 'commander';
import { errorText } from '../base/errors.ts';
import { findEnvoy } from '../envoy/find.ts';
import { installCommand, missingTools } from '../local/tools.ts';

/** `sandgate doctor`: what this machine can do, what is missing, how to get it. */
export function registerDoctor(program: Command): void {
  program
    .command('doctor')
    .description('what this machine can do, what is missing, how to get it; status 1 when sandboxes cannot be isolated')
    .addHelpText('after', '\nExample:\n  $ sandgate doctor\n')
    .action(doctor);
}

async function doctor(): Promise<void> {
  const { detectCapabilities } = await import('../local/capabilities.ts');
  const { mode, list } = await detectCapabilities();
  for (const { name, ok, required, detail, fix } of list) {
    const mark = ok ? 'ok     ' : required ? 'MISSING' : 'without';
    process.stdout.write(`${mark} ${name}: ${detail}${ok || fix === null ? '' : ` — ${fix}`}\n`);
  }
  const missing = missingTools();
  if (missing.length > 0) {
    process.stdout.write(`\ninstall what is missing with:\n  ${installCommand(missing)}\n`);
  }
  process.stdout.write(await envoyLine());
  process.stdout.write(`\nlocal mode: ${mode}\n`);
  process.exitCode = list.some(({ ok, required }) => required && !ok) ? 1 : 0;
}

async function envoyLine(): Promise<string> {
  try {
    return `ok      envoy: ${await findEnvoy({ onProgress: (text) => process.stderr.write(`${text}\n`) })}\n`;
  } catch (error) {
    return `MISSING envoy: ${errorText(error)}\n`;
  }
}
