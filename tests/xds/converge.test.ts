/**
 * Plays random publications, rejections and reconnects against a model of Envoy and holds what must be true at every
 * step and at the end. The seed is printed; `SANDGATE_SEED` repeats a run.
 */
import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ManualClock } from '../../base/clock.ts';
import { ResourceTable } from '../../control-plane/resource-table.ts';
import type { DeltaRequest, DeltaResponse } from '../../xds/messages.ts';
import { ClientStream } from '../../xds/stream.ts';
import type { Doubts } from '../../xds/stream-events.ts';
import { CLUSTER, LISTENER, ROUTES, SCOPE, SECRET } from '../../xds/types.ts';
import type { EncodedResource, ResourceKey, ResourceView } from '../../xds/view.ts';
import { made, viewOf } from './support.ts';

const WILDCARD = [CLUSTER, LISTENER, SCOPE];
const BY_NAME = [SECRET, ROUTES];

/** One world: which of three secrets, listeners, clusters, tables and scopes exist, in which version and how linked. */
interface World {
  readonly secrets: readonly number[];
  readonly clusters: readonly { readonly version: number; readonly secret: number }[];
  readonly tables: readonly { readonly version: number; readonly cluster: number }[];
  readonly scopes: readonly { readonly version: number; readonly table: number }[];
}

const versions = fc.integer({ min: 0, max: 3 });
const link = fc.integer({ min: 0, max: 3 });

const world: fc.Arbitrary<World> = fc.record({
  secrets: fc.array(versions, { maxLength: 3 }),
  clusters: fc.array(fc.record({ version: versions, secret: link }), { maxLength: 4 }),
  tables: fc.array(fc.record({ version: versions, cluster: link }), { maxLength: 4 }),
  scopes: fc.array(fc.record({ version: versions, table: link }), { maxLength: 5 }),
});

/** Content says what the resource refers to, as Envoy would read it; content with `bad` is refused by the model. */
function resourcesOf({ secrets, clusters, tables, scopes }: World, bad: ReadonlySet<string>): EncodedResource[] {
  const result: EncodedResource[] = [];
  const add = (typeUrl: string, name: string, version: number, requires: ResourceKey[]): void => {
    const content = JSON.stringify({ version, requires, bad: bad.has(`${name}@${version}`) });
    result.push(made(typeUrl, name, content, requires));
  };
  secrets.forEach((version, index) => {
    add(SECRET, `secret-${index}`, version, []);
  });
  const to = (typeUrl: string, kind: string, index: number, count: number): ResourceKey[] =>
    index < count ? [{ typeUrl, name: `${kind}-${index}` }] : [];
  clusters.forEach(({ version, secret }, index) => {
    add(LISTENER, `listener-${index}`, version, to(SECRET, 'secret', secret, secrets.length));
    add(CLUSTER, `cluster-${index}`, version, [{ typeUrl: LISTENER, name: `listener-${index}` }]);
  });
  tables.forEach(({ version, cluster }, index) => {
    add(ROUTES, `table-${index}`, version, to(CLUSTER, 'cluster', cluster, clusters.length));
    // A pin keeps its table subscribed; what it says about the table is no requirement.
    result.push(made(SCOPE, `!pin-table-${index}`, JSON.stringify({ pins: `table-${index}`, requires: [] })));
  });
  scopes.forEach(({ version, table }, index) => {
    if (table < tables.length) {
      add(SCOPE, `scope-${index}`, version, to(ROUTES, 'table', table, tables.length));
    }
  });
  return result;
}

interface Content {
  readonly requires: readonly ResourceKey[];
  readonly pins?: string;
  readonly bad?: boolean;
}

interface Held {
  readonly version: string;
  readonly content: Content;
}

