import type { Command } from 'commander';
import type { Condition } from '../api/common.ts';
import { findCondition } from '../api/conditions.ts';
import { refText } from '../api/object.ts';
import type { PlaneStatus, PolicyStatus } from '../control-plane/routes.ts';
import { adminCall } from './admin-client.ts';
import { outputFormat, table } from './output.ts';
import { findTarget } from './target.ts';

/** `sandgate status`: every policy and every Envoy: accepted, programmed, refused and why. */
export function registerStatus(program: Command): void {
  program
    .command('status')
    .description('every policy and every Envoy: accepted, programmed, refused and why')
    .option('-o, --output <format>', 'json')
    .option('--dir <dir>', 'the directory of the plane; without a running one its manifests are checked')
    .addHelpText('after', '\nExample:\n  $ sandgate status\n')
    .action(async (options: { readonly output?: string; readonly dir?: string }) => {
      const format = outputFormat(options.output, ['json']);
      const target = await findTarget(options.dir);
      const status = target.isRunning
        ? { ...(await adminCall<PlaneStatus>(target.dir, 'GET', '/status')), ...(await problems(target.dir)) }
        : await offlineStatus(target.dir);
      process.stdout.write(format === 'json' ? `${JSON.stringify(status)}\n` : words(status));
    });
}

interface Status extends PlaneStatus {
  readonly problems: readonly { readonly file: string; readonly message: string }[];
}

async function problems(dir: string): Promise<Pick<Status, 'problems'>> {
  return adminCall<Pick<Status, 'problems'>>(dir, 'GET', '/problems');
}

async function offlineStatus(dir: string): Promise<Status> {
  const { offlinePlane } = await import('./offline.ts');
  const { world, problems: found } = await offlinePlane(dir);
  const policies = world.facts.policies.map(({ ref, generation, errors, inForce }): PolicyStatus => {
    const state = errors.length === 0 ? 'stored' : inForce === null ? 'none' : 'last-good';
    return { ...ref, generation, inForce: state, errors, conditions: [] };
  });
  return { sequence: 0, sandboxes: world.sandboxes.length, policies, envoys: [], problems: found };
}

function words({ policies, envoys, sandboxes, problems: found }: Status): string {
  const condition = (policy: PolicyStatus, type: string) => {
    const value = findCondition(policy.conditions as readonly Condition[], type);
    return value === undefined ? '-' : value.status === 'True' ? 'yes' : `no (${value.reason})`;
  };
  const rows = policies.map((policy) => [
    refText(policy),
    policy.errors.length === 0 ? 'yes' : 'no',
    policy.inForce,
    condition(policy, 'Programmed'),
    condition(policy, 'Enforceable'),
    policy.errors.map(({ path, reason }) => `${path}: ${reason}`).join('; '),
  ]);
  const parts = [
    `${sandboxes} ${sandboxes === 1 ? 'sandbox' : 'sandboxes'}\n\n`,
    table(['POLICY', 'VALID', 'IN FORCE', 'PROGRAMMED', 'ENFORCEABLE', 'PROBLEM'], rows),
    '\n',
    table(
      ['ENVOY', 'UP TO DATE'],
      envoys.map(({ identity, upToDate }) => [identity, upToDate ? 'yes' : 'no']),
    ),
    ...found.map(({ file, message }) => `\n${file}: ${message}\n`),
  ];
  return parts.join('');
}
