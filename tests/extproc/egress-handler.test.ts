/** The egress processor over the real compilation. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyFacts } from '../../api/facts.ts';
import type { Answer } from '../../extproc/answer.ts';
import { decodeDetails } from '../../extproc/details.ts';
import { type Decider, egressHandler } from '../../extproc/egress/handler.ts';
import type { RequestHead } from '../../extproc/request.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { policy, SETTINGS, sandbox, world } from '../policy-compiler/stage/world.ts';

const NAME = 'api.example.com';
const RULES = [
  {
    name: 'gone',
    match: [{ domains: [NAME], paths: [{ type: 'Prefix', value: '/admin' }] }],
    actions: { block: { statusCode: 410, body: 'no admin' } },
  },
  {
    name: 'mcp',
    match: [{ domains: [NAME], paths: [{ type: 'Exact', value: '/mcp' }] }],
    actions: {
      mcpToolPolicy: { defaultAction: 'deny', rules: [{ method: 'tools/call', toolNames: ['read'], action: 'allow' }] },
    },
  },
  {
    name: 'headers',
    match: [{ domains: [NAME] }],
    actions: { headerManipulation: { set: [{ name: 'x-set', value: 'on' }], remove: ['x-gone'] } },
  },
];

const FACTS: PolicyFacts = world({
  sandboxes: [sandbox('s1'), sandbox('s2', {}, 'team-b')],
  policies: [
    policy('TrafficPolicy', 'team-a/tp', { egress: { rules: [{ action: 'allow', to: [{ fqdn: NAME }] }] } }),
    policy('SecurityProfile', 'team-a/sp', { rules: RULES }),
  ],
  names: [NAME],
});
const VIRTUAL = FACTS.virtualAddresses[NAME]!;
const compilation = createCompiler().compile(FACTS, SETTINGS);

interface Asked {
  readonly uid?: string;
  readonly ip?: string;
  readonly port?: string;
  readonly path?: string;
  readonly headers?: readonly (readonly [string, string])[];
  readonly body?: string;
  readonly decider?: Decider | null;
  /** Attributes instead of those that Envoy gives. */
  readonly attributes?: Readonly<Record<string, string>>;
}

let bodiesRead = 0;

function ask(asked: Asked): Promise<Answer> {
  const head: RequestHead = {
    method: asked.body === undefined ? 'GET' : 'POST',
    scheme: 'https',
    authority: NAME,
    path: asked.path ?? '/',
    headers: asked.headers ?? [],
    attributes: asked.attributes ?? {
      "filter_state['agents.sandbox.uid']": asked.uid ?? 's1',
      "filter_state['agents.dst.ip']": asked.ip ?? VIRTUAL,
      "filter_state['agents.dst.port']": asked.port ?? '443',
    },
    endOfStream: asked.body === undefined,
  };
  return egressHandler(() => (asked.decider === undefined ? compilation : asked.decider))(head, {
    signal: new AbortController().signal,
    extend() {},
    async readBody() {
      bodiesRead += 1;
      return Buffer.from(asked.body ?? '');
    },
  });
}

async function refused(asked: Asked): Promise<string> {
  const answer = await ask(asked);
  return answer.kind === 'respond' ? `${answer.status} ${decodeDetails(answer.details)?.reason}` : 'forwarded';
}

const VERSION = ['mcp-protocol-version', '2025-11-25'] as const;
const call = (tool: string) => JSON.stringify({ method: 'tools/call', params: { name: tool } });

test('before the first compilation everything is refused', async () => {
  assert.is(await refused({ decider: null }), '503 policy_not_ready');
});

test('who it is comes from filter state alone; without it, or unknown, nothing passes', async () => {
  assert.is(await refused({ uid: '' }), '403 unknown-sandbox');
  assert.is(await refused({ uid: 'nobody' }), '403 unknown-sandbox');
  assert.is(await refused({ attributes: {} }), '403 unknown-sandbox');
  assert.is(
    await refused({ attributes: {}, headers: [['x-agents-uid', 's1']] }),
    '403 unknown-sandbox',
    'names on the wire are not read',
  );
  assert.is(
    await refused({ attributes: { "x.filter_state['agents.sandbox.uid']": 's1' } }),
    '403 unknown-sandbox',
    'nor keys that only end like it',
  );
});

test('without a destination nothing passes', async () => {
  for (const asked of [{ ip: '' }, { port: '' }, { port: '0' }, { port: '65536' }, { port: 'x' }]) {
    assert.is(await refused(asked), '403 unknown-sandbox');
  }
});

test('a block answers in the words of the policy, and the details name the rule', async () => {
  const answer = await ask({ path: '/admin/x' });
  assert.is(answer.kind === 'respond' && `${answer.status} ${answer.body}`, '410 no admin');
  assert.equal(answer.kind === 'respond' && decodeDetails(answer.details), {
    reason: 'block',
    policy: 'SecurityProfile team-a/sp',
    rule: 'gone',
  });
  assert.not.match(answer.kind === 'respond' ? answer.details : ' ', /\s/);
});

test('a forwarded request gets the net header changes; no body is read for it', async () => {
  const before = bodiesRead;
  const answer = await ask({ headers: [['x-gone', '1']], body: 'ignored' });
  assert.is(answer.kind, 'continue');
  assert.is(answer.kind === 'continue' && answer.set?.['x-set'], 'on');
  assert.equal(answer.kind === 'continue' && answer.remove, ['x-gone']);
  assert.is(bodiesRead, before);
});

test('the body of an MCP call decides, and its header changes come with it', async () => {
  const before = bodiesRead;
  const allowed = await ask({ path: '/mcp', headers: [VERSION], body: call('read') });
  assert.is(allowed.kind === 'continue' && allowed.set?.['x-set'], 'on');
  assert.is(await refused({ path: '/mcp', headers: [VERSION], body: call('rm') }), '403 mcp');
  assert.is(await refused({ path: '/mcp', headers: [VERSION], body: `[${call('read')}]` }), '403 mcp');
  assert.is(await refused({ path: '/mcp', body: call('read') }), '403 mcp', 'no version');
  assert.is(await refused({ path: '/mcp', headers: [VERSION], body: '{"method":"tools/list"}' }), 'forwarded');
  assert.is(bodiesRead, before + 5);
});

test("another sandbox's rules do not apply", async () => {
  assert.is(await refused({ uid: 's2', path: '/mcp', ip: '198.51.100.1', body: call('rm') }), 'forwarded');
});

test.run();
