import type { Command } from 'commander';
import { findKind } from '../api/kinds.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import type { ObjectKey, ObjectStore } from '../store/object-store.ts';
import { keyOf, readDocuments } from './documents.ts';
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
    .argument('[kind]', 'kind, plural or short name')
    .argument('[name]')
    .option('-f, --filename <path...>', 'the objects of a file, a directory, or - for standard input')
    .option('-n, --namespace <namespace>', 'namespace of the object', 'default')
    .option('--dir <dir>', 'the directory of the plane')
    .option('--timeout <seconds>', 'how long to wait', '60')
    .addHelpText('after', '\nExample:\n  $ sandgate delete sandbox demo\n  $ sandgate delete -f policy.yaml\n')
    .action(remove);
}

async function remove(kind: string | undefined, name: string | undefined, options: DeleteOptions): Promise<void> {
  const named = await targets(kind, name, options);
  const target = await findTarget(options.dir);
  await withStore(target, async (store) => {
    for (const [kindName, key] of named) {
      await store.delete(kindName, key);
    }
    const end = Date.now() + Number(options.timeout) * 1000;
    for (const [kindName, key] of named) {
      // Without a plane nobody takes finalizers away, so there is nothing to wait for.
      const state = target.isRunning ? await gone(store, kindName, key, end) : 'deleted';
      process.stdout.write(`${kindName} ${key.namespace === '' ? '' : `${key.namespace}/`}${key.name} ${state}\n`);
    }
  });
}

async function targets(
  kind: string | undefined,
  name: string | undefined,
  options: DeleteOptions,
): Promise<readonly (readonly [string, ObjectKey])[]> {
  if (options.filename !== undefined) {
    const documents = (await Promise.all(options.filename.map(readDocuments))).flat();
    return documents.map(({ object }) => [object.kind, keyOf(object)] as const);
  }
  const found = findKind(kind ?? '');
  if (found === undefined || name === undefined) {
    const what = kind !== undefined && found === undefined ? `unknown kind ${kind}` : 'give -f FILE, or KIND and NAME';
    throw new CodedError('usage', what);
  }
  return [[found.kind, { namespace: found.namespaced ? options.namespace : '', name }]];
}

async function gone(store: ObjectStore, kind: string, key: ObjectKey, end: number): Promise<string> {
  while (Date.now() < end) {
    try {
      await store.get(kind, key);
    } catch (error) {
      if (isCoded(error, 'not-found')) {
        return 'deleted';
      }
      throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new CodedError('timeout', `${kind} ${key.namespace}/${key.name} is still being deleted`);
}
