/** Compiled policies in real Envoys: sidecar, tunnel, gateway and external processor, in namespaces of their own. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { findEnvoy } from '../../envoy/find.ts';

const test = suite('compiled policies in Envoy');

let results: Readonly<Record<string, unknown>> = {};

const PUBLIC = '198.51.100.10';
const OTHER = '198.51.100.20';
const CLOSED = /^closed/;

const denied = (reason: string, rule = '') => {
  const policy = rule === '' ? '' : 'SecurityProfile team-a/sp';
  return `403 ${JSON.stringify({ error: 'denied', policy, rule, reason, retryable: false })}`;
};

test.before(async () => {
  const output = execFileSync(
    'unshare',
    ['--user', '--map-root-user', '--net', process.execPath, join(import.meta.dirname, 'stage', 'egress.ts')],
    {
      encoding: 'utf8',
      timeout: 50_000,
      env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin`, SANDGATE_ENVOY: await findEnvoy() },
    },
  );
  results = JSON.parse(output) as typeof results;
});

/** What came back, and at which upstreams a connection arrived meanwhile (kept connections make no new one). */
function of(name: string): { answer: unknown; arrived: readonly string[] } {
  const [answer, arrived] = results[name] as [unknown, readonly string[]];
  return { answer, arrived };
}

function upstream(name: string): { at: string; url: string; headers: Record<string, string> } {
  const { answer } = of(name);
  const echo = Array.isArray(answer) ? answer[1] : answer;
  assert.type(echo, 'object', `${name}: ${JSON.stringify(answer)}`);
  return echo as ReturnType<typeof upstream>;
}

/** The answer is this text, and nothing arrived anywhere but at the name server. */
function refused(name: string, answer: unknown): void {
  const got = of(name);
  assert.equal(got.answer, answer, name);
  assert.equal(
    got.arrived.filter((address) => address !== '127.0.0.1:5300'),
    [],
    name,
  );
}

function closed(name: string): void {
  const { answer, arrived } = of(name);
  assert.match(String(Array.isArray(answer) ? answer[0] : answer), CLOSED, name);
  assert.equal(arrived, [], name);
}

test('every resource is accepted', () => {
  assert.equal(results['rejections'], []);
});

test('listed names get virtual addresses whatever their case, others real ones', () => {
  assert.equal(of('dns listed').answer, '240.0.1.0');
  assert.equal(of('dns listed v6').answer, 'rcode 3');
  assert.equal(of('dns hosts').answer, '240.0.1.5');
  assert.equal(of('dns other').answer, OTHER);
});

test('a name is dialled by name, at the port of the connection, with Host and path as sent', () => {
  assert.equal(upstream('http by name'), { at: `${PUBLIC}:80`, url: '/a?b=c', headers: { host: 'plain.example.com' } });
  assert.is(upstream('http by name, upper case, dot, port').at, `${PUBLIC}:80`);
  assert.is(upstream('http by name, other port').at, `${PUBLIC}:8080`);
  assert.equal(upstream('hosts'), { at: '127.0.0.1:7000', url: '/', headers: { host: 'db.internal:5432' } });
});

test('Host must be the name and port of the connection', () => {
  refused('port of Host differs', denied('host-mismatch'));
  refused('Host of another name', denied('host-mismatch'));
  refused('Host that is no name', denied('host-mismatch'));
  refused('Host twice', denied('host-mismatch'));
});

test('a name is not dialled at private addresses or in rejected ranges', () => {
  refused('private', denied('private-address'));
  refused('resolves into a rejected range', denied('private-address'));
});

test('a captured address is dialled as it is, whatever the Host', () => {
  assert.is(upstream('captured').at, `${OTHER}:80`);
  assert.is(upstream('captured with a listed Host').at, `${OTHER}:80`);
});

test('blocks answer in the words of the policy or as JSON', () => {
  const body = {
    error: 'blocked',
    policy: 'SecurityProfile team-a/sp',
    rule: 'no-delete',
    reason: 'block',
    retryable: false,
  };
  refused('block without body', `403 ${JSON.stringify(body)}`);
  refused('tls block', ['intercepted', '451 no entry']);
});

test('headers are set and removed literally; only the last value of a repeated header counts', () => {
  const { headers } = upstream('headers');
  assert.is(headers['x-set'], '100% {{x}}');
  assert.is(headers['x-gone'], undefined);
  assert.is(upstream('headers, last value').headers['x-set'], undefined);
});

test('headers of our own are neither believed nor passed on', () => {
  assert.equal(upstream('own headers').headers, { host: 'any.test' });
});

test('credentials replace what was sent, and go to the name only', () => {
  assert.is(upstream('plain token').headers['authorization'], 'Bearer s3cret');
  assert.is(upstream('tls token').headers['authorization'], 'Bearer s3cret');
  refused('plain token elsewhere', denied('credential-destination', 'plain-token'));
  refused('token not for http', denied('credential-destination', 'token'));
  refused('missing secret', '403 tokentransform: credential unavailable');
});

test('TLS to an exactly listed name is intercepted and its Host checked', () => {
  assert.is((of('tls token').answer as unknown[])[0], 'intercepted');
  assert.is(upstream('tls token').at, `${PUBLIC}:443`);
  assert.is(upstream('tls host with port').at, `${PUBLIC}:443`);
  refused('tls host forged', ['intercepted', denied('host-mismatch')]);
  refused('tls listed at another address', ['intercepted', '451 no entry']);
});

test('TLS that is not read passes only where no rule could stop it', () => {
  assert.is((of('tls passthrough').answer as unknown[])[0], 'origin');
  assert.is(upstream('tls passthrough').at, `${OTHER}:443`);
  closed('tls other sni');
  closed('tls suffix');
  closed('tls without sni');
});

test('the external processor decides odd paths and MCP calls, and credentials still arrive', () => {
  refused('tls odd path', ['intercepted', '451 no entry']);
  assert.is(upstream('tls odd path, allowed').url, '/y//z');
  assert.is(upstream('tls odd path, allowed').headers['authorization'], 'Bearer s3cret');
  assert.is(upstream('mcp allowed').headers['authorization'], 'Bearer s3cret');
  refused('mcp denied', ['intercepted', denied('mcp', 'mcp')]);
  assert.equal(results['stats'], [
    'http.inner-http.ext_proc.streams_started: 1',
    'http.inner-https.ext_proc.streams_started: 4',
  ]);
});

test('bytes that are no HTTP pass where no rule could stop them', () => {
  closed('raw to a listed name');
  assert.equal(of('raw by name').answer, `${PUBLIC}:9000 \u0001hello\n`);
  assert.equal(of('raw captured').answer, `${OTHER}:9000 \u0001hello\n`);
  assert.equal(of('server first').answer, '220 ready');
});

test('what L4 denies reaches nobody', () => {
  for (const name of ['denied address', 'denied port', 'loopback of the machine', 'metadata', 'proxy port']) {
    closed(name);
  }
});

test('a rule that goes ends its own connections and no others', () => {
  assert.equal(of('kept by name').answer, `${PUBLIC}:9000 \u0001a`);
  assert.equal(of('kept captured').answer, `${OTHER}:9000 \u0001a`);
  assert.equal(results['after the rule went'], ['open', 'closed']);
});

test('without a policy everything real passes, and nothing virtual', () => {
  assert.is(upstream('no policy at all').at, `${OTHER}:80`);
  closed('no policy, virtual');
});

test.run();
