import type { Command } from 'commander';
import { isConditionTrue } from '../api/conditions.ts';
import type { SandboxStatus } from '../api/sandbox.ts';
import { CodedError } from '../base/errors.ts';
import type { ObjectKey, ObjectStore } from '../store/object-store.ts';
import { sandboxKey } from './object-args.ts';
import { timeoutMs } from './output.ts';
import { findTarget, requireRunning, withStore } from './target.ts';

interface PauseOptions {
  readonly dir?: string;
  readonly timeout: string;
}

/** `sandgate pause` and `sandgate resume`: set `spec.paused` and wait until it is so. */
export function registerPause(program: Command): void {
  for (const [name, paused, what] of [
    ['pause', true, 'pause a Sandbox and wait until it is paused'],
    ['resume', false, 'resume a Sandbox and wait until it is ready'],
  ] as const) {
    program
      .command(name)
      .description(what)
      .argument('<sandbox>', 'NS/NAME')
      .option('--dir <dir>', 'the directory of the plane')
      .option('--timeout <seconds>', 'how long to wait', '60')
      .addHelpText('after', `\nExample:\n  $ sandgate ${name} default/demo\n`)
      .action((sandbox: string, options: PauseOptions) => setPaused(sandbox, paused, options));
  }
}

async function setPaused(sandbox: string, paused: boolean, options: PauseOptions): Promise<void> {
  const key = sandboxKey(sandbox);
  const withinMs = timeoutMs(options.timeout);
  const target = await findTarget(options.dir);
  requireRunning(target);
  await withStore(target, async (store) => {
    await store.patch('Sandbox', key, { type: 'merge', body: { spec: { paused } } });
    await reached(store, key, paused, withinMs);
    process.stdout.write(`Sandbox ${key.namespace}/${key.name} ${paused ? 'paused' : 'running'}\n`);
  });
}

/** Resolves when the Sandbox is paused, or Running and Ready; throws `timeout`. */
export async function reached(store: ObjectStore, key: ObjectKey, paused: boolean, timeoutMs: number): Promise<void> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), timeoutMs);
  try {
    for await (const event of store.watch('Sandbox', { namespace: key.namespace, signal: abort.signal })) {
      if (event.type === 'bookmark' || event.object.metadata.name !== key.name) {
        continue;
      }
      const status = event.object.status as SandboxStatus | undefined;
      const condition = paused ? 'SandboxPaused' : 'Ready';
      if (status?.phase === (paused ? 'Paused' : 'Running') && isConditionTrue(status.conditions, condition)) {
        return;
      }
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
  throw new CodedError(
    'timeout',
    `Sandbox ${key.namespace}/${key.name} was not ${paused ? 'paused' : 'ready'} in time`,
  );
}
