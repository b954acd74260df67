import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KubeObject } from '../../api/object.ts';
import { isCoded } from '../../base/errors.ts';
import type { KindInfo, ObjectStore, WatchEvent, WatchOptions } from '../../store/object-store.ts';

const KINDS: Readonly<Record<string, KindInfo>> = {
  Sandbox: { namespaced: true, hasStatus: true, apiVersion: 'agents.kruise.io/v1alpha1' },
  SandboxTemplate: { namespaced: true, hasStatus: false, apiVersion: 'agents.kruise.io/v1alpha1' },
  GlobalTrafficPolicy: { namespaced: false, hasStatus: true, apiVersion: 'agents.kruise.io/v1alpha1' },
  Pod: { namespaced: true, hasStatus: true, apiVersion: 'v1' },
  Secret: { namespaced: true, hasStatus: false, apiVersion: 'v1' },
  Lease: { namespaced: true, hasStatus: false },
};

/** The kinds of these tests. */
export const kinds = (kind: string): KindInfo | undefined => KINDS[kind];

/** An object of a test kind. */
export function object(kind: string, name: string, rest: Record<string, unknown> = {}): KubeObject {
  const { metadata, ...fields } = rest;
  const place = KINDS[kind]?.namespaced ? { namespace: 'default' } : {};
  const apiVersion = KINDS[kind]?.apiVersion ?? 'coordination.k8s.io/v1';
  return { apiVersion, kind, metadata: { name, ...place, ...(metadata as object) }, ...fields };
}

export const key = (name: string, namespace = 'default'): { namespace: string; name: string } => ({ namespace, name });

/** Rejects when the promise takes longer. */
export async function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The code of the error that the call throws. */
export async function codeOf(call: Promise<unknown> | (() => Promise<unknown>)): Promise<string> {
  try {
    await within(typeof call === 'function' ? call() : call, 10_000, 'a refusal');
  } catch (error) {
    if (isCoded(error)) {
      return error.code;
    }
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** Waits until the condition holds. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  ms = 3000,
  what = 'a condition',
): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > end) {
      throw new Error(`${what}: not within ${ms} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Reads a watch step by step, with a deadline for each step. */
export class Watching {
  readonly #abort = new AbortController();
  readonly #iterator: AsyncIterator<WatchEvent>;

  constructor(store: ObjectStore, kind: string, options: WatchOptions = {}) {
    this.#iterator = store.watch(kind, { ...options, signal: this.#abort.signal })[Symbol.asyncIterator]();
  }

  async next(ms = 5000): Promise<WatchEvent> {
    const step = await within(this.#iterator.next(), ms, 'a watch event');
    if (step.done) {
      throw new Error('the watch has ended');
    }
    return step.value;
  }

  /** The next event as `type name` or `bookmark`. */
  async text(ms = 5000): Promise<string> {
    const event = await this.next(ms);
    return event.type === 'bookmark' ? 'bookmark' : `${event.type} ${event.object.metadata.name}`;
  }

  /** Events up to the first bookmark. */
  async initial(): Promise<string[]> {
    const seen: string[] = [];
    for (;;) {
      const text = await this.text();
      if (text === 'bookmark') {
        return seen;
      }
      seen.push(text);
    }
  }

  async end(): Promise<void> {
    this.#abort.abort();
    await within(Promise.resolve(this.#iterator.return?.()), 5000, 'the end of a watch');
  }
}

/** A new folder, removed by `remove`. */
export function folder(): { path: string; remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'sandgate-store-'));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
