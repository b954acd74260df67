import { writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Difference } from '../../cli/difference.ts';
import type { CompiledPlane } from '../../control-plane/routes.ts';
import { API, sandbox, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane } from './plane.ts';

/** `diff` against a running plane says what `apply` then does. */
const diff = suite('diff and apply');
let plane: TestPlane;

diff.before(async () => {
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings().replace('trust: [ca.pem]\n', ''),
      'all.yaml': yaml(
        sandbox('demo'),
        trafficPolicy('egress', 'demo', [{ action: 'allow', to: [{ fqdn: API }], ports: [{ port: 443 }] }]),
      ),
    },
  });
});
diff.after(() => plane.stop());

const SECRET = 'envoy.extensions.transport_sockets.tls.v3.Secret';

async function compiled(): Promise<CompiledPlane> {
  return JSON.parse((await plane.sandgate('compile', '-o', 'json')).stdout) as CompiledPlane;
}

async function policySet(): Promise<string> {
  const { stdout } = await plane.sandgate('explain', '--sandbox', 'demo', '-o', 'json');
  return (JSON.parse(stdout) as { policySet: string }).policySet;
}

const names = (list: readonly { readonly type: string; readonly name: string }[]) =>
  list.map(({ type, name }) => `${type} ${name}`).sort();

diff('the policy set and the resources that diff names are those that the plane then has', async () => {
  const file = `${plane.dir}/next.txt`;
  await writeFile(
    file,
    yaml(
      trafficPolicy('egress', 'demo', [
        { action: 'allow', to: [{ fqdn: API }, { fqdn: 'aaa.example.test' }], ports: [{ port: 443 }] },
      ]),
      securityProfile('stop', 'demo', [
        { name: 'all', match: [{ domains: [API], paths: [{ value: '/admin' }] }], actions: { block: {} } },
      ]),
    ),
  );
  const before = await compiled();
  const said = await plane.sandgate('diff', '-f', file, '-o', 'json');
  assert.is(said.status, 0, said.stderr);
  const { decisions, resources } = JSON.parse(said.stdout) as Difference;
  assert.equal(names((await compiled()).egress), names(before.egress), 'nothing has changed yet');
  assert.equal(
    decisions.map((decision) => decision.policySet),
    [{ before: await policySet(), after: decisions[0]!.policySet.after }],
  );
  const applied = await plane.sandgate('apply', '-f', file, '--wait');
  assert.is(applied.status, 0, applied.stderr);
  assert.is(await policySet(), decisions[0]!.policySet.after);
  const after = await compiled();
  const [old, now] = [names(before.egress), names(after.egress)];
  const ofPlane = (list: Difference['resources']['egress']['added']) =>
    names(list.filter(({ type }) => type !== SECRET));
  assert.equal(
    ofPlane(resources.egress.added),
    now.filter((name) => !old.includes(name)),
  );
  assert.equal(
    ofPlane(resources.egress.removed),
    old.filter((name) => !now.includes(name)),
  );
  assert.equal(Object.keys(resources), ['egress', 'ingress', 'sidecars']);
  const [sidecar] = Object.values(after.sidecars);
  const outbound = sidecar!.find(({ name }) => name === 'dns');
  const predicted = resources.sidecars[0]!.changed.find(({ name }) => name === 'dns');
  assert.equal(predicted!.after, outbound!.resource, 'also the virtual address of the new name');
  const again = JSON.parse((await plane.sandgate('diff', '-f', file, '-o', 'json')).stdout) as Difference;
  assert.equal([again.decisions, again.resources.egress, again.resources.sidecars], [[], NOTHING, []]);
});

const NOTHING = { added: [], changed: [], removed: [] };

diff('logs shows what a container wrote, and its decisions --tail', async () => {
  await plane.phase('demo', 'Running');
  await plane.sandgate('exec', 'demo', '--', 'sh', '-c', 'echo hello >>/proc/1/fd/1');
  const { status, stdout, stderr } = await plane.sandgate('logs', 'demo', '-c', 'main', '--tail', '1');
  assert.is(status, 0, stderr);
  assert.is(stdout, 'hello\n');
});

diff.run();
