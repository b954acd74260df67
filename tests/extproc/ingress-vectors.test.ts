/** ingress-gateway §9 through routes, mapping and authentication as the processor composes them; numbers are its rows. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { ManualClock } from '../../base/clock.ts';
import type { Answer } from '../../extproc/answer.ts';
import { ingressHandler } from '../../extproc/ingress/handler.ts';
import { RouteTable } from '../../world/routes.ts';

const NOW = Date.parse('2027-01-15T08:00:00Z');

interface Fixture {
  readonly label?: string;
  readonly name: string;
  readonly namespace: string;
  readonly ip: string;
  readonly token: string;
  readonly phase?: string;
  readonly isReady?: boolean;
  readonly isPausedCondition?: boolean;
  readonly spec?: object;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly isPooled?: boolean;
}

const RULE = { autoPausePolicy: { resume: { onIngressTraffic: { pauseTimeout: '600s' } } } };
const asleep = { phase: 'Paused', isReady: false, isPausedCondition: true } as const;

const FIXTURES = {
  A: { namespace: 'team-a', name: 'demo-7k2', ip: '10.9.0.11', token: '0f6b3d52-7f0a-4d55-9c5c-6a2b8f1e7a01' },
  B: {
    label: 'amdezu2aaaaao',
    namespace: 'team-a',
    name: 'demo-short',
    ip: '10.9.0.12',
    token: '4be0a0cf-33a5-4a0a-8a0f-d0a7c7b1b002',
  },
  C: {
    namespace: 'team-a',
    name: 'nap-1',
    ip: '10.9.0.13',
    token: 'token-c',
    ...asleep,
    spec: { paused: true, ...RULE },
  },
  D: { namespace: 'team-a', name: 'nap-2', ip: '10.9.0.14', token: 'token-d', ...asleep, spec: { paused: true } },
  E: {
    namespace: 'team-b',
    name: 'jwt-1',
    ip: '10.9.0.15',
    token: 'token-e',
    annotations: { 'security.agents.kruise.io/enable-jwt-auth': 'true' },
  },
  F: { namespace: 'pool-x', name: 'p-9', ip: '10.9.0.16', token: '', isPooled: true, spec: RULE },
  G: { namespace: 'team-a', name: 'open-1', ip: '10.9.0.17', token: '' },
  H: { namespace: 'team-a', name: 'six', ip: '2001:db8::7', token: 'token-h' },
  I: { namespace: 'api-team', name: 's1', ip: '10.9.0.19', token: 'token-i' },
  J: { namespace: 'team-a', name: 'half', ip: '10.9.0.20', token: 'token-j', isReady: false },
  K: { namespace: 'team-a', name: 'mid', ip: '10.9.0.21', token: 'token-k', spec: { paused: true, ...RULE } },
  Z: { namespace: 'team-a', name: 'up', ip: '10.9.0.22', token: 'token-z', phase: 'Upgrading' },
} as const satisfies Readonly<Record<string, Fixture>>;

type Name = keyof typeof FIXTURES;

function objectOf(fixture: Fixture): KubeObject {
  const { namespace, name, ip, token, phase = 'Running', isReady = true, isPausedCondition = false } = fixture;
  const condition = (type: string, holds: boolean) => ({ type, status: holds ? 'True' : 'False', reason: 'X' });
  return {
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'Sandbox',
    metadata: {
      namespace,
      name,
      uid: `uid-${name}`,
      resourceVersion: '500',
      labels: fixture.label === undefined ? {} : { 'agents.kruise.io/sandbox-id': fixture.label },
      annotations: {
        ...(token === '' ? {} : { 'agents.kruise.io/runtime-access-token': token }),
        ...fixture.annotations,
      },
      ownerReferences:
        fixture.isPooled === true
          ? [{ apiVersion: 'agents.kruise.io/v1alpha1', kind: 'SandboxSet', name: 'p', uid: 'p', controller: true }]
          : [],
    },
    spec: { ...fixture.spec },
    status: {
      phase,
      podInfo: { podIP: ip },
      conditions: [condition('Ready', isReady), condition('SandboxPaused', isPausedCondition)],
    },
  };
}

interface Request {
  readonly host?: string;
  readonly path?: string;
  readonly method?: string;
  readonly headers?: readonly (readonly [string, string])[];
  /** Whose token is shown. */
  readonly tok?: Name;
}

