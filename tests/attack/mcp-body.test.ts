import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { TestPlane } from '../e2e/plane.ts';
import { startUpstream, type Upstream } from '../e2e/upstream.ts';

/** Tool calls that a server would read differently from the gateway. */
const body = suite('MCP bodies that can be read in two ways');
let plane: TestPlane;
let upstream: Upstream;

body.before(async () => {
  upstream = await startUpstream(API);
  const tools = { defaultAction: 'deny', rules: [{ method: 'tools/call', toolNames: ['read'], action: 'allow' }] };
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'all.yaml': yaml(
        sandbox('caller'),
        trafficPolicy('caller-egress', 'caller', [{ action: 'allow', to: [{ fqdn: API }] }]),
        securityProfile('caller-tools', 'caller', [
          { name: 'tools', match: [{ domains: [API] }], actions: { mcpToolPolicy: tools } },
        ]),
      ),
    },
  });
  await plane.phase('caller', 'Running');
});

body.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

async function post(type: string, text: string): Promise<string> {
  const headers = ['-H', 'MCP-Protocol-Version: 2025-11-25', '-H', `Content-Type: ${type}`];
  const url = `http://${API}:${upstream.httpPort}/mcp`;
  const answer = ['curl', '-s', '--max-time', '8', '-o', '/dev/null', '-w', '%{http_code}'];
  return (await plane.exec('caller', ...answer, ...headers, '--data-binary', text, url)).stdout;
}

/** The text `","name":"drop` in UTF-7, where letters alone say what ends the string. */
const HIDDEN = `+${Buffer.from('","name":"drop', 'utf16le').swap16().toString('base64').replaceAll('=', '')}-`;
const CALL = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","x":"${HIDDEN}"}}`;

body('an allowed call passes', async () => {
  assert.is(await post('application/json; charset=utf-8', CALL), '200');
});

for (const charset of ['utf-7', 'UTF-7-IMAP', 'shift_jis', 'iso-8859-1', 'utf-16le']) {
  body(`nothing arrives with the charset ${charset}`, async () => {
    const before = upstream.seen.length;
    assert.is(await post(`application/json; charset=${charset}`, CALL), '403');
    assert.is(upstream.seen.length, before);
  });
}

body.run();