/** Envoy as far as it matters: what it holds, what it asks for because of that, and what it refuses. */
class Model {
  readonly clock = new ManualClock(0);
  readonly held = new Map<string, Map<string, Held>>();
  readonly #known = new Map<string, Map<string, string>>();
  readonly #names = new Map<string, Set<string>>();
  #inbox: DeltaResponse[] = [];
  #stream: ClientStream;
  #offered = new Set<string>();
  #view: ResourceView | null = null;
  readonly refusedNames = new Set<string>();
  /** Held since before the last reconnect: what these refer to is not known to the server. */
  readonly #earlier = new Set<string>();
  /** Those of them that have been outside the view since: they hold up nothing. */
  readonly #loose = new Set<string>();

  constructor() {
    for (const type of [...WILDCARD, ...BY_NAME]) {
      this.held.set(type, new Map());
      this.#known.set(type, new Map());
      this.#names.set(type, new Set());
    }
    this.#stream = this.#connect(new Map());
  }

  #connect(doubts: Doubts): ClientStream {
    return new ClientStream(
      {
        send: (response) => {
          assert.not.ok(
            this.#inbox.some(({ typeUrl }) => typeUrl === response.typeUrl),
            'two responses of a type',
          );
          this.#inbox.push(response);
        },
        rejected: ({ name }) => void this.refusedNames.add(name),
        cleared: ({ name }) => void this.refusedNames.delete(name),
        settled: () => {},
        wakeAfter: () => {},
        notice: () => {},
      },
      { clock: this.clock, removalDelayMs: 10, doubts },
    );
  }

  publish(view: ResourceView, sequence: number): void {
    this.#view = view;
    for (const [typeUrl, members] of this.held) {
      for (const name of members.keys()) {
        if (this.#earlier.has(name) && view.get(typeUrl, name) === undefined) {
          this.#loose.add(name);
        }
      }
    }
    for (const id of this.#offered) {
      const [typeUrl = '', name = '', version] = id.split(' ');
      if (view.get(typeUrl, name)?.version !== version) {
        this.#offered.delete(id);
      }
    }
    this.#stream.update(view, sequence);
  }

  open(): void {
    for (const typeUrl of WILDCARD) {
      this.#stream.receive({ typeUrl, initialResourceVersions: Object.fromEntries(this.#known.get(typeUrl)!) });
    }
    for (const typeUrl of BY_NAME) {
      const names = [...this.#names.get(typeUrl)!];
      if (names.length > 0) {
        const initialResourceVersions = Object.fromEntries(this.#known.get(typeUrl)!);
        this.#stream.receive({ typeUrl, resourceNamesSubscribe: names, initialResourceVersions });
      }
    }
  }

  reconnect(view: ResourceView, sequence: number, viewFirst: boolean): void {
    this.#inbox = [];
    this.#offered = new Set();
    this.refusedNames.clear();
    for (const members of this.held.values()) {
      for (const name of members.keys()) {
        this.#earlier.add(name);
      }
    }
    this.#stream = this.#connect(this.#stream.doubts());
    if (viewFirst) {
      this.publish(view, sequence);
    }
    this.open();
    this.publish(view, sequence);
  }

  get busy(): boolean {
    return this.#inbox.length > 0;
  }

  /** Lets time pass for removals that linger. */
  tick(): void {
    this.clock.advance(10);
    this.#stream.pump();
  }

  /** Handles one response of those that have arrived. */
  step(pick: number): void {
    const [response] = this.#inbox.splice(pick % this.#inbox.length, 1);
    const bad = response!.resources.filter(({ resource }) => content(resource.value).bad === true);
    const { typeUrl, nonce } = response!;
    if (bad.length > 0) {
      this.#applyPartly(response!, pick);
      if (response!.resources.length === 1) {
        const id = `${typeUrl} ${bad[0]!.name} ${bad[0]!.version}`;
        assert.not.ok(this.#offered.has(id), `offered twice: ${id}`);
        if (this.#view?.get(typeUrl, bad[0]!.name)?.version === bad[0]!.version) {
          this.#offered.add(id);
        }
      }
      this.#follow({ typeUrl, responseNonce: nonce, errorDetail: { code: 13, message: 'refused' } });
      return;
    }
    for (const { name, version, resource } of response!.resources) {
      if (BY_NAME.includes(typeUrl) && !this.#names.get(typeUrl)!.has(name)) {
        continue;
      }
      this.#apply(typeUrl, name, { version, content: content(resource.value) });
      this.#known.get(typeUrl)!.set(name, version);
    }
    for (const name of response!.removedResources) {
      this.#remove(typeUrl, name);
      this.#known.get(typeUrl)!.delete(name);
    }
    this.#follow({ typeUrl, responseNonce: nonce });
  }

  /** A refused batch of clusters, listeners or scopes may have been applied but for the bad ones. */
  #applyPartly(response: DeltaResponse, pick: number): void {
    if (pick % 2 === 0) {
      for (const { name, version, resource } of response.resources) {
        if (content(resource.value).bad !== true) {
          this.#apply(response.typeUrl, name, { version, content: content(resource.value) });
        }
      }
    }
  }

  #apply(typeUrl: string, name: string, held: Held): void {
    for (const key of held.content.requires) {
      const later = key.typeUrl === SECRET;
      assert.ok(later || this.held.get(key.typeUrl)!.has(key.name), `${name} came before ${key.name}`);
    }
    this.held.get(typeUrl)!.set(name, held);
    this.#earlier.delete(name);
    this.#loose.delete(name);
  }

  #remove(typeUrl: string, name: string): void {
    for (const members of this.held.values()) {
      for (const [user, { content }] of members) {
        const unknown = this.#loose.has(user) || (this.#earlier.has(user) && typeUrl === LISTENER);
        if (unknown) {
          continue;
        }
        const used = content.requires.some((key) => key.typeUrl === typeUrl && key.name === name);
        assert.not.ok(used && this.held.get(typeUrl)!.has(name), `${name} left before ${user}`);
      }
    }
    this.held.get(typeUrl)!.delete(name);
  }

  /** Answers, and then asks for what is referred to and gives up what is not. */
  #follow(answer: DeltaRequest): void {
    this.#stream.receive(answer);
    const wanted = new Map(BY_NAME.map((typeUrl) => [typeUrl, new Set<string>()]));
    for (const members of this.held.values()) {
      for (const { content } of members.values()) {
        if (content.pins !== undefined) {
          wanted.get(ROUTES)!.add(content.pins);
        }
        for (const key of content.requires) {
          wanted.get(key.typeUrl)?.add(key.name);
        }
      }
    }
    for (const [typeUrl, names] of wanted) {
      const before = this.#names.get(typeUrl)!;
      const resourceNamesSubscribe = [...names].filter((name) => !before.has(name));
      const resourceNamesUnsubscribe = [...before].filter((name) => !names.has(name));
      this.#names.set(typeUrl, names);
      for (const name of resourceNamesUnsubscribe) {
        this.held.get(typeUrl)!.delete(name);
        this.#known.get(typeUrl)!.delete(name);
        for (const id of this.#offered) {
          if (id.startsWith(`${typeUrl} ${name} `)) {
            this.#offered.delete(id);
          }
        }
      }
      if (resourceNamesSubscribe.length + resourceNamesUnsubscribe.length > 0) {
        this.#stream.receive({ typeUrl, resourceNamesSubscribe, resourceNamesUnsubscribe });
      }
    }
  }
}

