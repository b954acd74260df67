import { join } from 'node:path';
import type { Command } from 'commander';
import type { Pod } from '../api/pod.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import type { DecisionRecord } from '../control-plane/decision-log.ts';
import { containerOutput } from '../local/container-output.ts';
import { layoutOf } from '../local/layout.ts';
import type { ObjectKey } from '../store/object-store.ts';
import { adminLines } from './admin-client.ts';
import { sandboxKey } from './object-args.ts';
import { countOf, outputFormat, printable } from './output.ts';
import { findTarget, requireRunning, type Target, withStore } from './target.ts';

interface LogsOptions {
  readonly container?: string;
  readonly follow?: boolean;
  readonly tail?: string;
  readonly output?: string;
  readonly dir?: string;
}

/** `sandgate logs`: the decisions taken for a sandbox, or with `--container` what that container wrote. */
export function registerLogs(program: Command): void {
  program
    .command('logs')
    .description('the decisions taken for a sandbox: policy, rule, reason, executor; or what a container of it wrote')
    .argument('<sandbox>', 'NS/NAME')
    .option('-c, --container <name>', 'the output of this container instead of the decisions')
    .option('-f, --follow', 'go on with what comes later')
    .option('--tail <lines>', 'only the last ones')
    .option('-o, --output <format>', 'json: one decision a line')
    .option('--dir <dir>', 'the directory of the plane')
    .addHelpText(
      'after',
      '\nExample:\n  $ sandgate logs default/demo -f\n  $ sandgate logs default/demo --container web --tail 20\n',
    )
    .action(logs);
}

async function logs(sandbox: string, options: LogsOptions): Promise<void> {
  const format = outputFormat(options.output, ['json']);
  const key = sandboxKey(sandbox);
  const tail = options.tail === undefined ? undefined : countOf('--tail', options.tail);
  if (options.container !== undefined && format === 'json') {
    throw new CodedError('usage', '-o json is for decisions; what a container wrote is printed as it is');
  }
  const target = await findTarget(options.dir);
  requireRunning(target);
  const limits = { ...(tail === undefined ? {} : { tail }), follow: options.follow === true };
  if (options.container !== undefined) {
    for await (const chunk of containerOutput(await logFile(target, key, options.container), limits)) {
      process.stdout.write(chunk);
    }
    return;
  }
  const query = new URLSearchParams({
    sandbox: `${key.namespace}/${key.name}`,
    ...(limits.follow ? { follow: '1' } : {}),
    ...(tail === undefined ? {} : { tail: String(tail) }),
  });
  for await (const record of adminLines<DecisionRecord>(target.dir, `/logs?${query}`)) {
    process.stdout.write(format === 'json' ? `${JSON.stringify(record)}\n` : `${line(record)}\n`);
  }
}

/** The log of a container; its Pod has it, and it goes with it. */
async function logFile(target: Target, key: ObjectKey, container: string): Promise<string> {
  const name = `Sandbox ${key.namespace}/${key.name}`;
  const pod = await withStore(target, async (store) => {
    await store.get('Sandbox', key);
    return (await store.get('Pod', key).catch((error: unknown) => {
      if (isCoded(error, 'not-found')) {
        throw new CodedError('not-running', `${name} has no Pod, and what its containers wrote went with it`);
      }
      throw error;
    })) as Pod;
  });
  const names = pod.spec.containers.map((each) => each.name);
  if (!names.includes(container)) {
    throw new CodedError('not-found', `${name} has no container ${container}; it has ${names.join(', ')}`);
  }
  return join(layoutOf(target.dir).sandbox(pod.metadata.uid ?? ''), `${container}.log`);
}

/** On one line without control characters: authority and path are what the sandbox sent. */
function line(record: DecisionRecord): string {
  const what =
    record.direction === 'connection'
      ? `connect ${record.destination}`
      : `${record.method} ${record.authority}${record.path} ${record.status}`;
  const by = record.policy === '' ? '' : ` by ${record.policy}${record.rule === '' ? '' : ` rule ${record.rule}`}`;
  const text = `${record.time} ${record.action.padEnd(7)} ${what}${by} (${record.reason}, ${record.executor})`;
  return printable(text.replaceAll('\n', '\\x0a'));
}
