import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { kindNamed } from '../../api/kinds.ts';
import type { KubeObject } from '../../api/object.ts';
import { type Logger, silentLogger } from '../../base/logger.ts';
import { VirtualAddressAllocator } from '../../control-plane/virtual-addresses.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { readVirtualAddresses, VIRTUAL_ADDRESSES } from '../../world/virtual-addresses.ts';
import { until } from './stage.ts';

/** Addresses of names, written by compare-and-swap (D4). */
const allocation = suite('allocation of virtual addresses');

const KEY = { namespace: 'root', name: VIRTUAL_ADDRESSES };

/** A store in which another writer comes first, so many times. */
class ContestedStore extends MemoryStore {
  contests = 0;
  writes = 0;
  onContest: () => Promise<unknown> = async () => {};

  override async create(object: KubeObject): Promise<KubeObject> {
    await this.#contest();
    this.writes += 1;
    return super.create(object);
  }

  override async replace(object: KubeObject): Promise<KubeObject> {
    await this.#contest();
    this.writes += 1;
    return super.replace(object);
  }

  async #contest(): Promise<void> {
    if (this.contests > 0) {
      this.contests -= 1;
      await this.onContest();
    }
  }
}

let store: ContestedStore;
let errors: string[];
const open: VirtualAddressAllocator[] = [];

allocation.before.each(() => {
  store = new ContestedStore({ kinds: kindNamed });
  errors = [];
});

allocation.after.each(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
  await store.close();
});

function allocator(): VirtualAddressAllocator {
  const note = (_fields: object, message: string) => void errors.push(message);
  const logger: Logger = { ...silentLogger, error: note, child: () => logger };
  const made = new VirtualAddressAllocator(store, 'root', logger, 50);
  open.push(made);
  return made;
}

async function known(): Promise<Readonly<Record<string, string>>> {
  return readVirtualAddresses(await store.get('ConfigMap', KEY).catch(() => undefined));
}

const has = (...names: readonly string[]) =>
  until(`addresses of ${names.join(', ')}`, 3000, async () => {
    const all = await known();
    return names.every((name) => all[name] !== undefined);
  });

allocation('makes the map, then adds to it; what is known is not written again', async () => {
  const one = allocator();
  one.ensure(['a.test'], {});
  await has('a.test');
  one.ensure(['a.test'], await known());
  one.ensure(['b.test', 'a.test'], await known());
  await has('b.test');
  assert.is(store.writes, 2);
  assert.equal(await known(), { 'a.test': '240.0.1.0', 'b.test': '240.0.1.1' });
});

allocation('wishes that come while it works are one more round', async () => {
  const one = allocator();
  for (let index = 0; index < 20; index += 1) {
    one.ensure([`n${index}.test`, 'a.test'], {});
  }
  await has('n19.test');
  assert.ok(store.writes <= 2, `${store.writes} writes`);
});

allocation('two control planes never give one address to two names', async () => {
  const all = Array.from({ length: 4 }, () => allocator());
  const names = all.map((_, index) => Array.from({ length: 25 }, (_unused, at) => `n${index}-${at}.test`));
  for (const [index, one] of all.entries()) {
    one.ensure(names[index]!, {});
  }
  await has(...names.flat());
  const addresses = Object.values(await known());
  assert.is(addresses.length, 100);
  assert.is(new Set(addresses).size, 100);
  assert.equal(errors, []);
});

allocation("a conflict is met by reading again: the other's addresses stay", async () => {
  const one = allocator();
  store.contests = 1;
  store.onContest = async () => {
    const data = { 'theirs.test': '240.0.1.0' };
    await MemoryStore.prototype.create.call(store, { apiVersion: 'v1', kind: 'ConfigMap', metadata: KEY, data });
  };
  one.ensure(['mine.test'], {});
  await has('mine.test');
  assert.equal(await known(), { 'mine.test': '240.0.1.1', 'theirs.test': '240.0.1.0' });
});

allocation('conflicts without end are said, and it is tried again by itself', async () => {
  const one = allocator();
  one.ensure(['a.test'], {});
  await has('a.test');
  let touched = 0;
  store.contests = Number.POSITIVE_INFINITY;
  store.onContest = () => {
    touched += 1;
    return store.patch('ConfigMap', KEY, { type: 'merge', body: { metadata: { labels: { touched: `n${touched}` } } } });
  };
  one.ensure(['b.test'], await known());
  await until('a word', 3000, () => errors.length > 0);
  assert.is(touched, 10);
  store.contests = 0;
  await has('b.test');
  assert.equal(await known(), { 'a.test': '240.0.1.0', 'b.test': '240.0.1.1' });
});

allocation('after its end nothing is written', async () => {
  const one = allocator();
  await one.close();
  one.ensure(['a.test'], {});
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.is(store.writes, 0);
});

allocation.run();