function content(bytes: Uint8Array): Content {
  return JSON.parse(new TextDecoder().decode(bytes)) as Content;
}

/** Whether a resource can reach the client: neither it nor what it waits for is refused. */
function deliverable(view: ResourceView, resource: EncodedResource): boolean {
  return (
    content(resource.bytes).bad !== true &&
    resource.requires.every(({ typeUrl, name }) => typeUrl === SECRET || deliverable(view, view.get(typeUrl, name)!))
  );
}

function checkConverged(model: Model, view: ResourceView): void {
  for (const typeUrl of WILDCARD) {
    const held = model.held.get(typeUrl)!;
    for (const name of view.names(typeUrl)) {
      const resource = view.get(typeUrl, name)!;
      if (deliverable(view, resource)) {
        assert.is(held.get(name)?.version, resource.version, `${name} is not current`);
      } else {
        assert.is.not(held.get(name)?.version, content(resource.bytes).bad === true ? resource.version : 'x');
      }
    }
  }
  const needed = new Set<string>();
  for (const members of model.held.values()) {
    for (const { content } of members.values()) {
      for (const { name } of content.requires) {
        needed.add(name).add(`!pin-${name}`);
      }
    }
  }
  // A refused resource may keep what the version before it refers to.
  if (model.refusedNames.size === 0) {
    for (const typeUrl of WILDCARD) {
      for (const name of model.held.get(typeUrl)!.keys()) {
        const gone = view.get(typeUrl, name) === undefined;
        assert.not.ok(gone && !needed.has(name), `${name} should have left`);
      }
    }
  }
}

