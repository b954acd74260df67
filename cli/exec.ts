import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { isatty } from 'node:tty';
import type { Command } from 'commander';
import type { Sandbox, SandboxStatus } from '../api/sandbox.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import { closeInheritedDescriptors } from '../local/descriptors.ts';
import type { ObjectKey } from '../store/object-store.ts';
import { adminCall } from './admin-client.ts';
import { sandboxKey } from './object-args.ts';
import { reached } from './pause.ts';
import { findTarget, requireRunning, type Target, withStore } from './target.ts';

interface ExecOptions {
  readonly container?: string;
  readonly stdin?: boolean;
  /** True: asked for; false: refused; absent: as standard input is. */
  readonly tty?: boolean;
  readonly wake?: boolean;
  readonly dir?: string;
}

/** `sandgate exec`: runs a command inside a sandbox, under its policies; its status is passed on (D20). */
export function registerExec(program: Command): void {
  program
    .command('exec')
    .description('run a command inside a sandbox; its exit status is passed on')
    .argument('<sandbox>', 'NS/NAME')
    .argument('<command...>', 'the command, after --')
    .option('-c, --container <name>', 'the container (default: the first)')
    .option('-i, --stdin', 'pass standard input on, as is always done; for the habit of -it')
    .option('-t, --tty', 'a terminal (default: if standard input is one)')
    .option('-T, --no-tty', 'no terminal')
    .option('--wake', 'resume the sandbox first when it is paused')
    .option('--dir <dir>', 'the directory of the plane')
    .passThroughOptions()
    .addHelpText(
      'after',
      [
        '',
        "The exit status is the command's; 128+n when signal n ended it, 126 and 127 as a shell gives them.",
        '',
        'Example:',
        '  $ sandgate exec default/demo -- curl -s http://api.example.com/',
        '  $ sandgate exec -it default/demo -- sh',
      ].join('\n'),
    )
    .action(exec);
}

async function exec(sandbox: string, words: readonly string[], given: ExecOptions, self: Command): Promise<void> {
  const command = commandWords(words, self);
  const options: ExecOptions = { ...given, ...self.opts<ExecOptions>() };
  const key = sandboxKey(sandbox);
  const target = await findTarget(options.dir);
  requireRunning(target);
  if (options.wake === true) {
    await wake(target, key);
  }
  const tty = wantsTerminal(options.tty);
  const { argv, env } = await adminCall<{ argv: readonly string[]; env: Readonly<Record<string, string>> }>(
    target.dir,
    'POST',
    '/exec',
    {
      sandbox: `${key.namespace}/${key.name}`,
      command,
      tty,
      ...(options.container === undefined ? {} : { container: options.container }),
    },
  ).catch((error: unknown) => explainRefusal(target, key, error));
  closeInheritedDescriptors();
  process.exitCode = tty ? await runInTerminal(argv, env) : await runApart(argv, env);
}

type Environment = Readonly<Record<string, string>>;

/** The command line gives the command a terminal of its own, which mirrors this one. */
function runInTerminal(argv: readonly string[], env: Environment): Promise<number> {
  const child = spawn(argv[0]!, argv.slice(1), { env, stdio: 'inherit' });
  return ended(child, (signal) => child.kill(signal));
}

/**
 * Without a terminal of its own the command must not have this one either, neither as a stream nor as that of its
 * session: it could type into it what the shell here would run afterwards (TIOCSTI).
 */
async function runApart(argv: readonly string[], env: Environment): Promise<number> {
  const stdio = [0, 1, 2].map((fd) => (isatty(fd) ? 'pipe' : 'inherit'));
  const child = spawn(argv[0]!, argv.slice(1), { env, stdio, detached: true });
  child.stdin?.on('error', () => {}); // It may end without reading.
  if (child.stdin !== null) {
    process.stdin.pipe(child.stdin);
  }
  child.stdout?.pipe(process.stdout);
  child.stderr?.pipe(process.stderr);
  const status = await ended(child, (signal) => process.kill(-child.pid!, signal));
  if (child.stdin !== null) {
    process.stdin.destroy();
  }
  return status;
}

/** Passes signals on until the command has ended and its output is here; gives its status. */
function ended(child: ChildProcess, kill: (signal: NodeJS.Signals) => void): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      if (child.exitCode === null && child.signalCode === null) {
        kill(signal);
      }
    });
  }
  return new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? 128 + (constants.signals[signal ?? 'SIGTERM'] ?? 0)));
  });
}

/** The command: what follows `--`. Options may stand after the sandbox too, as kubectl allows. Throws `usage`. */
function commandWords(words: readonly string[], self: Command): readonly string[] {
  const cut = words.indexOf('--');
  const isOptions = cut > 0 && words[0]!.startsWith('-');
  if (isOptions) {
    const { operands, unknown } = self.parseOptions(words.slice(0, cut));
    const [bad] = [...unknown, ...operands];
    if (bad !== undefined) {
      throw new CodedError('usage', `exec: ${bad} is no option; the command comes after --`);
    }
  }
  const command = isOptions || cut === 0 ? words.slice(cut + 1) : words;
  if (command.length === 0 || command[0]!.startsWith('-')) {
    throw new CodedError('usage', 'exec: give the command after --');
  }
  return command;
}

function wantsTerminal(asked: boolean | undefined): boolean {
  const isTerminal = process.stdin.isTTY === true;
  if (asked === true && !isTerminal) {
    process.stderr.write('standard input is no terminal: the command gets none\n');
  }
  return isTerminal && asked !== false;
}

/** A Pod that is missing or frozen is told as what its Sandbox is. */
async function explainRefusal(target: Target, key: ObjectKey, error: unknown): Promise<never> {
  if (!['not-found', 'not-running', 'paused'].some((code) => isCoded(error, code))) {
    throw error;
  }
  const name = `Sandbox ${key.namespace}/${key.name}`;
  const stored = await withStore(target, (store) => store.get('Sandbox', key)).catch(() => null);
  const { spec, status } = (stored ?? {}) as Partial<Sandbox>;
  if (stored === null && isCoded(error, 'not-found')) {
    throw new CodedError('not-found', `there is no ${name}`);
  }
  if (spec?.paused === true) {
    const how = isCoded(error, 'paused') ? 'its processes are frozen' : 'its processes have been stopped';
    throw new CodedError('paused', `${name} is paused, ${how}: exec --wake resumes it first`);
  }
  throw stored === null || status?.phase === 'Running'
    ? error
    : new CodedError('not-running', `${name} is not running: its phase is ${status?.phase ?? 'not known yet'}`);
}

async function wake(target: Target, key: ObjectKey): Promise<void> {
  await withStore(target, async (store) => {
    const { status } = await store.get('Sandbox', key);
    if ((status as SandboxStatus | undefined)?.phase === 'Running') {
      return;
    }
    await store.patch('Sandbox', key, { type: 'merge', body: { spec: { paused: false } } });
    await reached(store, key, false, 60_000);
  }).catch((error: unknown) => {
    throw error instanceof CodedError ? error : new CodedError('failed', String(error));
  });
}
