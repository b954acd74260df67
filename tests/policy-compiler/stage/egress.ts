/** Run by `envoy.test.ts` in namespaces of its own: what real Envoys make of compiled policies, printed as JSON. */
import { execFileSync } from 'node:child_process';
import { Stage } from './stage.ts';
import { Upstreams } from './upstreams.ts';
import { policy, sandbox, world } from './world.ts';

const PUBLIC = '198.51.100.10';
const OTHER = '198.51.100.20';
const SHUT = '198.51.100.30';
const FORBIDDEN = '203.0.113.10';

execFileSync('/bin/sh', [
  '-ec',
  `ip link set lo up;
   for a in ${PUBLIC} ${OTHER} ${SHUT} ${FORBIDDEN} 10.9.9.9; do ip addr add $a/32 dev lo; done`,
]);

const results: Record<string, unknown> = {};
const upstreams = new Upstreams();
const stage = await Stage.create(5300, { 'team-a/key': 's3cret' });

const TRAFFIC = {
  egress: {
    rules: [
      { action: 'reject', to: [{ cidr: `${SHUT}/32` }] },
      {
        action: 'allow',
        to: ['api.example.com', 'plain.example.com', 'raw.example.com', 'private.example.com', 'shut.example.com'].map(
          (fqdn) => ({ fqdn }),
        ),
      },
      { action: 'allow', to: [{ fqdn: 'db.internal' }] },
      {
        action: 'allow',
        to: [{ cidr: `${OTHER}/32` }],
        ports: [{ port: 80 }, { port: 443 }, { port: 9000, endPort: 9001 }],
      },
      { action: 'reject', to: [{ cidr: '0.0.0.0/0' }], ports: [{ port: 25 }] },
    ],
  },
};

const template = { targetHeaders: { names: ['Authorization'] }, value: { template: 'Bearer {{ .Token }}' } };
const credential = { credentialRef: { secret: { name: 'key' } }, apiKey: template };
const RULES = [
  {
    name: 'admin',
    match: [{ domains: ['api.example.com'], paths: [{ type: 'Prefix', value: '/admin' }] }],
    actions: { block: { statusCode: 451, body: 'no entry' } },
  },
  {
    name: 'no-delete',
    match: [{ domains: ['api.example.com', 'plain.example.com'], methods: ['DELETE'] }],
    actions: { block: {} },
  },
  {
    name: 'headers',
    match: [{ domains: ['*'], headers: [{ name: 'X-Mode', type: 'Exact', value: 'on' }] }],
    actions: { headerManipulation: { set: [{ name: 'x-set', value: '100% {{x}}' }], remove: ['x-gone'] } },
  },
  {
    name: 'mcp',
    match: [{ domains: ['api.example.com'], paths: [{ type: 'Exact', value: '/mcp' }] }],
    actions: {
      mcpToolPolicy: { defaultAction: 'deny', rules: [{ method: 'tools/call', toolNames: ['read'], action: 'allow' }] },
    },
  },
  { name: 'token', match: [{ domains: ['api.example.com'] }], actions: { tokenTransformation: credential } },
  {
    name: 'plain-token',
    match: [{ domains: ['plain.example.com'], schemes: ['http'], paths: [{ type: 'Prefix', value: '/token' }] }],
    actions: { tokenTransformation: credential },
  },
  {
    name: 'missing',
    match: [{ domains: ['plain.example.com'], schemes: ['http'], paths: [{ type: 'Prefix', value: '/missing' }] }],
    actions: { tokenTransformation: { ...credential, credentialRef: { secret: { name: 'nothing' } } } },
  },
  { name: 'wild', match: [{ domains: ['*.wild.test'] }], actions: { block: {} } },
];

const facts = (rules: unknown = RULES, traffic: unknown = TRAFFIC) =>
  world({
    sandboxes: [sandbox('s1', { app: 'agent' })],
    policies: [policy('TrafficPolicy', 'team-a/tp', traffic), policy('SecurityProfile', 'team-a/sp', { rules })],
    secretKeys: { 'team-a/key': ['apiKey'] },
    names: ['api.example.com', 'plain.example.com', 'raw.example.com', 'private.example.com', 'shut.example.com'],
    hosts: { 'db.internal': { address: '127.0.0.1', port: 7000 } },
  });

