import { writeSync } from 'node:fs';
import type { KubeObject } from '../../api/object.ts';
import { isCoded } from '../../base/errors.ts';
import { openDirectoryStore } from '../../store/directory.ts';
import type { ObjectStore } from '../../store/object-store.ts';
import { kinds } from './support.ts';

/**
 * The process that `kill.test.ts` kills: several workers, each with objects of its own, change them at random. A worker
 * says what it is about to do, does it, and says what came of it, on its standard output.
 */
export interface Step {
  readonly id: string;
  /** The value that the object should carry everywhere afterwards; 0: gone. */
  readonly want: number;
  readonly done: boolean;
  readonly version?: string | undefined;
}

const WORKERS = 4;
const OBJECTS = 4;

/** The same number in the manifest, in finalizers and in an annotation: a half change cannot hide. */
export function carrying(id: string, value: number): KubeObject {
  const kind = id.startsWith('pod') ? 'Pod' : 'Sandbox';
  const apiVersion = kinds(kind)?.apiVersion ?? 'v1';
  const metadata = {
    name: id,
    namespace: 'default',
    annotations: { n: String(value) },
    finalizers: [`test/n${value}`],
  };
  return { apiVersion, kind, metadata, spec: { n: value, list: Array.from({ length: value % 4 }, (_, at) => at) } };
}

function say(step: Step): void {
  writeSync(1, `${JSON.stringify(step)}\n`);
}

async function change(store: ObjectStore, id: string, present: number, value: number): Promise<string | undefined> {
  const kind = id.startsWith('pod') ? 'Pod' : 'Sandbox';
  const key = { namespace: 'default', name: id };
  if (value === 0) {
    await store.patch(kind, key, { type: 'merge', body: { metadata: { finalizers: null } } });
    await store.delete(kind, key);
    return undefined;
  }
  if (present === 0) {
    return (await store.create(carrying(id, value))).metadata.resourceVersion;
  }
  const { spec, metadata } = carrying(id, value);
  const body = { spec, metadata: { annotations: metadata.annotations, finalizers: metadata.finalizers } };
  return (await store.patch(kind, key, { type: 'merge', body })).metadata.resourceVersion;
}

async function work(store: ObjectStore, ids: readonly string[], values: Map<string, number>): Promise<never> {
  for (let next = Math.max(0, ...values.values()) + 1; ; next += 1) {
    // Changes without a manifest take no turn of the event loop: the other workers would never run.
    await new Promise((resolve) => setImmediate(resolve));
    const id = ids[Math.floor(Math.random() * ids.length)]!;
    const present = values.get(id) ?? 0;
    const want = present > 0 && Math.random() < 0.2 ? 0 : next;
    say({ id, want, done: false });
    const version = await change(store, id, present, want);
    say({ id, want, done: true, version });
    values.set(id, want);
    if (Math.random() < 0.3 && want !== 0) {
      const kind = id.startsWith('pod') ? 'Pod' : 'Sandbox';
      const patch = { type: 'merge', body: { status: { n: want } } } as const;
      await store.patchStatus(kind, { namespace: 'default', name: id }, patch);
    }
  }
}

async function main(directory: string): Promise<void> {
  const store = await openDirectoryStore(directory, { kinds, compactBytes: 20_000 });
  const values = new Map<string, number>();
  for (const kind of ['Sandbox', 'Pod']) {
    for (const { metadata } of (await store.list(kind)).items) {
      values.set(metadata.name, Number(metadata.annotations?.['n'] ?? 0));
    }
  }
  const workers = Array.from({ length: WORKERS }, (_, worker) => {
    const ids = Array.from({ length: OBJECTS }, (_, at) => `${worker % 2 === 0 ? 'pod' : 'sbx'}-${worker}-${at}`);
    const own = new Map(ids.flatMap((id) => (values.has(id) ? [[id, values.get(id)!] as const] : [])));
    return work(store, ids, own);
  });
  await Promise.all(workers);
}

if (process.argv[2] === 'write') {
  main(process.argv[3]!).catch((error: unknown) => {
    const text = isCoded(error) ? `${error.code}: ${error.message}` : String(error);
    writeSync(2, `${text}\n`);
    process.exit(1);
  });
}
