import { deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import type { Expected, VectorCase } from './case.ts';
import { call, profile, rule } from './facts.ts';

/** Rows 95–123 (MCP) of the specification's test vectors, column B as D13 answers it. */

const URL = 'http://mcp.example/mcp';

const W = {
  mcpToolPolicy: {
    defaultAction: 'deny',
    rules: [{ method: 'tools/call', toolNames: ['read_file'], action: 'allow' }],
    denyResponse: { statusCode: 451, body: 'x' },
  },
};
const B = {
  mcpToolPolicy: { defaultAction: 'allow', rules: [{ method: 'tools/call', toolNames: ['rm'], action: 'deny' }] },
};

type Verdict = 'pass' | 451 | 403;
type Headers = readonly (readonly [string, string])[];

const CURRENT: Headers = [['mcp-protocol-version', '2025-11-25']];

function expectation(verdict: Verdict): Expected {
  if (verdict === 'pass') {
    return { l7: 'forward' };
  }
  return verdict === 451
    ? { l7: 'deny', why: 'mcp', status: 451, body: 'x', contentType: 'text/plain' }
    : {
        l7: 'deny',
        why: 'mcp',
        status: 403,
        body: '{"error":"denied","policy":"SecurityProfile team-a/p","rule":"r0","reason":"mcp","retryable":false}',
      };
}

/** Both columns of a row: the policy that denies by default, and the one that allows by default. */
function both(
  row: string,
  about: string,
  body: string | Uint8Array,
  w: Verdict,
  b: Verdict,
  headers: Headers = CURRENT,
): readonly VectorCase[] {
  const columns: readonly (readonly [string, object, Verdict])[] = [
    ['W', W, w],
    ['B', B, b],
  ];
  return columns.map(([column, policy, verdict]) => ({
    row: `${row} ${column}`,
    about,
    world: { objects: [profile([rule(policy, { domains: ['mcp.example'] })])] },
    request: call(URL, { method: 'POST', body, headers }),
    expect: expectation(verdict),
  }));
}

const calls = (name: unknown, method = 'tools/call') =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { name } });
const READ = calls('read_file');
const RM = calls('rm');
const coded = (coding: string): Headers => [...CURRENT, ['content-encoding', coding]];
const typed = (...types: readonly string[]): Headers => [
  ...CURRENT,
  ...types.map((type) => ['content-type', type] as const),
];
/** Read as UTF-8 it calls a tool that is allowed; in UTF-7 the letters between `+` and `-` name another one. */
const UTF7 = READ.replace(
  '}}',
  `,"x":"+${Buffer.from('","name":"rm', 'utf16le').swap16().toString('base64').replaceAll('=', '')}-"}}`,
);
const utf16 = (text: string) => Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(text, 'utf16le')]);
const tooMuch = Buffer.concat([Buffer.from(READ), Buffer.alloc(8 * 1024 * 1024 + 1 - READ.length, ' ')]);
const exactly = tooMuch.subarray(0, -1);

const passthrough = {
  mcpToolPolicy: { ...W.mcpToolPolicy, unsupportedVersionAction: 'passthrough' },
};
const allTools = {
  mcpToolPolicy: {
    defaultAction: 'allow',
    rules: [
      { method: 'tools/call', toolNames: [], action: 'deny' },
      { method: 'tools/call', toolNames: ['read_file'], action: 'allow' },
    ],
  },
};

function one(
  row: string,
  about: string,
  policy: object,
  body: string,
  expect: Expected,
  headers: Headers = CURRENT,
): VectorCase {
  return {
    row,
    about,
    world: { objects: [profile([rule(policy, { domains: ['mcp.example'] })])] },
    request: call(URL, { method: 'POST', body, headers }),
    expect,
  };
}

