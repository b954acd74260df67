import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Pki } from '../../identity/pki-directory.ts';
import { SECRET } from '../../xds/types.ts';
import { blockRule, ControlStage, pkiWith, securityProfile, until } from './stage.ts';

/** A name is intercepted only when its certificate is there. */
const leaves = suite('interception leaves');
let stage: ControlStage;

leaves.before.each(async () => {
  stage = await ControlStage.create();
  await stage.sandbox('one', { app: 'a' });
});

leaves.after.each(async () => {
  await stage.close();
});

const intercepting = (domain: string) => securityProfile('p', 'a', [blockRule(domain, '/x', ['https'])]);

/** A PKI whose leaves wait, or fail, as long as `hold` says so. */
function slowPki(hold: { promise: Promise<void> | null; failures: number }): Pki {
  return pkiWith(stage.pki, {
    issueLeaf: async (name) => {
      await hold.promise;
      if (hold.failures > 0) {
        hold.failures -= 1;
        throw new Error('no space left');
      }
      return stage.pki.issueLeaf(name);
    },
  });
}

leaves('a change that needs a leaf is published with it, not before', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  await stage.start({ pki: slowPki({ promise, failures: 0 }) });
  const { sequence } = stage.plane.plane.published!;
  await stage.store.create(intercepting('api.test'));
  await new Promise((done) => setTimeout(done, 300));
  assert.equal(stage.plane.plane.published!.compilation.leaves, []);
  assert.is(stage.plane.plane.published!.sequence, sequence);
  resolve();
  await until('the publication', 5000, () => stage.plane.plane.published!.compilation.leaves.length === 1);
  const egress = await stage.egress({ secrets: ['leaf:api.test'] });
  await until('the leaf', 5000, () => egress.names(SECRET).includes('leaf:api.test'));
});

leaves('one that cannot be issued does not stop other policies for long', async () => {
  const hold = { promise: null, failures: Number.POSITIVE_INFINITY };
  await stage.start({ pki: slowPki(hold) });
  await stage.store.create(intercepting('api.test'));
  await stage.store.create(securityProfile('other', 'a', [blockRule('plain.test', '/y')]));
  await until('the publication', 5000, () => stage.plane.plane.published!.world.policies.length === 2);
  assert.ok(stage.log.some((line) => /published without certificates/.test(line)));
  assert.ok(stage.log.some((line) => /leaf api\.test.*no space left/.test(line)));
  hold.failures = 0;
  const egress = await stage.egress({ secrets: ['leaf:api.test'] });
  await until('the leaf, tried again', 5000, () => egress.names(SECRET).includes('leaf:api.test'));
});

leaves('a credential follows its Secret, and is never printed', async () => {
  const key = { namespace: 'default', name: 'key' };
  await stage.store.create({ apiVersion: 'v1', kind: 'Secret', metadata: key, stringData: { apiKey: 'first-value' } });
  const transformation = {
    credentialRef: { secret: { name: 'key' } },
    apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
  };
  const match = [{ domains: ['plain.test'], schemes: ['http'] }];
  await stage.store.create(
    securityProfile('p', 'a', [{ name: 'r', match, actions: { tokenTransformation: transformation } }]),
  );
  await stage.start();
  const [name = ''] = stage.plane.plane.published!.compilation.credentials.keys();
  const egress = await stage.egress({ secrets: [name] });
  await until('the value', 5000, () => /Bearer first-value/.test(egress.secrets.get(name) ?? ''));
  const table = stage.plane.plane.published!.compilation.egress;
  await stage.store.patch('Secret', key, { type: 'merge', body: { stringData: { apiKey: 'second-value' } } });
  await until('the new value', 5000, () => /Bearer second-value/.test(egress.secrets.get(name) ?? ''));
  // The value is resolved late: nothing else has changed.
  assert.is(stage.plane.plane.published!.compilation.egress, table);
  await stage.store.delete('Secret', key);
  await until('its end', 5000, () => !egress.names(SECRET).includes(name));
  assert.not.match(stage.log.join('\n'), /first-value|second-value/);
});

leaves.run();
