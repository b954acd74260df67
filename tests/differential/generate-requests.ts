import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import type { DecisionRequest } from '../../api/decision.ts';
import type { PolicyFacts } from '../../api/facts.ts';
import * as pools from './pools.ts';

/** Requests of the small worlds, as plain data that shrinks and prints. */

/** A request whose destination may be "the virtual address of this name", which only the facts know. */
export interface Draft {
  readonly sandbox: string;
  readonly to: { readonly name: string; readonly by: 'virtual' | 'name' } | { readonly address: string };
  readonly port: number;
  readonly scheme: DecisionRequest['scheme'];
  /** Server name; null: that of {@link authority}. */
  readonly sni: string | null;
  readonly method: string;
  /** Host header; null: the name that is asked for, or the first of the names for an address. */
  readonly authority: string | null;
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
  readonly gzip: boolean;
}

/** The request of a draft in a world. A name without a virtual address is asked for as such. */
export function requestOf(facts: PolicyFacts, draft: Draft): DecisionRequest {
  const { to, port, scheme } = draft;
  const host = draft.authority ?? ('name' in to ? to.name : pools.NAMES[0]);
  const sni = draft.sni ?? host.replace(/:\d*$/, '');
  const bytes = draft.gzip ? gzipSync(draft.body) : Buffer.from(draft.body);
  return {
    sandbox: draft.sandbox,
    destination: destinationOf(facts, to, port),
    scheme,
    ...(scheme === 'https' ? { sni } : {}),
    ...(scheme === 'tcp'
      ? {}
      : {
          http: {
            method: draft.method,
            authority: host,
            path: draft.path,
            headers: draft.gzip ? [...draft.headers, ['content-encoding', 'gzip'] as const] : draft.headers,
            ...(bytes.length === 0 ? {} : { body: new Uint8Array(bytes) }),
          },
        }),
  };
}

function destinationOf(facts: PolicyFacts, to: Draft['to'], port: number): DecisionRequest['destination'] {
  if ('address' in to) {
    return { kind: 'address', address: to.address, port };
  }
  const address = to.by === 'virtual' ? facts.virtualAddresses[to.name] : undefined;
  return address === undefined ? { kind: 'name', name: to.name, port } : { kind: 'address', address, port };
}

const pick = <T>(values: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...values);

/** A constant most of the time. */
const mostly = <T>(weight: number, usual: T, other: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ weight, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: other });

const byName = fc.record({
  name: fc.oneof({ weight: 6, arbitrary: pick(pools.NAMES) }, { weight: 1, arbitrary: pick(pools.FREE_NAMES) }),
  by: mostly<'virtual' | 'name'>(2, 'virtual', fc.constant('name')),
});
const toAddress = (addresses: readonly string[]) => pick(addresses).map((address) => ({ address }));

const message = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .tuple(mostly(4, 'tools/call', pick(['tools/list', 'ping', 'tools/Call'])), pick([...pools.TOOLS, '', null, 5]))
      .map(([method, name]) => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { name, arguments: {} } })),
  },
  {
    weight: 3,
    arbitrary: pick([
      '',
      ' \r\n',
      'not json',
      '[{"method":"tools/call","params":{"name":"rm"}}]',
      '{"method":"tools/call","params":{"name":"read_file"}} {}',
      '{"method":"tools/call","Method":"ping","params":{"name":"rm"}}',
      '{"method":"tools/call","params":{"name":"rm","name":"read_file"}}',
      '{"params":{"name":"rm"},"params":{"name":"read_file"},"method":"tools/call"}',
      '{"method":"tools/call","params":["read_file"]}',
      '{"method":"tools\\u002fcall","params":{"n\\u0061me":"r\\u006d"}}',
      '{"method":null,"params":{"name":"rm"}}',
      '{"jsonrpc":"2.0","id":1,"result":{}}',
      'null',
      '\ufeff{"method":"tools/call","params":{"name":"read_file"}}',
    ]),
  },
);

const version = fc.oneof(
  { weight: 7, arbitrary: fc.constant([['mcp-protocol-version', '2025-11-25'] as const]) },
  { weight: 1, arbitrary: fc.constant([['mcp-protocol-version', '2025-03-26'] as const]) },
  { weight: 1, arbitrary: fc.constant([]) },
);

const sentHeaders = fc.array(fc.tuple(pick(pools.HEADER_NAMES), pick(pools.HEADER_VALUES)), { maxLength: 3 });

const path = fc
  .tuple(
    pick(pools.PATHS),
    fc.oneof({ weight: 2, arbitrary: fc.constant('') }, { weight: 1, arbitrary: pick(pools.QUERIES) }),
  )
  .map(([plain, query]) => (query === '' ? plain : `${plain}?${query}`));

/** What a scenario changes about requests; everything else is drawn from the common pools. */
export type DraftParts = { readonly [K in keyof Draft]?: fc.Arbitrary<Draft[K]> };

/** A request that a scenario shapes. */
export function draft(parts: DraftParts = {}): fc.Arbitrary<Draft> {
  return fc.record({
    sandbox: mostly(8, 'uid-1', pick(['uid-2', 'uid-3'])),
    to: fc.oneof({ weight: 4, arbitrary: byName }, { weight: 1, arbitrary: toAddress(pools.ADDRESSES) }),
    port: fc.oneof(
      { weight: 3, arbitrary: fc.constant<number>(80) },
      { weight: 2, arbitrary: pick<number>(pools.PORTS) },
    ),
    scheme: fc.constant<Draft['scheme']>('http'),
    sni: fc.constant(null),
    method: pick<string>(pools.METHODS),
    authority: fc.constant(null),
    path,
    headers: sentHeaders,
    body: fc.constant(''),
    gzip: fc.constant(false),
    ...parts,
  }) as fc.Arbitrary<Draft>;
}

export const towards = { byName, toAddress };

/** Server names: right, none, in capitals, another one. */
export const SERVER_NAMES: fc.Arbitrary<string | null> = fc.oneof(
  { weight: 6, arbitrary: fc.constant(null) },
  { weight: 1, arbitrary: fc.constant('') },
  { weight: 2, arbitrary: pick([...pools.NAMES, 'API.a.test', 'free.test', 'b.test.']) },
);

/** Hosts that are not the name asked for, or that say it in another way. */
export const FORGED_HOSTS: fc.Arbitrary<string | null> = pick([
  'a.test',
  'b.test',
  'A.TEST',
  'a.test.',
  'api.a.test:80',
  'api.a.test:22',
  'a.test:',
  'a.test:080',
  'a.test:x',
  'a.test:70000',
  '[a.test]:80',
  'a.test..',
  'u@a.test',
  '[::1]:80',
  'a.test,b.test',
  'a.test.:80',
  '203.0.113.9',
  '',
]);

/** Calls of MCP tools, well and badly formed. */
export const MCP_CALL: DraftParts = {
  method: mostly(5, 'POST', fc.constant('GET')),
  body: message,
  gzip: mostly(8, false, fc.constant(true)),
  headers: fc.tuple(version, sentHeaders).map(([first, rest]) => [...first, ...rest.slice(0, 1)]),
};
