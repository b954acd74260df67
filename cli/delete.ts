import type { Command } from 'commander';
import { refText } from '../api/object.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import type { ObjectKey, ObjectStore } from '../store/object-store.ts';
import { checkIdentities, keyOf, readInputs } from './documents.ts';
import { DEFAULT_NAMESPACE, namedObjects } from './object-args.ts';
import { timeoutMs } from './output.ts';
import { findTarget, withStore } from './target.ts';

interface DeleteOptions {
  readonly filename?: readonly string[];
  readonly namespace: string;
  readonly dir?: string;
  readonly timeout: string;
}

/** `sandgate delete`: removes objects and waits until they are gone. */
export function registerDelete(program: Command): void {
  program
    .command('delete')
    .description('remove objects and wait until they are gone')
    .argument('[words...]', 'KIND NAME… or KIND/NAME…; a name may be NS/NAME')
    .option('-f, --filename <path...>', 'the objects of a file, a directory, or - for standard input')
    .option('-n, --namespace <namespace>', 'namespace of names without one', DEFAULT_NAMESPACE)
    .option('--dir <dir>', 'the directory of the plane')
    .option('--timeout <seconds>', 'how long to wait', '60')
    .addHelpText('after', '\nExample:\n  $ sandgate delete sandbox demo\n  $ sandgate delete -f policy.yaml\n')
    .action(remove);
}

async function remove(words: readonly string[], options: DeleteOptions): Promise<void> {
  const named = await targets(words, options);
  const target = await findTarget(options.dir);
  const end = Date.now() + timeoutMs(options.timeout);
  const missing: string[] = [];
  await withStore(target, async (store) => {
    const begun = [];
    for (const [kindName, key] of named) {
      const text = refText({ kind: kindName, ...key });
      try {
        const { uid = '' } = (await store.get(kindName, key)).metadata;
        await store.delete(kindName, key, { uid });
        begun.push({ kindName, key, text, uid });
      } catch (error) {
        if (!isCoded(error, 'not-found')) {
          throw error;
        }
        missing.push(`there is no ${text}`);
      }
    }
    for (const { kindName, key, text, uid } of begun) {
      // Without a plane nobody takes finalizers away, so there is nothing to wait for.
      await gone(store, kindName, key, { text, uid, end: target.isRunning ? end : 0 });
      process.stdout.write(`${text} deleted\n`);
    }
  });
  if (missing.length > 0) {
    throw new CodedError('not-found', missing.join('\n'));
  }
}

async function targets(
  words: readonly string[],
  options: DeleteOptions,
): Promise<readonly (readonly [string, ObjectKey])[]> {
  if ((options.filename === undefined) === (words.length === 0)) {
    throw new CodedError('usage', 'give -f FILE, or KIND NAME… or KIND/NAME…');
  }
  if (options.filename !== undefined) {
    const documents = await readInputs(options.filename);
    checkIdentities(documents);
    return documents.map(({ object }) => [object.kind, keyOf(object)] as const);
  }
  const { objects } = namedObjects(words, options.namespace);
  if (objects === null) {
    throw new CodedError('usage', `delete ${words.join(' ')}: give the names of the objects too`);
  }
  return objects.map(({ kind, key }) => [kind.kind, key] as const);
}

/** Waits until the object is gone; one that later has the same name is another. Throws `timeout`, naming what holds it. */
async function gone(
  store: ObjectStore,
  kind: string,
  key: ObjectKey,
  { text, uid, end }: { readonly text: string; readonly uid: string; readonly end: number },
): Promise<void> {
  for (;;) {
    const stored = await store.get(kind, key).catch((error: unknown) => {
      if (isCoded(error, 'not-found')) {
        return null;
      }
      throw error;
    });
    if (stored === null || stored.metadata.uid !== uid) {
      return;
    }
    if (Date.now() >= end) {
      const holders = (stored.metadata.finalizers ?? []).join(', ');
      const hint = end === 0 ? '; it goes when a plane runs' : '';
      throw new CodedError('timeout', `${text} is still being deleted, held by ${holders || 'nothing'}${hint}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
