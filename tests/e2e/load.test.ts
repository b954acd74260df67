import { Agent, request } from 'node:http';
import type { Duplex } from 'node:stream';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { openPki, type Pki } from '../../identity/pki-directory.ts';
import { sandboxId } from '../../identity/spiffe.ts';
import { layoutOf } from '../../local/layout.ts';
import { readVirtualAddresses, VIRTUAL_ADDRESSES } from '../../world/virtual-addresses.ts';
import { API, credentialRule, sandbox, secret, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane } from './plane.ts';
import { requestThrough, Tunnel } from './tunnel.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** What an HTTP agent calls on a socket and a stream does not have. */
const SOCKET_METHODS = { setKeepAlive() {}, setNoDelay() {}, ref() {}, unref() {} };

/** Many requests at once through the production gateway and its processor (Done when 8). */
const load = suite('load on the egress gateway');
let plane: TestPlane;
let upstream: Upstream;
let pki: Pki;
let address: string;
const tunnels: Record<string, Tunnel> = {};
const tokens: Record<string, string> = {};

const KEYS: Readonly<Record<string, string>> = { alpha: 'alpha-key-1d', beta: 'beta-key-2e' };

const tools = {
  name: 'tools',
  match: [{ domains: [API], paths: [{ type: 'Prefix', value: '/mcp' }] }],
  actions: {
    mcpToolPolicy: { defaultAction: 'deny', rules: [{ method: 'tools/call', toolNames: ['read'], action: 'allow' }] },
  },
};

load.before(async () => {
  upstream = await startUpstream(API);
  const names = Object.keys(KEYS);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'all.yaml': yaml(
        ...names.flatMap((name) => [
          sandbox(name, { command: ['sleep', '1000000'] }),
          trafficPolicy(`${name}-egress`, name, [{ action: 'allow', to: [{ fqdn: API }] }]),
          securityProfile(`${name}-requests`, name, [tools, credentialRule(`${name}-key`, '/')]),
          secret(`${name}-key`, KEYS[name]!),
        ]),
      ),
    },
  });
  await Promise.all(names.map((name) => plane.phase(name, 'Running')));
  const layout = layoutOf(plane.dir);
  pki = await openPki(layout.pki);
  const map = await plane.store.get('ConfigMap', { namespace: 'sandbox-system', name: VIRTUAL_ADDRESSES });
  address = readVirtualAddresses(map)[API]!;
  for (const name of names) {
    const uid = (await plane.store.get('Sandbox', { namespace: 'default', name })).metadata.uid!;
    const pod = (await plane.store.get('Pod', { namespace: 'default', name })).metadata.uid!;
    const subject = { uid, pod, spiffeId: sandboxId({ namespace: 'default', uid }) };
    tokens[name] = (await (await pki.tokens()).issue(subject)).token.reveal();
    const certificate = await pki.issueSidecarCertificate({ namespace: 'default', uid });
    tunnels[name] = new Tunnel({ socketPath: layout.socket('egress'), caPem: pki.caPem, certificate });
  }
});

load.after(async () => {
  for (const tunnel of Object.values(tunnels)) {
    tunnel.close();
  }
  await plane?.stop();
  await upstream?.close();
});

async function open(name: string): Promise<Duplex> {
  const to = `${address}:${upstream.httpPort}`;
  const { status, stream } = await tunnels[name]!.open(to, { 'x-sandbox-token': tokens[name]! });
  assert.is(status, 200);
  stream.setTimeout(0);
  return stream;
}

load('two sandboxes, the same authority, 500 streams at once: each request carries its own credential', async () => {
  const names = Array.from({ length: 500 }, (_, index) => (index % 2 === 0 ? 'alpha' : 'beta'));
  const answers = await Promise.all(
    names.map(async (name) => {
      const stream = await open(name);
      const { status, body } = await requestThrough(stream as never, `${API}:${upstream.httpPort}`, `/for-${name}`);
      return { name, status, body };
    }),
  );
  const wrong = answers.filter(({ name, status, body }) => status !== 200 || !body.includes(`Bearer ${KEYS[name]}`));
  assert.equal(wrong.slice(0, 3), []);
  const crossed = upstream.seen.filter(({ path, headers }) => {
    const owner = /^\/for-(\w+)/.exec(path)?.[1];
    return owner !== undefined && headers['authorization'] !== `Bearer ${KEYS[owner]}`;
  });
  assert.is(crossed.length, 0);
});

load('20,000 decisions of the processor, half of them denials, 64 at once: none failed and none wrong', async () => {
  const [total, lanes] = [20_000, 64];
  let next = 0;
  const wrong: string[] = [];
  const lane = async () => {
    const stream = await open('alpha');
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    // biome-ignore lint/suspicious/noExplicitAny: Node's types know sockets only, it takes any duplex stream
    (agent as any).createConnection = () => Object.assign(stream, SOCKET_METHODS);
    for (let index = next++; index < total; index = next++) {
      const isAllowed = index % 2 === 0;
      const status = await call(agent, isAllowed ? 'read' : 'write');
      if (status !== (isAllowed ? 200 : 403)) {
        wrong.push(`${index}: ${status}`);
      }
    }
    stream.destroy();
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  assert.equal(wrong.slice(0, 5), []);
  assert.is(upstream.seen.filter(({ path }) => path === '/mcp').length, total / 2);
});

function call(agent: Agent, tool: string): Promise<number> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool } });
  return new Promise((resolve) => {
    const sent = request(
      {
        agent,
        method: 'POST',
        path: '/mcp',
        host: API,
        headers: {
          host: `${API}:${upstream.httpPort}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'mcp-protocol-version': '2025-11-25',
        },
      },
      (answer) => {
        answer.resume();
        answer.once('end', () => resolve(answer.statusCode ?? 0));
      },
    );
    sent.once('error', () => resolve(0));
    sent.end(body);
  });
}

load.run();