export const MCP: readonly VectorCase[] = [
  ...both('95', 'the allowed tool', READ, 'pass', 'pass'),
  ...both('96', 'the denied tool', RM, 451, 403),
  ...both('97', 'case counts', calls('Read_File'), 451, 'pass'),
  ...both('98', 'another method', calls('rm', 'tools/list'), 'pass', 'pass'),
  ...both('99', 'no body', '', 'pass', 'pass'),
  ...both('99 blank', 'a blank body', ' \r\n\t', 'pass', 'pass'),
  ...both('100', 'a batch', `[${RM}]`, 451, 403),
  ...both('101', 'two documents', `${READ}\n${RM}`, 451, 403),
  ...both('102', 'no JSON', 'not json', 451, 403),
  ...both('103', 'no version', READ, 451, 403, []),
  one(
    '104',
    'an old version passed through',
    passthrough,
    RM,
    { l7: 'forward', mcp: { method: 'tools/call', tool: 'rm', action: 'allow' } },
    [['mcp-protocol-version', '2025-03-26']],
  ),
  ...both('105', 'no version, another method', calls('rm', 'tools/list'), 'pass', 'pass', []),
  ...both('106', 'no version, a batch', `[${RM}]`, 451, 403, []),
  ...both('107', 'no name', '{"method":"tools/call","params":{}}', 451, 'pass'),
  ...both('108', 'a name that is a number', calls(5), 451, 'pass'),
  ...both('108 null', 'null', calls(null), 451, 'pass'),
  ...both('108 empty', 'or empty', calls(''), 451, 'pass'),
  ...both('109', 'params that are a list', '{"method":"tools/call","params":[]}', 451, 403),
  ...both('109 method', 'a method that is a number', '{"method":5,"params":{"name":"rm"}}', 451, 403),
  ...both('110', 'escapes', '{"method":"tools\\u002fcall","p\\u0061rams":{"name":"r\\u006d"}}', 451, 403),
  ...both('111', 'gzip', gzipSync(READ), 'pass', 'pass', coded('gzip')),
  ...both('111 rm', 'gzip around the denied tool', gzipSync(RM), 451, 403, coded('x-gzip')),
  ...both('111 deflate', 'deflate', deflateSync(RM), 451, 403, coded('deflate')),
  ...both('111 raw', 'raw deflate', deflateRawSync(READ), 'pass', 'pass', coded('deflate')),
  ...both('112', 'brotli', RM, 451, 403, coded('br')),
  ...both('113', 'three codings', gzipSync(gzipSync(gzipSync(READ))), 451, 403, coded('gzip, gzip, gzip')),
  ...both('113 two', 'two codings', gzipSync(gzipSync(READ)), 'pass', 'pass', coded('gzip, gzip')),
  ...both('113 apart', 'two headers are one list', gzipSync(READ), 'pass', 'pass', [
    ...coded('gzip'),
    ['content-encoding', 'identity'],
  ]),
  ...both('114', 'gzip of more than 8 MiB', gzipSync(tooMuch), 451, 403, coded('gzip')),
  ...both('114 plain', 'more than 8 MiB', tooMuch, 451, 403),
  ...both('114 exactly', 'exactly 8 MiB', exactly, 'pass', 'pass'),
  ...both('115', 'a BOM', `\ufeff${READ}`, 'pass', 'pass'),
  ...both('116', 'UTF-16', utf16(RM), 451, 403),
  ...both('116 odd', 'half a UTF-16 unit', Buffer.concat([utf16(READ), Buffer.from([0])]), 451, 403),
  ...both('116 utf-8', 'charset as read', READ, 'pass', 'pass', typed('application/json;charset="UTF-8"')),
  ...both(
    '116 utf-7',
    'a charset that is not how it is read',
    UTF7,
    451,
    403,
    typed('application/json; charset=utf-7'),
  ),
  ...both('116 list', 'one of two charsets', UTF7, 451, 403, typed('a/b; charset=utf-8', 'a/b; charset=utf-7')),
  ...both('116 comma', 'a second in one header', UTF7, 451, 403, typed('a/b; charset=utf-8, a/b; CHARSET="utf-7"')),
  ...both('116 star', 'an extended parameter', UTF7, 451, 403, typed("a/b; charset*=us-ascii''utf-7")),
  ...both('116 space', 'space around the sign', UTF7, 451, 403, typed('a/b; charset = utf-7')),
  ...both('116 mark', 'UTF-16 as its mark says', utf16(READ), 'pass', 'pass', typed('a/b; charset=utf-16le')),
  ...both('116 other', 'not as its mark says', utf16(READ), 451, 403, typed('a/b; charset=utf-16be')),
  ...both('117', 'bytes that are no UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), 451, 403),
  ...both(
    '118',
    'a method in another case (D13)',
    '{"method":"tools/call","Method":"ping","params":{"name":"rm"}}',
    451,
    403,
  ),
  ...both('118 alone', 'alone', '{"Method":"tools/call","params":{"name":"rm"}}', 451, 403),
  ...both('118 fold', 'params with a long s', '{"method":"tools/call","param\u017f":{"name":"rm"}}', 451, 403),
  ...both(
    '118 name',
    'a name in another case',
    '{"method":"tools/call","params":{"name":"read_file","Name":"rm"}}',
    451,
    403,
  ),
  ...both('119', 'two methods', '{"method":"ping","method":"tools/call","params":{"name":"rm"}}', 451, 403),
  ...both(
    '120',
    'two params (D13)',
    '{"params":{"name":"rm"},"params":{"name":"read_file"},"method":"tools/call"}',
    451,
    403,
  ),
  ...both(
    '120 inner',
    'twice elsewhere is no matter',
    '{"method":"tools/call","params":{"arguments":{"name":"rm","name":"x"},"name":"read_file"}}',
    'pass',
    'pass',
  ),
  one('121', 'no names are all names', allTools, READ, {
    l7: 'deny',
    why: 'mcp',
    mcp: { method: 'tools/call', tool: 'read_file', action: 'deny' },
  }),
  one('121 nameless', 'but not no name', allTools, calls(''), { l7: 'forward' }),
  ...both('123', 'an answer', '{"jsonrpc":"2.0","id":1,"result":{}}', 'pass', 'pass'),
  ...both('123 null', 'null', 'null', 'pass', 'pass'),
  ...both('123 scalar', 'a scalar', '"tools/call"', 451, 403),
  ...both('124', 'a header about the method is no matter', RM, 451, 403, [
    ['mcp-protocol-version', '2026-07-28'],
    ['mcp-method', 'tools/list'],
  ]),
  ...both('124 twice', 'one unknown version of two', READ, 451, 403, [...CURRENT, ['mcp-protocol-version', '1']]),
];
