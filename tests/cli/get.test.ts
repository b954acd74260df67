import { rm } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { sandbox, secret, securityProfile, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { directory, sandgate } from './support.ts';

/** What `get` and `delete` take as names, in a directory in which nothing runs. */
const get = suite('get');
let dir: string;

const inNamespace = (namespace: string, object: object) => ({
  ...object,
  metadata: { ...(object as { metadata: object }).metadata, namespace },
});

get.before.each(async () => {
  dir = await directory({
    'all.yaml': yaml(
      sandbox('demo'),
      trafficPolicy('egress', 'demo', []),
      securityProfile('requests', 'demo', []),
      secret('key', 'needle'),
      inNamespace('agents', sandbox('far')),
      inNamespace('agents', secret('key', 'needle')),
    ),
  });
});
get.after.each(() => rm(dir, { recursive: true, force: true }));

const on = (...args: readonly string[]) => sandgate([...args, '--dir', dir]);

/** The names that `get` prints. */
async function names(...args: readonly string[]): Promise<readonly string[]> {
  const { status, stdout, stderr } = await on('get', ...args, '-o', 'name');
  assert.is(status, 0, stderr);
  return stdout.trimEnd().split('\n');
}

get('a list is of namespace default, -n of another, -A of all', async () => {
  assert.equal(await names('sandboxes'), ['sandbox/demo']);
  assert.equal(await names('sbx', '-n', 'agents'), ['sandbox/far']);
  assert.equal(await names('Sandbox', '-A'), ['sandbox/far', 'sandbox/demo']);
});

get('an empty list says where was looked, apart from the output', async () => {
  const { status, stdout, stderr } = await on('get', 'tp', '-n', 'agents');
  assert.is(status, 0);
  assert.is(stdout, '');
  assert.match(stderr, /no trafficpolicies in namespace agents; -A/);
});

get('several kinds, several names, and all', async () => {
  assert.equal(await names('tp,sp'), ['trafficpolicy/egress', 'securityprofile/requests']);
  assert.equal(await names('all'), ['sandbox/demo', 'trafficpolicy/egress', 'securityprofile/requests']);
  assert.equal(await names('tp/egress', 'sandbox/agents/far'), ['trafficpolicy/egress', 'sandbox/far']);
  assert.equal(await names('sandbox', 'demo', 'agents/far'), ['sandbox/demo', 'sandbox/far']);
  const { stdout } = await on('get', 'tp,sp');
  assert.match(
    stdout,
    /NAMESPACE +NAME +PRIORITY.*\n.*trafficpolicy\/egress.*\n\nNAMESPACE.*\n.*securityprofile\/requests/,
  );
});

get('what is there is printed although something else is not, with status 1', async () => {
  const { status, stdout, stderr } = await on('get', 'sandbox', 'demo', 'nobody', '-o', 'json');
  assert.is(status, 1);
  const { kind, items } = JSON.parse(stdout) as { kind: string; items: { metadata: { name: string } }[] };
  assert.equal([kind, ...items.map(({ metadata }) => metadata.name)], ['List', 'demo']);
  assert.match(stderr, /^error: Sandbox default\/nobody does not exist\n$/);
});

get('what get prints can be applied again', async () => {
  const { stdout } = await on('get', 'tp,sp', '-o', 'json');
  const file = await directory({ 'list.yaml': stdout });
  const ran = await on('apply', '--dry-run', '-f', file);
  assert.is(ran.stdout.match(/unchanged/g)?.length, 2, ran.stderr);
  await rm(file, { recursive: true, force: true });
});

get('names that cannot be meant are wrong usage', async () => {
  for (const args of [
    ['get', 'tp,sp', 'egress'],
    ['get', 'planet/x'],
    ['get', 'sandbox/'],
    ['get', 'gtp/ns/name'],
    ['get', 'sandbox', 'a/b/c'],
    ['delete', 'sandbox'],
    ['delete'],
    ['delete', 'all'],
    ['delete', 'sandbox', 'demo', '-f', 'x.yaml'],
  ]) {
    const { status, stderr } = await on(...args);
    assert.is(status, 2, `${args.join(' ')}: ${stderr}`);
  }
});

get('delete takes the same names', async () => {
  const { status, stdout } = await on('delete', 'tp/egress', 'secret/agents/key', 'sp/nobody');
  assert.is(status, 1);
  assert.is(stdout, 'TrafficPolicy default/egress deleted\nSecret agents/key deleted\n');
  assert.equal(await names('secret', '-A'), ['secret/key']);
});

get.run();
