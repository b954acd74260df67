/**
 * `npm start`: local mode with the quickstart example in `.local/` of the checkout (or in `SANDGATE_DIR`). Seeds the directory when it is
 * empty, starts the example's upstream, runs `sandgate up` and prints commands to try. Arguments go to `up`.
 */
import { chmod, cp, mkdir, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createLogger } from '../base/logger.ts';
import { Child } from '../cli/child-process.ts';
import { runUp } from '../cli/plane.ts';
import { upOptions } from '../cli/up.ts';
import { installMissingTools } from './tools.ts';

const root = join(import.meta.dirname, '..');
const local = resolve(process.env['SANDGATE_DIR'] ?? join(root, '.local'));
const example = join(root, 'examples', 'quickstart');

await installMissingTools();
await seed();
const upstream = new Child({
  name: 'quickstart upstream',
  argv: [process.execPath, join(example, 'upstream.ts'), join(local, 'upstream')],
  logger: createLogger('start'),
});
await upstream.ready(30_000);
process.stdout.write('upstream: api.quickstart.test is http://127.0.0.1:18080 and https://127.0.0.1:18443\n');
process.on('exit', () => void upstream.stop());
const options = upOptions({ dir: local, ingress: process.env['SANDGATE_INGRESS'] ?? '127.0.0.1:8080' });
await runUp({ ...options, whenReady: printCommands }, createLogger('up'));

async function seed(): Promise<void> {
  await mkdir(local, { recursive: true, mode: 0o700 });
  const present = (await readdir(local)).filter((name) => name.endsWith('.yaml') || name.endsWith('.yml'));
  if (present.length > 0) {
    return;
  }
  await cp(example, local, { recursive: true, filter: (source) => !source.endsWith('.ts') });
  await chmod(join(local, 'secret.yaml'), 0o600);
  process.stdout.write('seed: .local/ now holds a copy of examples/quickstart/; edit it and watch what changes\n');
}

function printCommands({ port }: { readonly port: number }): void {
  const sandgate = 'bin/sandgate';
  const inside = `${sandgate} exec default/demo --`;
  const api = 'api.quickstart.test';
  const call = (tool: string) =>
    `'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${tool}","arguments":{"a":2,"b":3}}}'`;
  const mcp = `${inside} curl -s http://${api}:18080/mcp -H 'mcp-protocol-version: 2025-11-25' -d`;
  const token = `"x-access-token: $(${sandgate} get sandbox demo -o token --show-token)"`;
  const lines = [
    ['a request to the sandbox', `curl -s -H ${token} http://3000-quickstart.localhost:${port}/`],
    ['what it may reach', `${inside} curl -s http://${api}:18080/hello`],
    ['a blocked path, over https', `${inside} curl -s https://${api}:18443/admin`],
    ['a destination that no policy lists', `${inside} curl -s --max-time 5 http://127.1.2.3:18080/ || echo refused`],
    ['a credential that only the upstream sees', `${inside} curl -s https://${api}:18443/v1/items`],
    ['an MCP tool that is allowed', `${mcp} ${call('add')}`],
    ['and one that is not', `${mcp} ${call('remove_everything')}`],
    [
      'pause it; the next request wakes it',
      `${sandgate} pause default/demo && curl -s -H ${token} http://3000-quickstart.localhost:${port}/`,
    ],
    ['why', `${sandgate} explain --sandbox default/demo https://${api}:18443/admin`],
  ];
  process.stdout.write('\nTry, in another terminal of this folder:\n');
  for (const [what, command] of lines) {
    process.stdout.write(`\n  # ${what}\n  ${command}\n`);
  }
  process.stdout.write('\nCtrl-C ends everything.\n\n');
}