const clock = new ManualClock(NOW);
const table = new RouteTable(clock);
for (const fixture of Object.values(FIXTURES)) {
  table.set(objectOf(fixture));
}
const woken: string[] = [];

function handler(isReady: boolean) {
  return ingressHandler({
    routes: table,
    waker: {
      async wake(uid) {
        woken.push(uid);
        return null;
      },
      isWaking: () => false,
    },
    isReady: () => isReady,
  });
}

async function ask({ host = 'gw', path = '/', method = 'GET', headers = [], tok }: Request, isReady = true) {
  const token = tok === undefined ? [] : [['x-access-token', FIXTURES[tok].token] as const];
  return handler(isReady)(
    {
      method,
      scheme: 'http',
      authority: host,
      path,
      headers: [...headers, ...token],
      attributes: {},
      endOfStream: true,
    },
    { signal: new AbortController().signal, extend() {}, readBody: async () => new Uint8Array() },
  );
}

/** `-> ip:port`, with the path where it was rewritten, or status and text. */
function brief(answer: Answer): string {
  if (answer.kind === 'respond') {
    return `${answer.status} ${answer.body}`;
  }
  const path = answer.set?.[':path'];
  return `-> ${answer.metadata!['envoy.lb.original_dst']!['host']}${path === undefined ? '' : ` ${path}`}`;
}

const UNMAPPED = '404 no sandbox is addressed by this request';
const BAD_PORT = '400 invalid sandbox port';
const UNAUTHORIZED = '401 unauthorized: invalid or missing access token';
const A = 'team-a--demo-7k2';
const B = 'amdezu2aaaaao';
const id = (value: string) => ['e2b-sandbox-id', value] as const;
const port = (value: string) => ['e2b-sandbox-port', value] as const;

