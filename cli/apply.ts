import type { Command } from 'commander';
import type { Condition } from '../api/common.ts';
import { findCondition } from '../api/conditions.ts';
import type { KubeObject } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { POLICY_KINDS } from '../world/records.ts';
import { applyObject } from './apply-object.ts';
import { checkDocuments, type Document, describe, keyOf, readInputs, warningsOf } from './documents.ts';
import { timeoutMs } from './output.ts';
import { findTarget, requireRunning, withReadStore, withStore } from './target.ts';

interface ApplyOptions {
  readonly filename: readonly string[];
  readonly dir?: string;
  readonly dryRun?: boolean;
  readonly wait?: boolean;
  readonly timeout: string;
}

/** `sandgate apply`: stores objects, all or none of what is wrong with them refused first (D2). */
export function registerApply(program: Command): void {
  program
    .command('apply')
    .description('check objects and store them; nothing is stored when one of them is bad')
    .requiredOption('-f, --filename <path...>', 'a file, a directory, or - for standard input')
    .option('--dir <dir>', 'the directory of the plane')
    .option('--dry-run', 'only check, and say what would change')
    .option('--wait', 'wait until every Envoy has the policies and the Sandboxes are ready')
    .option('--timeout <seconds>', 'how long --wait waits', '60')
    .addHelpText('after', '\nExample:\n  $ sandgate apply -f policy.yaml --wait\n')
    .action(apply);
}

async function apply(options: ApplyOptions): Promise<void> {
  const withinMs = timeoutMs(options.timeout);
  const documents = await readInputs(options.filename);
  checkDocuments(documents);
  for (const warning of warningsOf(documents)) {
    process.stderr.write(`${warning}\n`);
  }
  const target = await findTarget(options.dir);
  if (options.wait === true) {
    requireRunning(target);
  }
  const open = options.dryRun === true ? withReadStore : withStore;
  await open(target, async (store) => {
    for (const document of documents) {
      const done = await applyObject(store, document.object, options.dryRun);
      process.stdout.write(`${describe(document.object)} ${done}${options.dryRun === true ? ' (dry run)' : ''}\n`);
    }
    if (options.wait === true && options.dryRun !== true) {
      await waitAll(store, documents, withinMs);
    }
  });
}

/** Objects of other kinds are in force once they are stored. */
const WAITED: readonly string[] = ['Sandbox', ...POLICY_KINDS];

async function waitAll(store: ObjectStore, documents: readonly Document[], timeoutMs: number): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (const { object } of documents.filter(({ object: { kind } }) => WAITED.includes(kind))) {
    process.stderr.write(`waiting for ${describe(object)} …\n`);
    for (;;) {
      const stored = await store.get(object.kind, keyOf(object));
      const verdict = settled(stored);
      if (verdict === true) {
        break;
      }
      if (typeof verdict === 'string' || Date.now() > end) {
        throw new CodedError('not-ready', `${describe(object)}: ${verdict || 'not ready in time'}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** True: in force or ready; a text: it failed for this reason; false: not yet. */
function settled(object: KubeObject): boolean | string {
  const conditions = (object.status as { conditions?: readonly Condition[] } | undefined)?.conditions;
  const sleeps = (object.spec as { paused?: boolean } | undefined)?.paused === true;
  const type = object.kind !== 'Sandbox' ? 'Programmed' : sleeps ? 'SandboxPaused' : 'Ready';
  const condition = findCondition(conditions, type);
  const isCurrent =
    condition?.observedGeneration === undefined || condition.observedGeneration === object.metadata.generation;
  if (condition === undefined || !isCurrent) {
    return false;
  }
  if (condition.status === 'True') {
    return true;
  }
  return condition.reason === 'EnvoyRejected' || condition.reason === 'NotAccepted' ? condition.message : false;
}
