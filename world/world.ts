/**
 * The room `world/` turns what a store holds into one immutable view of everything that decisions need. Each process
 * that decides has a world of its own, with one writer: the informers' callbacks. It knows no Envoy.
 */
import type { PolicyFacts } from '../api/facts.ts';
import type { KubeObject } from '../api/object.ts';
import { canonicalJson } from '../base/canonical.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Redacted } from '../base/redacted.ts';
import { Informer } from '../store/informer.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { FactsBuilder, type WorldSettings } from './facts.ts';
import { Kept } from './keep.ts';
import { type LastGood, readLastGood } from './last-good.ts';
import { POLICY_KINDS } from './records.ts';
import { podUidsOf } from './sandboxes.ts';
import { secretValue } from './secrets.ts';
import { readVirtualAddresses, VIRTUAL_ADDRESSES } from './virtual-addresses.ts';

const WATCHED = [
  'Sandbox',
  ...POLICY_KINDS,
  'Pod',
  'Secret',
  'Service',
  'EndpointSlice',
  'ConfigMap',
  'ControllerRevision',
] as const;

type WatchedKind = (typeof WATCHED)[number];

/** One state of the world. A reader keeps the reference and sees a whole, consistent value. */
export interface WorldView {
  /** Grows with every state. */
  readonly sequence: number;
  readonly facts: PolicyFacts;
  readonly sandboxes: readonly KubeObject[];
  /** The stored policies, as they are. */
  readonly policies: readonly KubeObject[];
  /** Uid of the Pod that belongs to each sandbox, by Sandbox uid. */
  readonly podUids: ReadonlyMap<string, string>;
  /** The persisted last good forms of policies, by the policy's uid. */
  readonly lastGood: ReadonlyMap<string, LastGood>;
  /** A Secret's value as it is at this moment: resolved late, never part of facts or hashes (D7). */
  secret(namespace: string, name: string, key: string): Redacted<string> | null;
}

export interface WorldOptions {
  readonly store: ObjectStore;
  readonly settings: WorldSettings;
  readonly logger: Logger;
  /** How long changes are gathered before a new state is made, milliseconds. */
  readonly gatherMs?: number;
}

/** A world that follows a store. Changes that come together make one state. */
export class World {
  readonly #informers: ReadonlyMap<WatchedKind, Informer>;
  readonly #options: WorldOptions;
  readonly #facts = new FactsBuilder();
  readonly #policies = new Kept<(readonly KubeObject[])[], readonly KubeObject[]>();
  readonly #lastGood = new Kept<[readonly KubeObject[]], ReadonlyMap<string, LastGood>>();
  readonly #virtual = new Kept<[KubeObject | undefined], Readonly<Record<string, string>>>();
  readonly #podUids = new Kept<[readonly KubeObject[]], ReadonlyMap<string, string>>(sameEntries);
  readonly #listeners = new Set<(view: WorldView) => void>();
  #settings: WorldSettings;
  #timer: NodeJS.Timeout | null = null;
  #view: WorldView | null = null;
  #closed = false;

  constructor(options: WorldOptions) {
    this.#options = options;
    this.#settings = options.settings;
    this.#informers = new Map(
      WATCHED.map((kind) => [kind, new Informer(options.store, kind, { logger: options.logger })]),
    );
    for (const informer of this.#informers.values()) {
      informer.onChange(() => this.#schedule());
    }
  }

  /** Waits until everything that was in the store at the start is known, and gives the first state. */
  async ready(): Promise<WorldView> {
    await Promise.all([...this.#informers.values()].map((informer) => informer.synced));
    return this.#view ?? this.#rebuild();
  }

  /** The present state; throws before {@link ready} has resolved. */
  get view(): WorldView {
    if (this.#view === null) {
      throw new Error('the world is not ready');
    }
    return this.#view;
  }

  /** The cache of one kind, for readers that need single objects. */
  informer(kind: WatchedKind): Informer {
    return this.#informers.get(kind)!;
  }

  /** Calls back with every later state. */
  onChange(listener: (view: WorldView) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Swaps the operator's settings, e.g. when `hosts` was edited. */
  replaceSettings(settings: WorldSettings): void {
    if (canonicalJson(settings) !== canonicalJson(this.#settings)) {
      this.#settings = settings;
      this.#schedule();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer ?? undefined);
    await Promise.all([...this.#informers.values()].map((informer) => informer.close()));
  }

  #schedule(): void {
    const synced = [...this.#informers.values()].every((informer) => informer.isSynced);
    if (this.#closed || !synced || this.#view === null || this.#timer !== null) {
      return;
    }
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#move();
    }, this.#options.gatherMs ?? 5);
  }

  /** Makes the next state and shows it. Neither an object nor a listener that breaks it stops the world. */
  #move(): void {
    try {
      const view = this.#rebuild();
      for (const listener of this.#listeners) {
        this.#show(listener, view);
      }
    } catch (error) {
      this.#options.logger.error({ error: errorText(error) }, 'the world could not be made anew; the last state stays');
    }
  }

  #show(listener: (view: WorldView) => void, view: WorldView): void {
    try {
      listener(view);
    } catch (error) {
      this.#options.logger.error({ error: errorText(error) }, 'a listener of the world failed');
    }
  }

  #rebuild(): WorldView {
    const list = (kind: WatchedKind) => this.informer(kind).list();
    const secrets = this.informer('Secret');
    const policies = this.#policies.get(POLICY_KINDS.map(list), (...lists) => lists.flat());
    const lastGood = this.#lastGood.get([list('ControllerRevision')], lastGoodForms);
    const key = { namespace: this.#settings.rootNamespace, name: VIRTUAL_ADDRESSES };
    const virtualAddresses = this.#virtual.get([this.informer('ConfigMap').get(key)], readVirtualAddresses);
    const objects = {
      sandboxes: list('Sandbox'),
      policies,
      pods: list('Pod'),
      secrets: list('Secret'),
      services: list('Service'),
      endpointSlices: list('EndpointSlice'),
    };
    this.#view = {
      sequence: (this.#view?.sequence ?? 0) + 1,
      facts: this.#facts.build(objects, this.#settings, { lastGood, virtualAddresses }),
      sandboxes: objects.sandboxes,
      policies,
      podUids: this.#podUids.get([objects.pods], podUidsOf),
      lastGood,
      secret(namespace, name, secretKey) {
        const secret = secrets.get({ namespace, name });
        return secret === undefined ? null : secretValue(secret, secretKey);
      },
    };
    return this.#view;
  }
}

function sameEntries(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean {
  return a.size === b.size && [...a].every(([key, value]) => b.get(key) === value);
}

const lastGoodOf = new WeakMap<KubeObject, LastGood | null>();

/** The same object for the same revision, so that policies without a change are not looked at again. */
function knownLastGood(revision: KubeObject): LastGood | null {
  let form = lastGoodOf.get(revision);
  if (form === undefined) {
    form = readLastGood(revision);
    lastGoodOf.set(revision, form);
  }
  return form;
}

function lastGoodForms(revisions: readonly KubeObject[]): ReadonlyMap<string, LastGood> {
  const forms = revisions.map(knownLastGood).filter((form) => form !== null);
  return new Map(forms.map((form) => [form.uid, form]));
}