const ROWS: readonly [row: string, request: Request, expected: string][] = [
  ['1', { host: `3000-${A}.sbx.example.test`, path: '/x?y=1', tok: 'A' }, '-> 10.9.0.11:3000'],
  ['2', { host: `49983-${B}.sbx.example.test:8443`, tok: 'B' }, '-> 10.9.0.12:49983'],
  ['3', { host: `3000-${A}.z`, tok: 'A' }, '-> 10.9.0.11:3000'],
  ['4', { host: `3000-${A}`, tok: 'A' }, UNMAPPED],
  ['5', { host: `3000-${A}:8443`, tok: 'A' }, UNMAPPED],
  ['6', { host: `03000-${A}.d.test`, tok: 'A' }, '-> 10.9.0.11:3000'],
  ['7', { host: `0-${A}.d.test`, tok: 'A' }, BAD_PORT],
  ['8', { host: `70000-${A}.d.test`, tok: 'A' }, BAD_PORT],
  ['9', { host: `99999999999999999999-${A}.d.test`, tok: 'A' }, UNMAPPED],
  ['10, D9', { host: '3000-TEAM-A--demo-7k2.d.test', tok: 'A' }, UNAUTHORIZED],
  ['11, D9', { host: '3000--team-a.d.test', tok: 'A' }, UNAUTHORIZED],
  ['12', { host: '3000-team_a--x.d.test', tok: 'A' }, UNMAPPED],
  ['13', { host: `${A}.d.test`, tok: 'A' }, UNMAPPED],
  ['14', { host: `${A}-3000.d.test`, tok: 'A' }, UNMAPPED],
  ['15', { host: '10.0.0.5:7788', tok: 'A' }, UNMAPPED],
  ['16', { host: '10.0.0.5:7788', headers: [id(A)], tok: 'A' }, '-> 10.9.0.11:49983'],
  ['17', { headers: [id(A), port('8888')], tok: 'A' }, '-> 10.9.0.11:8888'],
  ['18', { headers: [id(A), port('')], tok: 'A' }, '-> 10.9.0.11:49983'],
  ['19', { host: `3000-${B}.d.test`, headers: [id(A)], tok: 'A' }, '-> 10.9.0.11:49983'],
  ['20', { host: `3000-${B}.d.test`, headers: [id('')], tok: 'B' }, '-> 10.9.0.12:3000'],
  ['21', { host: `3000-${B}.d.test`, headers: [id(A), port('http')], tok: 'B' }, UNMAPPED],
  ['22', { headers: [id(A), port('+3000')], tok: 'A' }, '-> 10.9.0.11:3000'],
  ['23', { headers: [id(A), port('-1')], tok: 'A' }, BAD_PORT],
  ...['3000.0', '0x1F90', '3_000'].map((value): [string, Request, string] => [
    `24 ${value}`,
    { headers: [id(A), port(value)], tok: 'A' },
    UNMAPPED,
  ]),
  ['26', { headers: [id(A), id(B)], tok: 'B' }, '-> 10.9.0.12:49983'],
  ['27', { host: `8080-${B}.d.test`, headers: [port('3000')], tok: 'B' }, '-> 10.9.0.12:8080'],
  ['28', { path: `/kruise/${A}/3000/a/b?c=d`, tok: 'A' }, '-> 10.9.0.11:3000 /a/b?c=d'],
  ['29', { path: `/kruise/${A}/3000`, tok: 'A' }, '-> 10.9.0.11:3000 /'],
  ['30', { path: `/kruise/${A}/3000/?q`, tok: 'A' }, '-> 10.9.0.11:3000 /?q'],
  ['31', { path: `/kruise/${A}/3000//a`, tok: 'A' }, '-> 10.9.0.11:3000 //a'],
  ['32', { path: `/kruise/${A}/3000?x=1`, tok: 'A' }, UNMAPPED],
  ['33', { path: `/kruise/${A}`, tok: 'A' }, UNMAPPED],
  ['34', { path: '/kruise', tok: 'A' }, UNMAPPED],
  ['34 with a slash', { path: '/kruise/', tok: 'A' }, UNMAPPED],
  ['35, D9', { path: '/kruise//3000/', tok: 'A' }, UNAUTHORIZED],
  ['36, D9', { path: '/kruisefoo/3000/x', tok: 'A' }, UNAUTHORIZED],
  ['37', { path: `/kruise/${A}/3000/`, headers: [id(B)], tok: 'A' }, '-> 10.9.0.11:3000 /'],
  ['38', { host: `3000-${B}.d.test`, path: '/kruise/docs', tok: 'B' }, UNMAPPED],
  ['40, D9', { path: '/kruise/api/3000/x', tok: 'A' }, UNAUTHORIZED],
  ['41 [T]', { path: '/kruise/api-team--s1/3000/x', tok: 'I' }, '-> 10.9.0.19:3000 /x'],
  ['42', { headers: [id('api-team--s1')], path: '/x', tok: 'I' }, '-> 10.9.0.19:49983'],
  ['43, D9', { path: '/kruise/team-a%2D%2Ddemo-7k2/3000/', tok: 'A' }, UNAUTHORIZED],
  ['44, D9', { headers: [id('team-a--demo-short')], tok: 'B' }, UNAUTHORIZED],
  ['45', { headers: [id('team-a--six'), port('3000')], tok: 'H' }, '-> [2001:db8::7]:3000'],
  ['62, D9', { headers: [id('team-a--ghost')], tok: 'A' }, UNAUTHORIZED],
  ['63', { headers: [id('team-a--half')], tok: 'J' }, '502 healthy sandbox not found: team-a--half'],
  ['64', { headers: [id('team-a--nap-2')], tok: 'D' }, '502 healthy sandbox not found: team-a--nap-2'],
  ['65, D9', { headers: [id('pool-x--p-9')] }, UNAUTHORIZED],
  ['70', { headers: [id('team-a--up')], tok: 'Z' }, '502 healthy sandbox not found: team-a--up'],
  ['75', { headers: [id(A)] }, UNAUTHORIZED],
  ['76', { headers: [id(A)], tok: 'B' }, UNAUTHORIZED],
  ['77', { headers: [id(A), ['x-access-token', FIXTURES.A.token.toUpperCase()]] }, UNAUTHORIZED],
  ['78', { headers: [id(A), ['x-access-token', `Bearer ${FIXTURES.A.token}`]] }, UNAUTHORIZED],
  [
    '79',
    { headers: [id(A), ['authorization', FIXTURES.A.token]], path: `/?x-access-token=${FIXTURES.A.token}` },
    UNAUTHORIZED,
  ],
  ['80', { headers: [id(A)], method: 'OPTIONS' }, UNAUTHORIZED],
  ['81', { headers: [id(A), port('3000')], path: '/health' }, UNAUTHORIZED],
  ['82, D9', { headers: [id('team-a--open-1')] }, UNAUTHORIZED],
  ['88', { headers: [id('team-a--nap-2')] }, UNAUTHORIZED],
  ['89', { headers: [id('team-a--nap-1')], tok: 'A' }, UNAUTHORIZED],
  [
    '117',
    { headers: [id('team-b--jwt-1')], tok: 'E' },
    '503 service unavailable: traffic access token verifier is not ready',
  ],
];

