import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { inRanges, PRIVATE_RANGES, parseRange, rangeContains } from '../../base/addresses.ts';
import { dialClusterResource } from '../../policy-compiler/clusters.ts';
import { SETTINGS } from './stage/world.ts';

/** What the upstream check of a cluster denies, read from its permissions as Envoy reads them. */
interface Permission {
  readonly andRules?: { readonly rules: readonly Permission[] };
  readonly orRules?: { readonly rules: readonly Permission[] };
  readonly matcher?: {
    readonly typedConfig: { readonly upstreamIp: { readonly addressPrefix: string; readonly prefixLen: number } };
  };
}

function holds({ andRules, orRules, matcher }: Permission, address: string): boolean {
  if (andRules !== undefined || orRules !== undefined) {
    const { rules } = (andRules ?? orRules)!;
    return andRules === undefined
      ? rules.some((rule) => holds(rule, address))
      : rules.every((rule) => holds(rule, address));
  }
  const { addressPrefix, prefixLen } = matcher!.typedConfig.upstreamIp;
  return rangeContains(parseRange(`${addressPrefix}/${prefixLen}`)!, address);
}

function permissionsOf(notDialled: readonly string[]): readonly Permission[] {
  const { json } = dialClusterResource({ kind: 'name', tls: false, notDialled, injections: [] }, SETTINGS);
  const found: Permission[] = [];
  JSON.stringify(json, (key, value: unknown) => {
    if (key === 'permissions') {
      found.push(...(value as Permission[]));
    }
    return value;
  });
  return found;
}

const v4 = fc.ipV4();
const range = fc.oneof(
  fc.tuple(v4, fc.integer({ min: 0, max: 32 })).map(([address, prefix]) => `${address}/${prefix}`),
  fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 })).map(([address, prefix]) => `${address}/${prefix}`),
);

test('an address is refused exactly if a private range or one that is not dialled holds it', () => {
  fc.assert(
    fc.property(
      fc.array(range, { maxLength: 4 }),
      fc.array(fc.oneof(v4, fc.ipV6()), { maxLength: 20 }),
      (not, some) => {
        const parsed = not.map((text) => parseRange(text)).filter((one) => one !== null);
        const refused = [...PRIVATE_RANGES, ...parsed];
        const permissions = permissionsOf(parsed.map(({ address, prefix }) => `${address}/${prefix}`));
        const edges = refused.map(({ address }) => address);
        for (const address of [...some, ...edges]) {
          const expected = inRanges(refused, address);
          assert.is(
            permissions.some((one) => holds(one, address)),
            expected,
            `${address} with ${not.join(' ')}`,
          );
        }
      },
    ),
    { numRuns: 300 },
  );
});

test('a range that is larger than the parts counts in each of them', () => {
  const permissions = permissionsOf(['0.0.0.0/0']);
  for (const address of ['8.8.8.8', '203.0.113.9']) {
    assert.ok(
      permissions.some((one) => holds(one, address)),
      address,
    );
  }
});

test.run();
