import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import type { Command } from 'commander';
import type { SandboxStatus } from '../api/sandbox.ts';
import { CodedError } from '../base/errors.ts';
import { closeInheritedDescriptors } from '../local/descriptors.ts';
import { adminCall } from './admin-client.ts';
import { reached } from './pause.ts';
import { findTarget, requireRunning, type Target, withStore } from './target.ts';

interface ExecOptions {
  readonly container?: string;
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
    .option('--wake', 'resume the sandbox first when it is paused')
    .option('--dir <dir>', 'the directory of the plane')
    .passThroughOptions()
    .addHelpText('after', '\nExample:\n  $ sandgate exec default/demo -- curl -s http://api.example.com/\n')
    .action(exec);
}

async function exec(sandbox: string, words: readonly string[], options: ExecOptions): Promise<void> {
  const command = words[0] === '--' ? words.slice(1) : words;
  if (command.length === 0) {
    throw new CodedError('usage', 'exec: give the command after --');
  }
  const name = sandbox.includes('/') ? sandbox : `default/${sandbox}`;
  const target = await findTarget(options.dir);
  requireRunning(target);
  if (options.wake === true) {
    await wake(target, name);
  }
  const { argv, env } = await adminCall<{ argv: readonly string[]; env: Readonly<Record<string, string>> }>(
    target.dir,
    'POST',
    '/exec',
    {
      sandbox: name,
      command,
      tty: process.stdin.isTTY === true,
      ...(options.container === undefined ? {} : { container: options.container }),
    },
  );
  closeInheritedDescriptors();
  const child = spawn(argv[0]!, argv.slice(1), { env, stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => child.kill(signal));
  }
  process.exitCode = await new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? 128 + (constants.signals[signal ?? 'SIGTERM'] ?? 0)));
  });
}

async function wake(target: Target, sandbox: string): Promise<void> {
  const [namespace = '', name = ''] = sandbox.split('/', 2);
  await withStore(target, async (store) => {
    const { status } = await store.get('Sandbox', { namespace, name });
    if ((status as SandboxStatus | undefined)?.phase === 'Running') {
      return;
    }
    await store.patch('Sandbox', { namespace, name }, { type: 'merge', body: { spec: { paused: false } } });
    await reached(store, { namespace, name }, false, 60_000);
  }).catch((error: unknown) => {
    throw error instanceof CodedError ? error : new CodedError('failed', String(error));
  });
}