for (const [row, request, expected] of ROWS) {
  test(row, async () => {
    assert.is(brief(await ask(request)), expected);
    assert.equal(woken.splice(0), [], 'nothing is woken');
  });
}

test('60, 61: mapping comes before readiness', async () => {
  assert.is(brief(await ask({ headers: [id(A)], tok: 'A' }, false)), '503 sandbox gateway is not ready');
  assert.is(brief(await ask({ host: 'plain.d.test' }, false)), UNMAPPED);
});

test('85, 86: the old annotation counts only without the new one', async () => {
  const legacy = 'e2b.agents.kruise.io/envd-access-token';
  const of = (name: string, annotations: Readonly<Record<string, string>>) =>
    table.set(objectOf({ namespace: 'n', name, ip: '10.9.0.30', token: '', annotations }));
  of('old', { [legacy]: 'old-1' });
  of('both', { [legacy]: 'old-1', 'agents.kruise.io/runtime-access-token': 'new-1' });
  const old = ['x-access-token', 'old-1'] as const;
  assert.is(brief(await ask({ headers: [id('n--old'), old] })), '-> 10.9.0.30:49983');
  assert.is(brief(await ask({ headers: [id('n--both'), old] })), UNAUTHORIZED);
});

test('67, 68, 69 [T], 147: a shutdown time ends a sandbox when it passes, and nothing wakes it then', async () => {
  const ends = { shutdownTime: '2027-01-15T08:00:30Z' };
  table.set(objectOf({ namespace: 'n', name: 'awake', ip: '10.9.0.31', token: 'token-l', spec: ends }));
  const spec = { paused: true, ...RULE, ...ends };
  table.set(objectOf({ namespace: 'n', name: 'asleep', ip: '10.9.0.32', token: 'token-l', ...asleep, spec }));
  const to = (name: string) => ask({ headers: [id(`n--${name}`), ['x-access-token', 'token-l']] });
  clock.advance(30_000);
  assert.is(brief(await to('awake')), '-> 10.9.0.31:49983');
  clock.advance(1);
  assert.is(brief(await to('awake')), '502 healthy sandbox not found: n--awake');
  assert.is(brief(await to('asleep')), '502 healthy sandbox not found: n--asleep');
  assert.equal(woken.splice(0), []);
});

test('142, 149: who may enter wakes a sleeping sandbox and one on its way there, at any port and path', async () => {
  for (const [name, path] of [
    ['nap-1', '/health'],
    ['mid', '/'],
  ] as const) {
    const tok = name === 'mid' ? 'K' : 'C';
    assert.is(brief(await ask({ headers: [id(`team-a--${name}`)], path, tok })), '503 sandbox wake failed');
    assert.equal(woken.splice(0), [`uid-${name}`]);
  }
});

test('every answer of the gateway names its reason; only those that may be tried again say when', async () => {
  for (const [row, request] of ROWS) {
    const answer = await ask(request);
    if (answer.kind === 'respond') {
      assert.match(answer.headers?.['x-sandgate-reason'] ?? '', /^[a-z_]+$/, row);
      assert.is(answer.headers?.['retry-after'] !== undefined, answer.status === 503, row);
      assert.not.match(answer.details, /\s/, row);
      assert.not.ok(`${answer.body}`.endsWith('\n'), row);
    }
  }
});

test.run();
