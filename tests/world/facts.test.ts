import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { KubeObject } from '../../api/object.ts';
import { FactsBuilder, type WorldObjects } from '../../world/facts.ts';
import { podUidsOf } from '../../world/sandboxes.ts';
import { secretValue, usableKeys } from '../../world/secrets.ts';
import { pod, profile, sandbox, service, slice } from './objects.ts';

/** What single objects mean as facts. */
const facts = suite('facts');

const EMPTY: WorldObjects = {
  sandboxes: [],
  policies: [],
  pods: [],
  secrets: [],
  services: [],
  endpointSlices: [],
};
const SETTINGS = { hosts: {}, rootNamespace: 'root' };
const KEPT = { lastGood: new Map(), virtualAddresses: {} };

const build = (objects: Partial<WorldObjects>, builder = new FactsBuilder()) =>
  builder.build({ ...EMPTY, ...objects }, SETTINGS, KEPT);

facts('a sandbox is selected by the labels of its template, never by its own', () => {
  const [found] = build({ sandboxes: [sandbox('one', { app: 'a' })] }).sandboxes;
  assert.equal(found!.labels, {
    app: 'a',
    'agents.kruise.io/created-by': 'sandbox',
    'agents.kruise.io/sandbox-name': 'one',
    'agents.kruise.io/sandbox-uid': 'uid-one',
  });
});

facts('its template cannot forge the labels that the controller adds', () => {
  const forged = sandbox('one', { 'agents.kruise.io/sandbox-uid': 'uid-two' });
  assert.is(build({ sandboxes: [forged] }).sandboxes[0]!.labels['agents.kruise.io/sandbox-uid'], 'uid-one');
});

facts('a name that is too long for a label is none, as on its Pod', () => {
  const one = sandbox('one');
  const long = { ...one, metadata: { ...one.metadata, name: 'n'.repeat(64) } };
  const [found] = build({ sandboxes: [long] }).sandboxes;
  assert.equal(Object.keys(found!.labels), ['agents.kruise.io/created-by', 'agents.kruise.io/sandbox-uid']);
});

facts('its addresses are those of its own Pod, canonical, each once', () => {
  const own = pod('one', ['10.0.0.1', '2001:DB8::1', '10.0.0.1']);
  assert.equal(build({ sandboxes: [sandbox('one')], pods: [own] }).sandboxes[0]!.addresses, [
    '10.0.0.1',
    '2001:db8::1',
  ]);
  const foreign = pod('one', ['10.0.0.1'], 'uid-two');
  assert.equal(build({ sandboxes: [sandbox('one')], pods: [foreign] }).sandboxes[0]!.addresses, []);
});

facts('a sandbox without a uid is none; a Pod belongs to its owner of kind Sandbox', () => {
  const { uid: _uid, ...metadata } = sandbox('one').metadata;
  assert.equal(build({ sandboxes: [{ ...sandbox('one'), metadata }] }).sandboxes, []);
  const other = pod('two', []);
  const job = { ...other, metadata: { ...other.metadata, ownerReferences: [{ ...owner(other), kind: 'Job' }] } };
  assert.equal([...podUidsOf([pod('one', []), job])], [['uid-one', 'pod-one']]);
});

function owner(object: KubeObject) {
  return object.metadata.ownerReferences![0]!;
}

facts('a service has its cluster address and all endpoints, ready or not', () => {
  const services = [service('web', { clusterIP: '10.1.0.1', selector: { app: 'one' } })];
  const pods = [pod('one', ['10.0.0.9'])];
  const slices = [slice('web-1', 'web', ['10.0.0.2', 'no address']), slice('other', 'db', ['10.0.0.3'])];
  const addresses = (more: Partial<WorldObjects>) => build({ services, pods, ...more }).services[0]!.addresses;
  assert.equal(addresses({ endpointSlices: slices }), ['10.0.0.2', '10.1.0.1']);
  assert.equal(addresses({}), ['10.0.0.9', '10.1.0.1']);
  assert.equal(build({ services: [service('none', { clusterIP: 'None' })], pods }).services[0]!.addresses, []);
});

facts('slices and Pods of another namespace do not count', () => {
  const elsewhere = (object: KubeObject) => ({ ...object, metadata: { ...object.metadata, namespace: 'other' } });
  const services = [service('web', { selector: { app: 'one' } })];
  const pods = [elsewhere(pod('one', ['10.0.0.9']))];
  const endpointSlices = [elsewhere(slice('web-1', 'web', ['10.0.0.2']))];
  assert.equal(build({ services, pods, endpointSlices }).services[0]!.addresses, []);
});

