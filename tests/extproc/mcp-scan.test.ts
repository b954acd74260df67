import { deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { scanMcp } from '../../extproc/egress/mcp-scan.ts';
import type { McpCall } from '../../policy-compiler/mcp-verdict.ts';

const VERSION = '2025-11-25';
const MAX = 8 * 1024 * 1024;

function scan(
  body: string | Uint8Array,
  encoding: readonly string[] = [],
  version: readonly string[] = [VERSION],
): McpCall {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  return scanMcp(bytes, [
    ...encoding.map((value) => ['content-encoding', value] as const),
    ...version.map((value) => ['mcp-protocol-version', value] as const),
  ]);
}

/** The same with these Content-Type headers. */
function scanTyped(body: string | Uint8Array, ...types: readonly string[]): McpCall {
  const headers = types.map((value) => ['content-type', value] as const);
  return scanMcp(Buffer.from(body as string), [['mcp-protocol-version', VERSION], ...headers]);
}

const called = (tool: string | null, version: string | null = VERSION): McpCall => ({ kind: 'call', tool, version });
const call = (name: string) =>
  `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(name)}}}`;
const OTHER: McpCall = { kind: 'other' };
const UNREADABLE: McpCall = { kind: 'unreadable' };
const EMPTY: McpCall = { kind: 'empty' };

const utf16 = (text: string, big = false): Buffer => {
  const bytes = Buffer.from(`\ufeff${text}`, 'utf16le');
  return big ? bytes.swap16() : bytes;
};

const CASES: readonly [name: string, found: McpCall, expected: McpCall][] = [
  ['95 a call', scan(call('read_file')), called('read_file')],
  ['97 names are case-sensitive', scan(call('Read_File')), called('Read_File')],
  ['98 another method', scan('{"method":"tools/list"}'), OTHER],
  ['99 no body', scan(''), EMPTY],
  ['99 only white space', scan(' \r\n\t'), EMPTY],
  ['100 a batch', scan(`[${call('rm')}]`), UNREADABLE],
  ['101 two documents', scan(`{"method":"ping"}${call('rm')}`), UNREADABLE],
  ['102 no JSON', scan('not json'), UNREADABLE],
  ['a scalar', scan('5'), UNREADABLE],
  ['a literal', scan('true'), UNREADABLE],
  ['null is readable', scan('null'), OTHER],
  ['an empty object', scan('{}'), OTHER],
  ['103 no version', scan(call('a'), [], []), called('a', null)],
  ['two versions, one unknown', scan(call('a'), [], [VERSION, 'x']), called('a', 'x')],
  ['107 no name', scan('{"method":"tools/call","params":{}}'), called(null)],
  ['107 no params', scan('{"method":"tools/call"}'), called(null)],
  ['108 a name of another type', scan('{"method":"tools/call","params":{"name":5}}'), called(null)],
  ['108 an empty name', scan(call('')), called(null)],
  ['109 params is an array', scan('{"method":"tools/call","params":[]}'), UNREADABLE],
  ['params is null', scan('{"method":"tools/call","params":null}'), called(null)],
  ['method is a number', scan('{"method":1}'), UNREADABLE],
  ['method is null', scan('{"method":null}'), UNREADABLE],
  ['110 escapes in the value', scan('{"method":"tools\\u002fcall","params":{"name":"rm"}}'), called('rm')],
  ['escapes in the key', scan('{"m\\u0065thod":"tools/call","params":{"na\\u006de":"rm"}}'), called('rm')],
  ['params before method', scan('{"params":{"name":"rm"},"method":"tools/call"}'), called('rm')],
  ['111 gzip', scan(gzipSync(call('a')), ['gzip']), called('a')],
  ['deflate with a zlib header', scan(deflateSync(call('a')), ['deflate']), called('a')],
  ['raw deflate', scan(deflateRawSync(call('a')), ['deflate']), called('a')],
  ['two codings, undone from the right', scan(gzipSync(deflateSync(call('a'))), ['deflate, gzip']), called('a')],
  ['two headers are one list', scan(gzipSync(deflateSync(call('a'))), ['deflate', 'X-GZIP']), called('a')],
  ['identity', scan(call('a'), ['identity']), called('a')],
  ['112 an unknown coding', scan(call('a'), ['br']), UNREADABLE],
  ['113 three codings', scan(call('a'), ['gzip, gzip, gzip']), UNREADABLE],
  ['a broken stream', scan(gzipSync(call('a')).subarray(0, 20), ['gzip']), UNREADABLE],
  ['two members are one text', scan(Buffer.concat([gzipSync(' '), gzipSync(call('rm'))]), ['gzip']), called('rm')],
  [
    'a member behind padding, where other decoders go on',
    scan(Buffer.concat([gzipSync(' '), Buffer.from([0]), gzipSync(call('rm'))]), ['gzip']),
    UNREADABLE,
  ],
  ['zeros behind gzip', scan(Buffer.concat([gzipSync(call('a')), Buffer.alloc(8)]), ['gzip']), UNREADABLE],
  ['more behind deflate', scan(Buffer.concat([deflateSync(' '), deflateSync(call('rm'))]), ['deflate']), UNREADABLE],
  ['more behind raw deflate', scan(Buffer.concat([deflateRawSync(' '), Buffer.from('x')]), ['deflate']), UNREADABLE],
  ['114 more than 8 MiB unpacked', scan(gzipSync(Buffer.alloc(MAX + 1, 0x20)), ['gzip']), UNREADABLE],
  ['8 MiB unpacked', scan(gzipSync(Buffer.alloc(MAX, 0x20)), ['gzip']), EMPTY],
  ['more than 8 MiB as sent', scan(Buffer.alloc(MAX + 1, 0x20)), UNREADABLE],
  ['115 a byte order mark', scan(`\ufeff${call('a')}`), called('a')],
  ['116 UTF-16', scan(utf16(call('rm'))), called('rm')],
  ['UTF-16, big end first', scan(utf16(call('rm'), true)), called('rm')],
  ['half a unit', scan(Buffer.concat([utf16(call('rm')), Buffer.from([0x20])])), UNREADABLE],
  ['UTF-16 without a mark', scan(utf16(call('rm')).subarray(2)), UNREADABLE],
  ['no charset', scanTyped(call('a'), 'application/json; boundary=x'), called('a')],
  ['its charset', scanTyped(call('a'), 'application/json; charset=utf-8'), called('a')],
  ['its charset, quoted, twice', scanTyped(call('a'), 'a/b;charset="UTF-8"; x=y', 'a/b; charset=utf8'), called('a')],
  ['UTF-7', scanTyped(call('a'), 'application/json; charset=utf-7'), UNREADABLE],
  ['Latin 1', scanTyped(call('a'), 'application/json; charset=iso-8859-1'), UNREADABLE],
  ['one of two headers', scanTyped(call('a'), 'a/b; charset=utf-8', 'a/b; charset=utf-7'), UNREADABLE],
  ['one of two in a header', scanTyped(call('a'), 'a/b; charset=utf-8; charset=utf-7'), UNREADABLE],
  ['an extended charset', scanTyped(call('a'), "a/b; charset*=us-ascii''utf-7"), UNREADABLE],
  ['a charset in parts', scanTyped(call('a'), 'a/b; charset*0=utf; charset*1=-7'), UNREADABLE],
  ['space around its sign', scanTyped(call('a'), 'a/b; charset =utf-7'), UNREADABLE],
  ['an escape in its quotes', scanTyped(call('a'), 'a/b; charset="ut\\f-8"'), UNREADABLE],
  ['UTF-16 named', scanTyped(utf16(call('a')), 'a/b; charset=utf-16'), called('a')],
  ['UTF-16 named the other way round', scanTyped(utf16(call('a')), 'a/b; charset=utf-16be'), UNREADABLE],
  ['UTF-16 named UTF-8', scanTyped(utf16(call('a')), 'a/b; charset=utf-8'), UNREADABLE],
  ['117 invalid UTF-8', scan(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])), UNREADABLE],
  ['118 another case of method', scan('{"method":"tools/call","Method":"ping","params":{"name":"rm"}}'), UNREADABLE],
  ['another case alone', scan('{"METHOD":"tools/call","params":{"name":"rm"}}'), UNREADABLE],
  ['119 method twice', scan('{"method":"ping","method":"tools/call","params":{"name":"rm"}}'), UNREADABLE],
  ['120 params twice', scan('{"params":{"name":"rm"},"params":{"name":"a"},"method":"tools/call"}'), UNREADABLE],
  ['name twice', scan('{"params":{"name":"rm","name":"a"},"method":"tools/call"}'), UNREADABLE],
  ['Name beside name', scan('{"params":{"Name":"rm","name":"a"},"method":"tools/call"}'), UNREADABLE],
  ['ſ is s', scan('{"param\u017f":{"name":"rm"},"method":"tools/call","params":{"name":"a"}}'), UNREADABLE],
  [
    'deeper names do not count',
    scan('{"method":"tools/call","params":{"name":"a","arguments":{"name":"rm","Name":1}}}'),
    called('a'),
  ],
  ['duplicates elsewhere do not count', scan('{"id":1,"id":2,"method":"ping"}'), OTHER],
  ['123 a response', scan('{"jsonrpc":"2.0","id":1,"result":{}}'), OTHER],
  ['a trailing comma', scan('{"method":"ping",}'), UNREADABLE],
  ['a comment', scan('{/**/"method":"ping"}'), UNREADABLE],
  ['a control character in a string', scan('{"method":"pi\nng"}'), UNREADABLE],
  ['a cut string', scan('{"method":"pi'), UNREADABLE],
  ['a leading zero', scan('{"id":01}'), UNREADABLE],
  ['too deep', scan(`{"a":${'['.repeat(600)}${']'.repeat(600)}}`), UNREADABLE],
];

for (const [name, found, expected] of CASES) {
  test(name, () => {
    assert.equal(found, expected);
  });
}

test('agrees with JSON.parse on every value and on every damaged text', () => {
  const texts = fc.oneof(
    fc.json(),
    fc.tuple(fc.json(), fc.nat(), fc.string()).map(([json, at, noise]) => {
      const cut = at % (json.length + 1);
      return json.slice(0, cut) + noise + json.slice(cut);
    }),
  );
  fc.assert(
    fc.property(texts, (text) => {
      const sent = text.toWellFormed();
      const found = scan(sent);
      let parsed: unknown;
      try {
        parsed = JSON.parse(sent.replace(/^\ufeff/, ''));
      } catch {
        parsed = undefined;
      }
      const isMessage = parsed === null || (typeof parsed === 'object' && !Array.isArray(parsed));
      const blank = /^\ufeff?[ \t\r\n]*$/.test(sent);
      if (!/"(method|params)"/i.test(sent)) {
        assert.is(found.kind, blank ? 'empty' : isMessage ? 'other' : 'unreadable');
      }
    }),
    { numRuns: 3000, seed: 20_261_201 },
  );
});

test.run();