const virtual = facts().virtualAddresses;
const get = (host: string, path = '/', more = '', method = 'GET') =>
  `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;

/** Status and what matters of the answer: the echo of the upstream, or the body and reason of a denial. */
function brief(answer: string): unknown {
  const text = answer.includes('\nHTTP/') ? answer.slice(answer.indexOf('\n') + 1) : answer;
  const status = /^HTTP\/1\.[01] ([0-9]+)/.exec(text)?.[1];
  if (status === undefined) {
    return answer;
  }
  const body = text.slice(text.indexOf('\r\n\r\n') + 4);
  if (status !== '200') {
    return `${status} ${body}`;
  }
  const { at, url, headers } = JSON.parse(body) as { at: string; url: string; headers: Record<string, string> };
  return { at, url, headers };
}

const http = async (address: string, port: number, send: string) =>
  brief(await stage.ask({ kind: 'http', address, port, send }));
const tls = async (address: string, sni: string, send: string, port = 443) => {
  const answer = await stage.ask({ kind: 'tls', address, port, sni, send, ca: stage.mitmCaPem });
  return [answer.split('\n')[0], brief(answer)];
};

async function record(name: string, work: () => Promise<unknown>): Promise<void> {
  const before = upstreams.arrivals.length;
  const result = await work();
  results[name] = [result, upstreams.arrivals.slice(before)];
}

try {
  await upstreams.names(5300, {
    'api.example.com': PUBLIC,
    'plain.example.com': PUBLIC,
    'raw.example.com': PUBLIC,
    'private.example.com': '10.9.9.9',
    'shut.example.com': SHUT,
    'unlisted.example.com': OTHER,
  });
  for (const address of [PUBLIC, OTHER, SHUT, FORBIDDEN, '10.9.9.9']) {
    await upstreams.http(address, 80);
  }
  await upstreams.http(PUBLIC, 8080);
  await upstreams.http('127.0.0.1', 7000);
  await upstreams.https(PUBLIC, 443, ['api.example.com'], stage.origins);
  await upstreams.https(OTHER, 443, ['other.test'], stage.origins);
  await upstreams.echo(PUBLIC, 9000);
  await upstreams.echo(OTHER, 9000);
  await upstreams.banner(OTHER, 9001);
  await stage.publish(facts(), false);
  await stage.startGateway();
  await stage.startPod('s1');
  await stage.publish(facts());
  upstreams.arrivals.length = 0;
  const api = virtual['api.example.com']!;
  const plain = virtual['plain.example.com']!;

  await record('dns listed', () => stage.ask({ kind: 'dns', name: 'API.example.com', type: 1 }));
  await record('dns listed v6', () => stage.ask({ kind: 'dns', name: 'api.example.com', type: 28 }));
  await record('dns other', () => stage.ask({ kind: 'dns', name: 'unlisted.example.com', type: 1 }));
  await record('dns hosts', () => stage.ask({ kind: 'dns', name: 'db.internal', type: 1 }));

  await record('http by name', () => http(plain, 80, get('plain.example.com', '/a?b=c')));
  await record('http by name, upper case, dot, port', () => http(plain, 80, get('PLAIN.example.com.:80')));
  await record('http by name, other port', () => http(plain, 8080, get('plain.example.com:8080')));
  await record('port of Host differs', () => http(plain, 80, get('plain.example.com:8080')));
  await record('Host of another name', () => http(plain, 80, get('api.example.com')));
  await record('Host that is no name', () => http(OTHER, 80, get('plain.example.com:80:evil')));
  await record('Host twice', () => http(OTHER, 80, get('a.test', '/', 'Host: plain.example.com\r\n')));
  await record('block without body', () => http(plain, 80, get('plain.example.com', '/', '', 'DELETE')));
  await record('hosts', () => http(virtual['db.internal']!, 5432, get('db.internal:5432')));
  await record('private', () => http(virtual['private.example.com']!, 80, get('private.example.com')));
  await record('resolves into a rejected range', () => http(virtual['shut.example.com']!, 80, get('shut.example.com')));
  await record('captured', () => http(OTHER, 80, get('anything.test')));
  await record('captured with a listed Host', () => http(OTHER, 80, get('plain.example.com', '/x')));
  await record('headers', () => http(OTHER, 80, get('any.test', '/', 'X-Mode: on\r\nX-Gone: 1\r\nX-Set: mine\r\n')));
  await record('headers, last value', () => http(OTHER, 80, get('any.test', '/', 'X-Mode: on\r\nX-Mode: off\r\n')));
  await record('own headers', () =>
    http(OTHER, 80, get('any.test', '/', 'x-sandgate-plan: abc\r\nx-agents-scope: i:s2\r\nx-envoy-retry-on: 5xx\r\n')),
  );
  await record('plain token', () =>
    http(plain, 80, get('plain.example.com', '/token', 'Authorization: placeholder\r\n')),
  );
  await record('plain token elsewhere', () => http(OTHER, 80, get('plain.example.com', '/token')));
  await record('missing secret', () => http(plain, 80, get('plain.example.com', '/missing')));
  await record('token not for http', () => http(api, 80, get('api.example.com')));

  await record('tls token', () =>
    tls(api, 'api.example.com', get('api.example.com', '/t', 'Authorization: placeholder\r\n')),
  );
  await record('tls block', () => tls(api, 'api.example.com', get('api.example.com', '/admin/x')));
  await record('tls odd path', () => tls(api, 'api.example.com', get('api.example.com', '/x/..//admin')));
  await record('tls odd path, allowed', () => tls(api, 'api.example.com', get('api.example.com', '/y//z')));
  await record('tls host forged', () => tls(api, 'api.example.com', get('evil.test')));
  await record('tls host with port', () => tls(api, 'api.example.com', get('api.example.com:443', '/p')));
  await record('tls other sni', () => tls(api, 'other.test', get('other.test')));
  await record('tls passthrough', () => tls(OTHER, 'other.test', get('other.test')));
  await record('tls suffix', () => tls(OTHER, 'a.wild.test', get('a.wild.test')));
  await record('tls without sni', () => tls(OTHER, '', get('other.test')));
  await record('tls listed at another address', () => tls(OTHER, 'api.example.com', get('api.example.com', '/admin')));
  const call = (tool: string) =>
    JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool } });
  const post = (body: string) =>
    get('api.example.com', '/mcp', `Mcp-Protocol-Version: 2025-06-18\r\nContent-Length: ${body.length}\r\n`, 'POST') +
    body;
  await record('mcp allowed', () => tls(api, 'api.example.com', post(call('read'))));
  await record('mcp denied', () => tls(api, 'api.example.com', post(call('rm'))));

  await record('raw to a listed name', () =>
    stage.ask({ kind: 'tcp', address: plain, port: 9000, send: '\u0001hello\n' }),
  );
  await record('denied address', () => http(FORBIDDEN, 80, get('any.test')));
  await record('denied port', () => http(OTHER, 25, get('any.test')));
  await record('loopback of the machine', () => http('240.9.9.9', 7000, get('any.test')));
  await record('metadata', () => http('169.254.169.254', 80, get('any.test')));
  await record('proxy port', () => http('10.244.0.2', 15001, get('any.test')));
  results['stats'] = (await stage.stats(0, 'http.inner.*ext_proc.*streams_started')).trim().split('\n');

  const openRules = [{ ...RULES[2]! }];
  await stage.publish(facts(openRules));
  await record('server first', () => stage.ask({ kind: 'tcp', address: OTHER, port: 9001, send: '' }));
  await record('raw by name', () =>
    stage.ask({ kind: 'tcp', address: virtual['raw.example.com'], port: 9000, send: '\u0001hello\n' }),
  );
  await record('raw captured', () => stage.ask({ kind: 'tcp', address: OTHER, port: 9000, send: '\u0001hello\n' }));
  await record('kept by name', () =>
    stage.ask({ kind: 'open', key: 'name', address: virtual['raw.example.com'], port: 9000, send: '\u0001a' }),
  );
  await record('kept captured', () =>
    stage.ask({ kind: 'open', key: 'captured', address: OTHER, port: 9000, send: '\u0001a' }),
  );
  const rules = TRAFFIC.egress.rules;
  await stage.publish(facts(openRules, { egress: { rules: [...rules.slice(0, 3), ...rules.slice(4)] } }));
  await new Promise((resolve) => setTimeout(resolve, 3000));
  results['after the rule went'] = [
    await stage.ask({ kind: 'poll', key: 'name' }),
    await stage.ask({ kind: 'poll', key: 'captured' }),
  ];
  results['rejections'] = stage.rejections;
  await stage.publish({ ...facts(openRules), policies: [], sandboxes: [sandbox('s1')] });
  await record('no policy at all', () => http(OTHER, 80, get('any.test')));
  await record('no policy, virtual', () => http('240.9.9.9', 80, get('any.test')));
} finally {
  await stage.close();
  upstreams.close();
}
process.stdout.write(`${JSON.stringify(results, null, 1)}\n`);