const scenario = fc.record({
  worlds: fc.array(world, { minLength: 1, maxLength: 6 }),
  bad: fc.uniqueArray(
    fc.record({
      kind: fc.constantFrom('secret', 'listener', 'cluster', 'table', 'scope'),
      index: link,
      version: versions,
    }),
    { maxLength: 5, selector: ({ kind, index, version }) => `${kind}-${index}@${version}` },
  ),
  steps: fc.array(fc.nat({ max: 1000 }), { minLength: 10, maxLength: 60 }),
  /** Whether the views tell what differs, as those of the control plane do; otherwise everything is compared. */
  tellsChanges: fc.boolean(),
});

/** Views of a control plane: what did not change is the same object in the next one. */
function tablesOf(worlds: readonly (readonly EncodedResource[])[]): readonly ResourceView[] {
  const known = new Map<string, EncodedResource>();
  let last = ResourceTable.empty;
  return worlds.map((resources) => {
    const kept = resources.map((resource) => {
      const id = `${resource.typeUrl} ${resource.name} ${resource.version} ${JSON.stringify(resource.requires)}`;
      known.set(id, known.get(id) ?? resource);
      return known.get(id)!;
    });
    last = ResourceTable.of(kept, last);
    return last;
  });
}

test('a client converges to its view without what it refuses, and never breaks before it makes', () => {
  const seed = Number(process.env['SANDGATE_SEED'] ?? Date.now() % 1_000_000_000);
  console.log(`  seed ${seed}`);
  fc.assert(
    fc.property(scenario, ({ worlds, bad, steps, tellsChanges }) => {
      const refused = new Set(bad.map(({ kind, index, version }) => `${kind}-${index}@${version}`));
      const contents = worlds.map((one) => resourcesOf(one, refused));
      const views = tellsChanges ? tablesOf(contents) : contents.map(viewOf);
      const model = new Model();
      let [at, sequence] = [0, 1];
      model.publish(views[0]!, sequence);
      model.open();
      for (const step of steps) {
        const what = step % 10;
        if (what === 0) {
          sequence += 1;
          at = (at + 1) % views.length;
          model.publish(views[at]!, sequence);
        } else if (what === 1) {
          model.reconnect(views[at]!, sequence, step % 3 === 0);
        } else if (what === 2) {
          model.tick();
        } else if (model.busy) {
          model.step(step);
        }
      }
      for (let rounds = 0; rounds < 20; rounds += 1) {
        for (let budget = 0; model.busy; budget += 1) {
          assert.ok(budget < 2000, 'responses never end');
          model.step(budget * 2 + 1);
        }
        model.tick();
      }
      checkConverged(model, views[at]!);
    }),
    { seed, numRuns: Number(process.env['SANDGATE_RUNS'] ?? 1500), includeErrorInReport: true },
  );
});

test.run();
