import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { McpToolPolicy } from '../../api/security-profile.ts';
import { type McpCall, mcpVerdict } from '../../policy-compiler/mcp-verdict.ts';

const CALL = 'tools/call';
const V = '2025-11-25';
/** The policies W and B of egress-policy §11. */
const W: McpToolPolicy = {
  defaultAction: 'deny',
  rules: [{ method: CALL, toolNames: ['read_file'], action: 'allow' }],
};
const B: McpToolPolicy = { defaultAction: 'allow', rules: [{ method: CALL, toolNames: ['rm'], action: 'deny' }] };
const call = (tool: string | null, version: string | null = V): McpCall => ({ kind: 'call', tool, version });

test('vectors 95–109 of egress-policy §11', () => {
  const rows: readonly (readonly [string, McpCall, 'allow' | 'deny', 'allow' | 'deny'])[] = [
    ['95 read_file', call('read_file'), 'allow', 'allow'],
    ['96 rm', call('rm'), 'deny', 'deny'],
    ['97 another case', call('Read_File'), 'deny', 'allow'],
    ['98 tools/list', { kind: 'other' }, 'allow', 'allow'],
    ['99 empty', { kind: 'empty' }, 'allow', 'allow'],
    ['100 batch, stricter in column B', { kind: 'unreadable' }, 'deny', 'deny'],
    ['103 no version', call('read_file', null), 'deny', 'deny'],
    ['107 no name', call(null), 'deny', 'allow'],
    ['108 empty name', call(''), 'deny', 'allow'],
  ];
  for (const [name, message, w, b] of rows) {
    assert.is(mcpVerdict(W, message), w, `W ${name}`);
    assert.is(mcpVerdict(B, message), b, `B ${name}`);
  }
});

test('an unsupported version can be let through (vector 104)', () => {
  const open: McpToolPolicy = { ...W, unsupportedVersionAction: 'passthrough' };
  assert.is(mcpVerdict(open, call('rm', '2025-03-26')), 'allow');
  assert.is(mcpVerdict(open, call('rm')), 'deny');
});

test('the first rule decides, and only the exact word allow admits (vectors 121, 122)', () => {
  const rules = [{ method: CALL, toolNames: [], action: 'deny' as const }, ...W.rules];
  assert.is(mcpVerdict({ ...W, rules }, call('read_file')), 'deny');
  assert.is(mcpVerdict({ ...W, defaultAction: 'ALLOW ' as 'allow' }, call('x')), 'deny');
});

test('unreadable is allowed only where nothing denies (D13)', () => {
  const allowing: McpToolPolicy = { defaultAction: 'allow', rules: [{ method: CALL, action: 'allow' }] };
  assert.is(mcpVerdict(allowing, { kind: 'unreadable' }), 'allow');
});

test.run();
