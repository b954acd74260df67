/**
 * The room `cli/` is the `sandgate` command, one file per subcommand, and the composition of processes that it starts.
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Command, CommanderError } from 'commander';
import { errorText, isCoded } from '../base/errors.ts';
import { ROLE_NAMES } from './roles/names.ts';

type Register = (program: Command) => void;

const pause = async (): Promise<Register> => (await import('./pause.ts')).registerPause;
const roles = async (): Promise<Register> => (await import('./roles/register.ts')).registerRoles;

/** Modules by the commands that they register, in the order of the help text. */
const COMMANDS: Readonly<Record<string, () => Promise<Register>>> = {
  up: async () => (await import('./up.ts')).registerUp,
  apply: async () => (await import('./apply.ts')).registerApply,
  delete: async () => (await import('./delete.ts')).registerDelete,
  diff: async () => (await import('./diff.ts')).registerDiff,
  get: async () => (await import('./get.ts')).registerGet,
  pause,
  resume: pause,
  exec: async () => (await import('./exec.ts')).registerExec,
  explain: async () => (await import('./explain.ts')).registerExplain,
  status: async () => (await import('./status.ts')).registerStatus,
  logs: async () => (await import('./logs.ts')).registerLogs,
  compile: async () => (await import('./compile.ts')).registerCompile,
  doctor: async () => (await import('./doctor.ts')).registerDoctor,
  crds: async () => (await import('./crds.ts')).registerCrds,
  ...Object.fromEntries(ROLE_NAMES.map((name) => [name, roles])),
};

const { version: VERSION } = JSON.parse(await readFile(join(import.meta.dirname, '..', 'package.json'), 'utf8')) as {
  readonly version: string;
};

const program = new Command('sandgate')
  .description('network and lifecycle plane for AI agent sandboxes')
  .version(VERSION)
  .showHelpAfterError('(add --help for the options)')
  .enablePositionalOptions()
  .exitOverride();

// The command that is asked for carries nothing of the others, which matters to those that run for months.
const [first = ''] = process.argv.slice(2);
const asked = Object.hasOwn(COMMANDS, first) ? [COMMANDS[first]!] : Object.values(COMMANDS);
for (const load of new Set(asked)) {
  const register = await load();
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
