/**
 * The room `cli/` is the `sandgate` command, one file per subcommand, and the composition of processes that it starts.
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
import { Command, CommanderError } from 'commander';
import { errorText, isCoded } from '../base/errors.ts';
import { registerApply } from './apply.ts';
import { registerCompile } from './compile.ts';
import { registerCrds } from './crds.ts';
import { registerDelete } from './delete.ts';
import { registerDoctor } from './doctor.ts';
import { registerExec } from './exec.ts';
import { registerExplain } from './explain.ts';
import { registerGet } from './get.ts';
import { registerLogs } from './logs.ts';
import { registerPause } from './pause.ts';
import { registerRoles } from './roles/register.ts';
import { registerStatus } from './status.ts';
import { registerUp } from './up.ts';

const program = new Command('sandgate')
  .description('network and lifecycle plane for AI agent sandboxes')
  .version('0.1.0')
  .showHelpAfterError('(add --help for the options)')
  .enablePositionalOptions()
  .exitOverride();

for (const register of [
  registerUp,
  registerApply,
  registerDelete,
  registerGet,
  registerPause,
  registerExec,
  registerExplain,
  registerStatus,
  registerLogs,
  registerCompile,
  registerDoctor,
  registerCrds,
  registerRoles,
]) {
  register(program);
}
for (const command of program.commands) {
  command.exitOverride().showHelpAfterError('(add --help for the options)');
}

// A reader that has enough, such as `head`, is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = report(error);
}

function report(error: unknown): number {
  if (error instanceof CommanderError) {
    return error.exitCode === 0 ? 0 : 2;
  }
  for (const line of errorText(error).split('\n')) {
    process.stderr.write(`error: ${line}\n`);
  }
  return isCoded(error, 'usage') ? 2 : 1;
}
