import type { Command } from 'commander';
import { stringify } from 'yaml';
import type { CompiledPlane } from '../control-plane/routes.ts';
import { adminCall } from './admin-client.ts';
import { outputFormat } from './output.ts';
import { findTarget } from './target.ts';

/** `sandgate compile`: the resources of every Envoy role; sensitive ones are `[redacted]` (D7). */
export function registerCompile(program: Command): void {
  program
    .command('compile')
    .description('the resources of every Envoy role, as YAML')
    .option('-o, --output <format>', 'json')
    .option('--dir <dir>', 'the directory of the plane; without a running one its manifests are read')
    .addHelpText('after', '\nExample:\n  $ sandgate compile --dir ./policies -o json\n')
    .action(async (options: { readonly output?: string; readonly dir?: string }) => {
      const format = outputFormat(options.output, ['json']);
      const target = await findTarget(options.dir);
      const plane = target.isRunning
        ? await adminCall<CompiledPlane>(target.dir, 'GET', '/compile')
        : await (await import('./offline.ts')).compileOffline(target.dir);
      process.stdout.write(
        format === 'json' ? `${JSON.stringify(plane)}\n` : stringify(plane, { aliasDuplicateObjects: false }),
      );
    });
}
