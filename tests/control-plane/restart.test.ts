import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { SECRET } from '../../xds/types.ts';
import { type AdsClient, copyOf } from './client.ts';
import { blockRule, ControlStage, metric, pkiWith, securityProfile, trafficPolicy, until } from './stage.ts';

/** A control plane that comes back sends connected Envoys nothing that they have (D30). */
const restart = suite('restart of the control plane');
let stage: ControlStage;

const rule = { ...blockRule('api.test', '/x', ['http', 'https']), name: 'https' };
const credential = {
  name: 'credential',
  match: [{ domains: ['api.test'], schemes: ['http', 'https'], paths: [{ type: 'Prefix', value: '/v1' }] }],
  actions: {
    tokenTransformation: {
      credentialRef: { secret: { name: 'key' } },
      apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
    },
  },
};

restart.before.each(async () => {
  stage = await ControlStage.create();
});

restart.after.each(async () => {
  await stage.close();
});

restart('no resource is sent or removed, whatever the moment: secrets have equal versions too', async () => {
  const uids = await Promise.all(['one', 'two', 'three'].map((name) => stage.sandbox(name, { app: 'a' })));
  await stage.store.create({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'key', namespace: 'default' },
    stringData: { apiKey: 'restart-key-7f' },
  });
  await stage.store.create(trafficPolicy('tp', 'a', [{ action: 'allow', to: [{ fqdn: 'api.test' }] }]));
  await stage.store.create(securityProfile('sp', 'a', [rule, credential]));
  await stage.start();
  const secrets = ['gateway', 'leaf:api.test', ...stage.plane.plane.published!.compilation.credentials.keys()];
  const first = [await stage.egress({ secrets }), ...(await Promise.all(uids.map((uid) => stage.sidecar(uid))))];
  await until('all resources', 5000, () => first.every((client) => client.names(SECRET).length > 0));
  await stage.settled();
  assert.equal(first[0]!.names(SECRET), [...secrets].sort());
  const held = first.map((client) => copyOf(client.held));

  await stage.stop();
  const sent = await metric('sandgate_xds_resources_total');
  await stage.start();
  const again: AdsClient[] = [
    await stage.egress({ secrets, held: held[0]! }),
    ...(await Promise.all(uids.map((uid, index) => stage.sidecar(uid, { held: held[index + 1]! })))),
  ];
  await until('clients', 5000, () => stage.plane.clients().length === again.length);
  await stage.settled();
  assert.equal(
    again.flatMap(({ arrivals }) => arrivals.map(({ typeUrl, name, version }) => [typeUrl, name, version])),
    [],
  );
  assert.is(await metric('sandgate_xds_resources_total'), sent);
});

restart('what changed meanwhile is sent, and nothing else', async () => {
  const uid = await stage.sandbox('one', { app: 'a' });
  await stage.sandbox('two', { app: 'b' });
  await stage.store.create(securityProfile('sp', 'a', [blockRule('api.test', '/x')]));
  await stage.store.create(securityProfile('other', 'b', [blockRule('api.test', '/y')]));
  await stage.start();
  const client = await stage.egress();
  await until('scopes', 5000, () => client.arrivals.length > 0);
  await stage.settled();
  const held = copyOf(client.held);
  await stage.stop();
  await stage.store.patch(
    'SecurityProfile',
    { namespace: 'default', name: 'sp' },
    { type: 'merge', body: { spec: { rules: [blockRule('api.test', '/z')] } } },
  );
  await stage.start();
  const { table } = stage.plane.plane.published!.compilation.subjects.get(uid)!;
  const again = await stage.egress({ held });
  await until('the new table', 5000, () => again.arrivals.some(({ name }) => name === table));
  await stage.settled();
  const names = again.arrivals.filter(({ version }) => version !== null).map(({ name }) => name);
  assert.equal(names.sort(), [`!pin-${table}`, `i:${uid}`, table].sort());
});

restart('a sidecar hears nothing before its token is signed, and then all of it', async () => {
  const uid = await stage.sandbox('one', { app: 'a' });
  await stage.start();
  const first = await stage.sidecar(uid);
  await until('its token', 5000, () => first.names(SECRET).includes('sandbox-token'));
  await stage.settled();
  const held = copyOf(first.held);
  await stage.stop();
  // A signer that takes its time: what the sidecar has must stay.
  const { promise: signed, resolve: sign } = Promise.withResolvers<void>();
  const keys = await stage.pki.tokens();
  let calls = 0;
  const slow = pkiWith(stage.pki, {
    tokens: async () => {
      calls += 1;
      if (calls > 1) {
        await signed; // The first call is for the key set of the listener.
      }
      return keys;
    },
  });
  await stage.start({ pki: slow });
  const again = await stage.sidecar(uid, { held });
  setTimeout(sign, 3000).unref(); // Whatever fails here, the plane can be closed.
  await until('its stream', 5000, () => stage.plane.clients().length === 1);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.equal(again.arrivals, []);
  assert.is(stage.plane.clients()[0]!.settled, 0);
  sign();
  await until('settlement', 5000, () => stage.plane.clients()[0]!.settled > 0);
  assert.equal(again.arrivals, []);
});

restart.run();
