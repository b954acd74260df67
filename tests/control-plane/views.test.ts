import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { compareText } from '../../base/canonical.ts';
import { overlay, ResourceTable } from '../../control-plane/resource-table.ts';
import { resourceJson } from '../../policy-compiler/output.ts';
import { CLUSTER, LISTENER, SCOPE, SECRET } from '../../xds/types.ts';
import type { EncodedResource } from '../../xds/view.ts';
import { blockRule, ControlStage, securityProfile, trafficPolicy, until } from './stage.ts';

/** Who sees what (D6). */
const views = suite('views');

const made = (typeUrl: string, name: string, version = name): EncodedResource => ({
  ...{ typeUrl, name, version },
  bytes: Buffer.from(version),
  ...{ sensitive: false, origins: [], requires: [] },
});

views('a table gives names sorted, of one type, and the later of two', () => {
  const table = ResourceTable.of([made('t', 'b'), made('t', 'a'), made('u', 'x'), made('t', 'b', 'later')]);
  assert.equal([...table.names('t')], ['a', 'b']);
  assert.equal([...table.names('u')], ['x']);
  assert.equal([...table.names('v')], []);
  assert.is(table.get('t', 'b')?.version, 'later');
  assert.is(table.get('u', 'a'), undefined);
});

views('a table tells what differs from another, and is the same object when nothing does', () => {
  const [a, b, c, x] = [made('t', 'a'), made('t', 'b'), made('t', 'c'), made('u', 'x')];
  const table = ResourceTable.of([a, b, c, x]);
  assert.is(ResourceTable.of([a, b, c, x], table), table);
  const later = ResourceTable.of([made('t', '0'), a, made('t', 'b', 'new'), x], table);
  assert.equal(later.changedSince(table, 't'), ['0', 'b', 'c']);
  assert.equal(table.changedSince(later, 't'), ['0', 'b', 'c']);
  assert.equal(later.changedSince(table, 'u'), []);
  assert.equal(later.changedSince(ResourceTable.empty, 'u'), ['x']);
  assert.equal(ResourceTable.empty.changedSince(later, 't'), ['0', 'a', 'b']);
  assert.is(later.changedSince(overlay(table, table), 't'), null);
  assert.is.not(ResourceTable.of([a, b, c], table), table);
});

views('an overlay adds what is its own, and that wins', () => {
  const shared = ResourceTable.of([made('t', 'a'), made('t', 'c')]);
  const view = overlay(ResourceTable.of([made('t', 'b'), made('t', 'c', 'own')]), shared);
  assert.equal([...view.names('t')], ['a', 'b', 'c']);
  assert.is(view.get('t', 'c')?.version, 'own');
  assert.is(view.get('t', 'a')?.version, 'a');
  assert.equal([...view.names('u')], []);
});

views('a resource is encoded once, and equal content has an equal version', () => {
  const json = (name: string) =>
    resourceJson('envoy.config.cluster.v3.Cluster', name, { name, connectTimeout: '1s' }, [
      { kind: 'Sandbox', namespace: 'a', name: 'b' },
    ]);
  const one = json('one');
  assert.is(one.bytes, one.bytes);
  const again = json('one');
  assert.is.not(again.bytes, one.bytes);
  assert.is(again.version, one.version);
  assert.is.not(json('two').version, again.version);
  assert.equal(again.origins, [{ kind: 'Sandbox', namespace: 'a', name: 'b' }]);
});

let stage: ControlStage;
const uids: Record<string, string> = {};

const everything = (client: { names(typeUrl: string): string[] }) =>
  [CLUSTER, LISTENER, SCOPE, SECRET].flatMap((type) => client.names(type)).sort(compareText);

async function startStage(): Promise<void> {
  stage = await ControlStage.create();
  for (const name of ['one', 'two']) {
    uids[name] = await stage.sandbox(name, { app: name });
    await stage.store.create(trafficPolicy(name, name, [{ action: 'allow', to: [{ fqdn: `${name}.test` }] }]));
  }
  await stage.store.create(securityProfile('requests', 'one', [blockRule('one.test', '/x')]));
  await stage.start();
}

views.after(async () => {
  await stage?.close();
});

views('a sidecar sees its own set and its own token, and nothing of another sandbox', async () => {
  await startStage();
  const [one, two] = [await stage.sidecar(uids['one']!), await stage.sidecar(uids['two']!)];
  await until('both', 5000, () => one.names(SECRET).length === 1 && two.names(SECRET).length === 1);
  await stage.settled();
  assert.equal(one.names(SECRET), ['sandbox-token']);
  assert.is.not(one.secrets.get('sandbox-token'), two.secrets.get('sandbox-token'));
  assert.equal(one.names(SCOPE), []);
  assert.ok(one.names(LISTENER).includes('outbound'));
  const text = (client: typeof one) => JSON.stringify([...client.held.get(LISTENER)!]);
  assert.is.not(text(one), text(two));
  const payload = Buffer.from(one.secrets.get('sandbox-token')!.split('.')[1]!, 'base64url').toString();
  assert.match(payload, uids['one']!);
  assert.not.match(payload, uids['two']!);
});

views('asking for the names of another does not help', async () => {
  const curious = await stage.sidecar(uids['one']!, {
    secrets: ['gateway', 'leaf:one.test', 'sandbox-token', `i:${uids['two']}`],
  });
  await until('its token', 5000, () => curious.names(SECRET).length > 0);
  await stage.settled();
  assert.equal(curious.names(SECRET), ['sandbox-token']);
});

views('an unknown uid, and a known one in another namespace, get nothing', async () => {
  const stranger = await stage.sidecar('0b5a6c9e-0000-4000-8000-000000000000');
  const elsewhere = await stage.sidecar(uids['one']!, {}, 'other');
  await until('their streams', 5000, () => stage.plane.clients().length >= 4);
  await stage.settled();
  assert.equal(everything(stranger), []);
  assert.equal(everything(elsewhere), []);
});

views('the egress gateway sees every scope and the gateway certificate, no token', async () => {
  const egress = await stage.egress({ secrets: ['gateway', 'sandbox-token'] });
  await until('its resources', 5000, () => egress.names(SCOPE).length > 0);
  await stage.settled();
  const scopes = egress.names(SCOPE);
  for (const uid of Object.values(uids)) {
    assert.ok(scopes.includes(uid) && scopes.includes(`i:${uid}`));
  }
  assert.equal(egress.names(SECRET), ['gateway']);
});

views('a role has the view of that role only; one without a view is refused', async () => {
  const ingress = await stage.role('ingress');
  await stage.settled();
  assert.equal(everything(ingress), []);
  const control = await stage.role('control-plane');
  await until('the refusal', 5000, () => control.ended !== null);
  assert.match(control.ended!, /PERMISSION_DENIED/);
});

views('a sandbox that is gone, or whose Pod is gone, loses everything; a new Pod gets a new token', async () => {
  const one = await stage.sidecar(uids['one']!);
  await until('its token', 5000, () => one.names(SECRET).length === 1);
  const before = one.secrets.get('sandbox-token');
  await stage.store.delete('Pod', { namespace: 'default', name: 'one' });
  await until('nothing', 5000, () => everything(one).length === 0);
  await stage.pod('one', uids['one']!);
  await until('everything', 5000, () => one.names(LISTENER).includes('outbound'));
  await until('another token', 5000, () => one.secrets.get('sandbox-token') !== before);
  await stage.store.delete('Sandbox', { namespace: 'default', name: 'one' });
  await until('nothing', 5000, () => everything(one).length === 0);
});

views.run();
