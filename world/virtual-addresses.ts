import { VIRTUAL_RANGE } from '../api/facts.ts';
import type { KubeObject } from '../api/object.ts';
import { canonicalAddress } from '../base/addresses.ts';
import { CodedError } from '../base/errors.ts';
import { member } from './sandboxes.ts';

/** ConfigMap of the root namespace that holds the virtual address of every listed name (D4). */
export const VIRTUAL_ADDRESSES = 'sandgate-virtual-addresses';

const BASE = Number(VIRTUAL_RANGE.split('.')[0]) * 2 ** 24;

/** The first addresses are kept for the proxy's own use: 240.0.0.53 is its DNS tunnel. */
const FIRST = 256;
const SIZE = 2 ** 24;

/**
 * Gives every name an address: known ones keep theirs, new ones get the lowest number above all that were ever given,
 * in the order of the sorted names, so that an address is never used for a second name (D4). Pure: the caller stores
 * the result by compare-and-swap. Throws `range-exhausted` when the range is used up.
 */
export function allocateVirtualAddresses(
  known: Readonly<Record<string, string>>,
  names: readonly string[],
): Readonly<Record<string, string>> {
  const missing = [...new Set(names)].filter((name) => !Object.hasOwn(known, name)).sort();
  if (missing.length === 0) {
    return known;
  }
  let next = Math.max(FIRST - 1, ...Object.values(known).map(offsetOf)) + 1;
  const added: [string, string][] = [];
  for (const name of missing) {
    if (next >= SIZE) {
      throw new CodedError('range-exhausted', `no virtual address is left in ${VIRTUAL_RANGE} for ${name}`);
    }
    added.push([name, addressAt(next)]);
    next += 1;
  }
  // Not by assignment: a name can be `__proto__`.
  return Object.fromEntries([...Object.entries(known), ...added]);
}

function addressAt(offset: number): string {
  const value = BASE + offset;
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
}

function offsetOf(address: string): number {
  return address.split('.').reduce((value, part) => value * 256 + Number(part), 0) - BASE;
}

/**
 * The stored addresses, sorted by name. Entries that are no address of the range are left out, and so is every later
 * name of one address, should somebody have written it twice: it gets an address of its own again.
 */
export function readVirtualAddresses(configMap: KubeObject | undefined): Readonly<Record<string, string>> {
  const data = configMap?.['data'];
  const names = data !== null && typeof data === 'object' ? Object.keys(data).sort() : [];
  const taken = new Set<string>();
  const entries = names.flatMap((name): [string, string][] => {
    const address = member(data, name);
    if (typeof address !== 'string' || !isOfRange(address) || taken.has(address)) {
      return [];
    }
    taken.add(address);
    return [[name, address]];
  });
  return Object.fromEntries(entries);
}

function isOfRange(address: string): boolean {
  const offset = canonicalAddress(address) === address && !address.includes(':') ? offsetOf(address) : -1;
  return offset >= FIRST && offset < SIZE;
}
