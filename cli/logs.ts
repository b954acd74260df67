import type { Command } from 'commander';
import type { DecisionRecord } from '../control-plane/decision-log.ts';
import { adminLines } from './admin-client.ts';
import { outputFormat } from './output.ts';
import { findTarget, requireRunning } from './target.ts';

interface LogsOptions {
  readonly follow?: boolean;
  readonly output?: string;
  readonly dir?: string;
}

/** `sandgate logs`: the decisions taken for a sandbox: policy, rule, reason, executor. */
export function registerLogs(program: Command): void {
  program
    .command('logs')
    .description('the decisions taken for a sandbox: policy, rule, reason, executor')
    .argument('<sandbox>', 'NS/NAME')
    .option('-f, --follow', 'go on with later decisions')
    .option('-o, --output <format>', 'json: one record a line')
    .option('--dir <dir>', 'the directory of the plane')
    .addHelpText('after', '\nExample:\n  $ sandgate logs default/demo -f\n')
    .action(logs);
}

async function logs(sandbox: string, options: LogsOptions): Promise<void> {
  const format = outputFormat(options.output, ['json']);
  const target = await findTarget(options.dir);
  requireRunning(target);
  const query = new URLSearchParams({ sandbox, ...(options.follow === true ? { follow: '1' } : {}) });
  for await (const record of adminLines<DecisionRecord>(target.dir, `/logs?${query}`)) {
    process.stdout.write(format === 'json' ? `${JSON.stringify(record)}\n` : `${line(record)}\n`);
  }
}

/** On one line without control characters: authority and path are what the sandbox sent. */
function line(record: DecisionRecord): string {
  const what =
    record.direction === 'connection'
      ? `connect ${record.destination}`
      : `${record.method} ${record.authority}${record.path} ${record.status}`;
  const by = record.policy === '' ? '' : ` by ${record.policy}${record.rule === '' ? '' : ` rule ${record.rule}`}`;
  const text = `${record.time} ${record.action.padEnd(7)} ${what}${by} (${record.reason}, ${record.executor})`;
  return text.replace(/\p{Cc}/gu, (control) => `\\x${control.charCodeAt(0).toString(16).padStart(2, '0')}`);
}