const secret = (more: object): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 's', namespace: 'default' },
  ...more,
});

facts('a secret: decoded, trimmed, usable or not', () => {
  const encode = (text: string) => Buffer.from(text).toString('base64');
  const object = secret({
    data: {
      good: encode(' value\n'),
      both: encode('old'),
      empty: encode('  '),
      line: encode('a\nb'),
      nul: encode('a\u0000b'),
      tab: encode('a\tb'),
      binary: Buffer.from([0xff, 0xfe]).toString('base64'),
      number: 7,
    },
    stringData: { both: 'new', plain: 'text' },
  });
  const value = (key: string) => secretValue(object, key)?.reveal() ?? null;
  assert.is(value('good'), 'value');
  assert.is(value('both'), 'new');
  assert.is(value('plain'), 'text');
  assert.is(value('tab'), 'a\tb');
  for (const key of ['empty', 'line', 'nul', 'binary', 'number', 'missing', 'constructor', '__proto__']) {
    assert.is(value(key), null, key);
  }
  assert.equal(usableKeys(object), ['both', 'good', 'plain', 'tab']);
  assert.equal(build({ secrets: [object] }).secretKeys, { 'default/s': ['both', 'good', 'plain', 'tab'] });
});

facts('no value of a secret is in the facts', () => {
  const object = secret({ stringData: { apiKey: 'never-to-be-seen' } });
  assert.not.match(JSON.stringify(build({ secrets: [object], policies: [profile('p', '/a')] })), /never-to-be-seen/);
});

facts('an unchanged object keeps its entry, an unchanged kind its list', () => {
  const builder = new FactsBuilder();
  const objects: WorldObjects = {
    sandboxes: [sandbox('one'), sandbox('two')],
    policies: [profile('p', '/a'), profile('q', '/b')],
    pods: [pod('one', ['10.0.0.1']), pod('two', ['10.0.0.2'])],
    secrets: [secret({ stringData: { a: 'x' } })],
    services: [service('web', { selector: { app: 'one' } }), service('db', { selector: { app: 'two' } })],
    endpointSlices: [],
  };
  const before = build(objects, builder);
  assert.equal(
    Object.entries(build(objects, builder)).filter(([part, value]) => value !== before[part as keyof typeof before]),
    [],
  );
  const after = build({ ...objects, pods: [objects.pods[0]!, pod('two', ['10.0.0.3'])] }, builder);
  assert.is(after.policies, before.policies);
  assert.is(after.secretKeys, before.secretKeys);
  assert.is(after.sandboxes[0], before.sandboxes[0]);
  assert.is.not(after.sandboxes[1], before.sandboxes[1]);
  assert.is(after.pods[0], before.pods[0]);
  assert.equal(after.services.find(({ name }) => name === 'db')!.addresses, ['10.0.0.3']);
  assert.is(
    after.services.find(({ name }) => name === 'web'),
    before.services.find(({ name }) => name === 'web'),
  );
  // Objects that only say the same again: not even a list is another one.
  const first = build(objects, builder);
  const copies = Object.entries(objects).map(([kind, list]) => [
    kind,
    (list as readonly KubeObject[]).map((object) => structuredClone(object)),
  ]);
  const again = build(Object.fromEntries(copies), builder);
  const differing = (Object.keys(again) as (keyof typeof again)[]).filter((part) => again[part] !== first[part]);
  assert.equal(differing, []);
});

facts('whatever an object looks like, the others have their facts', () => {
  const odd = [null, 7, 'text', [], {}, { a: { b: null } }];
  for (const [index, value] of odd.entries()) {
    const strange = { spec: value, status: value, data: value, stringData: value, endpoints: value };
    const metadata = { name: 'x', namespace: 'default', uid: `uid-x${index}`, ownerReferences: value };
    const made = (kind: string, version = 'v1') => ({ apiVersion: version, kind, metadata, ...strange }) as KubeObject;
    const { sandboxes, policies } = build({
      sandboxes: [made('Sandbox'), sandbox('one')],
      policies: [made('SecurityProfile'), made('TrafficPolicy'), made('Nonsense'), profile('p', '/a')],
      pods: [made('Pod')],
      secrets: [made('Secret')],
      services: [made('Service')],
      endpointSlices: [made('EndpointSlice')],
    });
    assert.is(sandboxes.length, 2);
    assert.equal(
      policies.filter(({ inForce }) => inForce !== null).map(({ ref }) => ref.name),
      ['p'],
    );
  }
});

facts.run();
