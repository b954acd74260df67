/**
 * `@peculiar/x509` wires its parts with tsyringe, which demands the old metadata proposal of `Reflect`. These are the
 * three functions that tsyringe calls, without prototype walking for anything but classes; nothing else in the product
 * uses them. Import this file before `@peculiar/x509`.
 */
const store = new WeakMap<object, Map<unknown, unknown>>();

function getOwnMetadata(key: unknown, target: object): unknown {
  return store.get(target)?.get(key);
}

function getMetadata(key: unknown, target: object): unknown {
  for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at) as object | null) {
    const found = getOwnMetadata(key, at);
    if (found !== undefined) {
      return found;
    }
  }
  return undefined;
}

function defineMetadata(key: unknown, value: unknown, target: object): void {
  const members = store.get(target) ?? new Map<unknown, unknown>();
  members.set(key, value);
  store.set(target, members);
}

if (!('getMetadata' in Reflect)) {
  Object.assign(Reflect, { getOwnMetadata, getMetadata, defineMetadata });
}
