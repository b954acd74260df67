import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyRecord } from '../../api/facts.ts';
import type { KubeObject } from '../../api/object.ts';
import { type LastGood, lastGoodRevision, readLastGood } from '../../world/last-good.ts';
import { PolicyForms } from '../../world/records.ts';
import { BROKEN, profile, refusedStatus } from './objects.ts';

/** Which form of a policy is in force (D2). */
const records = suite('policy records');

const NONE: ReadonlyMap<string, LastGood> = new Map();

function keptOf(...objects: readonly KubeObject[]): ReadonlyMap<string, LastGood> {
  return new Map(objects.map((object) => [object.metadata.uid!, readLastGood(lastGoodRevision(object, 'root'))!]));
}

/** The path that the form in force blocks, or null. */
function inForce(record: PolicyRecord | undefined): string | null {
  const spec = record?.inForce?.spec as { rules: { match: { paths: { value: string }[] }[] }[] } | undefined;
  return spec?.rules[0]?.match[0]?.paths[0]?.value ?? null;
}

function one(forms: PolicyForms, object: KubeObject, kept = NONE): PolicyRecord {
  return forms.choose([object], kept).records[0]!;
}

records('a valid form is in force, with its defaults', () => {
  const record = one(new PolicyForms(), profile('p', '/a'));
  assert.is(inForce(record), '/a');
  assert.equal(record.errors, []);
  assert.is(record.inForce?.spec?.priority, 1000);
});

records('an invalid form without a good one before it: nothing is in force, and its spec is told', () => {
  const object = profile('p', BROKEN);
  const { records: all, invalidSpecs } = new PolicyForms().choose([object], NONE);
  assert.is(all[0]!.inForce, null);
  assert.is(all[0]!.errors[0]!.path, 'spec.rules[0].match[0].paths[0].value');
  assert.equal(invalidSpecs, { 'SecurityProfile default/p': object.spec });
});

records('an invalid form keeps the remembered one in force', () => {
  const forms = new PolicyForms();
  one(forms, profile('p', '/a'));
  const record = one(forms, profile('p', BROKEN, { generation: 2 }));
  assert.is(inForce(record), '/a');
  assert.is(record.generation, 2);
  assert.ok(record.errors.length > 0);
  assert.equal(forms.choose([profile('p', BROKEN, { generation: 3 })], NONE).invalidSpecs, {});
});

records('after a restart the persisted form is in force', () => {
  const kept = keptOf(profile('p', '/a'));
  assert.is(inForce(one(new PolicyForms(), profile('p', BROKEN, { generation: 2 }), kept)), '/a');
});

records('of a persisted and a remembered form the newer one counts', () => {
  const forms = new PolicyForms();
  one(forms, profile('p', '/new', { generation: 2 }));
  assert.is(inForce(one(forms, profile('p', BROKEN, { generation: 3 }), keptOf(profile('p', '/old')))), '/new');
  const newer = keptOf(profile('p', '/newest', { generation: 4 }));
  assert.is(inForce(one(forms, profile('p', BROKEN, { generation: 5 }), newer)), '/newest');
});

records('a persisted form of the same or a later generation is no earlier form', () => {
  const kept = keptOf(profile('p', '/a', { generation: 2 }));
  assert.is(one(new PolicyForms(), profile('p', BROKEN, { generation: 2 }), kept).inForce, null);
  assert.is(one(new PolicyForms(), profile('p', BROKEN, { generation: 1 }), kept).inForce, null);
});

records('a persisted form that is not valid any more is not used', () => {
  const kept = new Map([['uid-p', { uid: 'uid-p', generation: 1, spec: { rules: 'nonsense' } }]]);
  assert.is(one(new PolicyForms(), profile('p', BROKEN, { generation: 2 }), kept).inForce, null);
});

records('a form that an Envoy refused gives way to the one before it', () => {
  const forms = new PolicyForms();
  one(forms, profile('p', '/a'));
  assert.is(inForce(one(forms, profile('p', '/b', { generation: 2 }))), '/b');
  const record = one(forms, profile('p', '/b', { generation: 2, status: refusedStatus(2) }));
  assert.is(inForce(record), '/a');
  assert.equal(record.errors, [{ path: 'spec', reason: 'refused by Envoy: too large' }]);
});

records('a refused form never comes back as a last good one', () => {
  const forms = new PolicyForms();
  one(forms, profile('p', '/a'));
  one(forms, profile('p', '/b', { generation: 2 }));
  one(forms, profile('p', '/b', { generation: 2, status: refusedStatus(2) }));
  assert.is(inForce(one(forms, profile('p', BROKEN, { generation: 3, status: refusedStatus(2) }))), '/a');
});

records('a refused form without one before it is as good as none', () => {
  const record = one(new PolicyForms(), profile('p', '/b', { status: refusedStatus(1) }));
  assert.is(record.inForce, null);
});

records('the refusal of an earlier generation says nothing about this one', () => {
  assert.is(inForce(one(new PolicyForms(), profile('p', '/b', { generation: 3, status: refusedStatus(2) }))), '/b');
});

records('a new object under the same name has no earlier form', () => {
  const forms = new PolicyForms();
  one(forms, profile('p', '/a'));
  assert.is(one(forms, profile('p', BROKEN, { uid: 'other', generation: 2 })).inForce, null);
  // And the old one is forgotten once it is gone.
  assert.is(one(forms, profile('p', BROKEN, { generation: 2 })).inForce, null);
});

records('a status changes no record: it stays the same object', () => {
  const forms = new PolicyForms();
  const object = profile('p', '/a');
  const first = forms.choose([object], NONE);
  const again = forms.choose([{ ...structuredClone(object), status: { conditions: [] } }], NONE);
  assert.is(again.records, first.records);
  assert.is(again.invalidSpecs, first.invalidSpecs);
  const changed = forms.choose([profile('p', '/c', { generation: 2 })], NONE);
  assert.is.not(changed.records[0], first.records[0]);
});

records('records are sorted whatever the order of objects', () => {
  const objects = ['b', 'a', 'c'].map((name) => profile(name, '/x'));
  const refs = (list: readonly KubeObject[]) => new PolicyForms().choose(list, NONE).records.map(({ ref }) => ref.name);
  assert.equal(refs(objects), ['a', 'b', 'c']);
  assert.equal(refs(objects.toReversed()), ['a', 'b', 'c']);
});

records('a revision that is not ours is not read', () => {
  const revision = lastGoodRevision(profile('p', '/a'), 'root');
  assert.is(readLastGood({ ...revision, metadata: { ...revision.metadata, labels: {} } }), null);
  assert.is(readLastGood({ ...revision, data: null }), null);
  assert.is(readLastGood({ ...revision, revision: 'x' }), null);
  assert.equal(readLastGood(revision), { uid: 'uid-p', generation: 1, spec: profile('p', '/a').spec });
});

records.run();
