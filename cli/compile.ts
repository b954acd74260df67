import { type Command, Option } from 'commander';
import { stringify } from 'yaml';
import type { CompiledPlane } from '../control-plane/routes.ts';
import { adminCall } from './admin-client.ts';
import { sandboxKey } from './object-args.ts';
import { outputFormat } from './output.ts';
import { findTarget, type Target } from './target.ts';

interface CompileOptions {
  readonly role?: 'egress' | 'ingress' | 'sidecar';
  readonly sandbox?: string;
  readonly output?: string;
  readonly dir?: string;
}

/** `sandgate compile`: the resources of every Envoy role; sensitive ones are `[redacted]` (D7). */
export function registerCompile(program: Command): void {
  program
    .command('compile')
    .description('the resources of every Envoy role, as YAML')
    .addOption(new Option('--role <role>', 'of one role').choices(['egress', 'ingress', 'sidecar']))
    .option('--sandbox <ns/name>', 'what one sandbox needs: its sidecar, and its part of the gateways')
    .option('-o, --output <format>', 'json')
    .option('--dir <dir>', 'the directory of the plane; without a running one its manifests are read')
    .addHelpText(
      'after',
      [
        '',
        'Sidecars are by their set of rules, which sandboxes with equal rules share.',
        '',
        'Example:',
        '  $ sandgate compile --dir ./policies -o json',
        '  $ sandgate compile --role sidecar --sandbox default/demo',
      ].join('\n'),
    )
    .action(compile);
}

async function compile({ role, sandbox, output, dir }: CompileOptions): Promise<void> {
  const format = outputFormat(output, ['json']);
  const key = sandbox === undefined ? undefined : sandboxKey(sandbox);
  const plane = await compiledPlane(await findTarget(dir), key && `${key.namespace}/${key.name}`);
  const { egress, ingress, sidecars } = plane;
  const shown = role === undefined ? plane : { egress: { egress }, ingress: { ingress }, sidecar: { sidecars } }[role];
  process.stdout.write(
    format === 'json' ? `${JSON.stringify(shown)}\n` : stringify(shown, { aliasDuplicateObjects: false }),
  );
}

async function compiledPlane(target: Target, sandbox: string | undefined): Promise<CompiledPlane> {
  if (!target.isRunning) {
    return (await import('./offline.ts')).compileOffline(target.dir, sandbox);
  }
  const query = sandbox === undefined ? '' : `?${new URLSearchParams({ sandbox })}`;
  return adminCall<CompiledPlane>(target.dir, 'GET', `/compile${query}`);
}
