import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyRecord } from '../../api/facts.ts';
import { kindNamed } from '../../api/kinds.ts';
import { type KubeObject, refOf } from '../../api/object.ts';
import { ManualClock } from '../../base/clock.ts';
import { type Logger, silentLogger } from '../../base/logger.ts';
import { progressOf } from '../../control-plane/run.ts';
import { type PolicyState, policyConditions, StatusWriter } from '../../control-plane/status.ts';
import type { Finding } from '../../policy-compiler/output.ts';
import { MemoryStore } from '../../store/table-store.ts';
import { blockRule, condition, securityProfile, trafficPolicy } from './stage.ts';

/** Conditions of policies (crds §11.6, D31). */
const status = suite('policy conditions');

const profile = (): KubeObject => withGeneration(securityProfile('p', 'a', [blockRule('api.test', '/x')]));

function withGeneration(object: KubeObject): KubeObject {
  return { ...object, metadata: { ...object.metadata, uid: 'uid-p', generation: 1 } };
}

function state(object: KubeObject, more: Partial<PolicyState> & { readonly record?: PolicyRecord } = {}): PolicyState {
  const base = { ref: refOf(object), created: '', generation: 1, errors: [] };
  const record: PolicyRecord = { ...base, inForce: object as unknown as PolicyRecord['inForce'] };
  return { object, record, findings: [], sequence: 3, refused: null, ...more };
}

function invalid(reason: string, hasForm = false): Partial<PolicyState> {
  const object = profile();
  const record: PolicyRecord = {
    ...{ ref: refOf(object), created: '', generation: 1 },
    inForce: hasForm ? (object as unknown as PolicyRecord['inForce']) : null,
    errors: [{ path: 'spec.rules[0]', reason }],
  };
  return { record };
}

const finding = (type: Finding['type'], isBad: boolean, message = 'why', reason = 'SomeReason'): Finding => ({
  ref: refOf(profile()),
  ...{ type, status: isBad ? 'False' : 'True', reason, message },
});

const texts = (made: PolicyState, settled: readonly number[]) =>
  policyConditions(made, progressOf(settled)).map(
    ({ type, status: is, reason, message }) => `${type}=${is} ${reason}${message ? `: ${message}` : ''}`,
  );

const TABLE: readonly [what: string, state: () => PolicyState, settled: readonly number[], expected: string[]][] = [
  [
    'everyone has it',
    () => state(profile()),
    [3, 4],
    ['Accepted=True Accepted', 'Programmed=True Programmed: 2 of 2 Envoys'],
  ],
  [
    'one is behind',
    () => state(profile()),
    [3, 2],
    ['Accepted=True Accepted', 'Programmed=False Pending: 1 of 2 Envoys'],
  ],
  [
    'nobody is connected',
    () => state(profile()),
    [],
    ['Accepted=True Accepted', 'Programmed=False NoEnvoyConnected: 0 of 0 Envoys'],
  ],
  [
    'a wrong regular expression, nothing in force',
    () => state(profile(), invalid('is no regular expression: (')),
    [9],
    [
      'Accepted=False InvalidRegex: spec.rules[0]: is no regular expression: (',
      'Programmed=False NotAccepted: not accepted: the sandboxes that it selects are denied',
    ],
  ],
  [
    'an unknown field, the last good form in force',
    () => state(profile(), invalid('unknown field', true)),
    [9],
    [
      'Accepted=False UnknownField: spec.rules[0]: unknown field',
      'Programmed=False NotAccepted: not accepted: the last good form is in force',
    ],
  ],
  [
    'a wrong template',
    () => state(profile(), invalid('is no template')),
    [9],
    [
      'Accepted=False InvalidTemplate: spec.rules[0]: is no template',
      'Programmed=False NotAccepted: not accepted: the sandboxes that it selects are denied',
    ],
  ],
  [
    'refused by an Envoy: accepted all the same',
    () => state(profile(), { ...invalid('refused by Envoy: too large', true), refused: 'pset-1: too large' }),
    [9],
    ['Accepted=True Accepted', 'Programmed=False EnvoyRejected: pset-1: too large'],
  ],
  [
    'findings: bad ones win, one condition a type',
    () =>
      state(profile(), {
        findings: [
          finding('Enforceable', false),
          finding('ResolvedRefs', true, 'no Secret', 'SecretNotFound'),
          finding('ResolvedRefs', true, 'no key', 'SecretNotFound'),
        ],
      }),
    [3],
    [
      'Accepted=True Accepted',
      'Programmed=True Programmed: 1 of 1 Envoys',
      'Enforceable=True Enforceable',
      'ResolvedRefs=False SecretNotFound: no Secret; no key',
    ],
  ],
  [
    'a part that is left out (D2)',
    () => state(withGeneration(trafficPolicy('p', 'a', [{ action: 'allow', to: [{ cidr: '10.0.0.300/8' }] }]))),
    [3],
    [
      'Accepted=True Accepted',
      'Programmed=True Programmed: 1 of 1 Envoys',
      'Enforceable=False RulesOmitted: spec.egress.rules[0].to[0].cidr: is no address range',
    ],
  ],
  [
    'a part without effect',
    () =>
      state(
        withGeneration(
          securityProfile('p', 'a', [
            { name: 'r', match: [{ domains: ['a.test'] }], actions: { bypass: true, block: {} } },
          ]),
        ),
      ),
    [3],
    [
      'Accepted=True Accepted',
      'Programmed=True Programmed: 1 of 1 Envoys',
      'Enforceable=False NoEffect: spec.rules[0].actions.block: has no effect: bypass of the same rule comes first and lets the request through',
    ],
  ],
];

for (const [what, made, settled, expected] of TABLE) {
  status(what, () => {
    const found = texts(made(), settled);
    assert.equal(
      found.map((text) =>
        text.replace(/(RulesOmitted: spec\.egress\.rules\[0\]\.to\[0\]\.cidr:).*/, '$1 is no address range'),
      ),
      expected,
    );
  });
}

status('counts how many are at least so far', () => {
  const { connected, settledAt } = progressOf([5, 1, 3]);
  assert.equal([connected, settledAt(0), settledAt(2), settledAt(5), settledAt(6), settledAt(2)], [3, 3, 2, 1, 0, 2]);
});

function writing() {
  const store = new MemoryStore({ kinds: kindNamed });
  const clock = new ManualClock(1_800_000_000_000);
  const warnings: string[] = [];
  const note = (_fields: object, message: string) => void warnings.push(message);
  const logger: Logger = { ...silentLogger, warn: note, child: () => logger };
  const writer = new StatusWriter(store, { clock, logger, rootNamespace: 'root' });
  const stored = () => store.get('SecurityProfile', { namespace: 'default', name: 'p' });
  const revisions = async () => (await store.list('ControllerRevision')).items;
  return { store, clock, writer, stored, revisions, warnings };
}

status('the last good form is kept only once every Envoy has it, and follows the generations', async () => {
  const { store, writer, stored, revisions } = writing();
  const made = await store.create(securityProfile('p', 'a', [blockRule('api.test', '/x')]));
  await writer.write([state(made)], progressOf([3, 2]));
  assert.equal(await revisions(), []);
  assert.is(condition(await stored(), 'Programmed')!.status, 'False');
  await writer.write([state(await stored())], progressOf([3, 3]));
  const [kept] = await revisions();
  assert.is(kept!['revision'], 1);
  assert.equal(condition(await stored(), 'Programmed')!.observedGeneration, 1);
  const second = await store.replace({ ...(await stored()), spec: securityProfile('p', 'a', []).spec });
  await writer.write([state(second, { sequence: 4 })], progressOf([3, 4]));
  assert.is((await revisions())[0]!['revision'], 1);
  await writer.write([state(await stored(), { sequence: 4 })], progressOf([4, 4]));
  assert.equal(
    (await revisions()).map((revision) => revision['revision']),
    [2],
  );
  // It goes with its policy.
  await store.delete('SecurityProfile', { namespace: 'default', name: 'p' });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await revisions(), []);
  await store.close();
});

status('nothing is written when nothing changed; times move only with the status', async () => {
  const { store, clock, writer, stored } = writing();
  const made = await store.create(securityProfile('p', 'a', [blockRule('api.test', '/x')]));
  await writer.write([state(made)], progressOf([2]));
  const first = await stored();
  clock.advance(60_000);
  await writer.write([state(first)], progressOf([2]));
  assert.is((await stored()).metadata.resourceVersion, first.metadata.resourceVersion);
  await writer.write([state(first)], progressOf([2, 2]));
  const second = await stored();
  assert.is(condition(second, 'Programmed')!.message, '0 of 2 Envoys');
  const time = (object: KubeObject) =>
    (condition(object, 'Programmed') as unknown as { lastTransitionTime: string }).lastTransitionTime;
  assert.is(time(second), time(first));
  await writer.write([state(second)], progressOf([3, 3]));
  assert.is.not(time(await stored()), time(first));
  await store.close();
});

status('conditions of others stay; ours that do not hold any more go', async () => {
  const { store, writer, stored } = writing();
  await store.create(securityProfile('p', 'a', [blockRule('api.test', '/x')]));
  const foreign = {
    type: 'Reviewed',
    status: 'True',
    reason: 'Yes',
    message: '',
    lastTransitionTime: '2026-01-01T00:00:00Z',
  };
  const key = { namespace: 'default', name: 'p' };
  await store.patchStatus('SecurityProfile', key, { type: 'merge', body: { status: { conditions: [foreign] } } });
  const findings = [finding('ResolvedRefs', true)];
  await writer.write([state(await stored(), { findings })], progressOf([3]));
  assert.is(condition(await stored(), 'ResolvedRefs')!.status, 'False');
  await writer.write([state(await stored())], progressOf([3]));
  assert.is(condition(await stored(), 'ResolvedRefs'), undefined);
  assert.is(condition(await stored(), 'Reviewed')!.status, 'True');
  await store.close();
});

status('an object that is gone does not stop the others', async () => {
  const { store, writer, stored, warnings } = writing();
  const made = await store.create(securityProfile('p', 'a', [blockRule('api.test', '/x')]));
  const gone = withGeneration(securityProfile('gone', 'a', []));
  await writer.write([state(gone), state(made)], progressOf([3]));
  assert.is(condition(await stored(), 'Programmed')!.status, 'True');
  assert.equal(warnings, []);
  await store.close();
});

status('of many, some are written at a time; what was not reached is written the next time', async () => {
  const { store, writer } = writing();
  const names = Array.from({ length: 40 }, (_, index) => `p-${index}`);
  const made = await Promise.all(names.map((name) => store.create(securityProfile(name, 'a', []))));
  const states = made.map((object) => state(object));
  const written = async () =>
    (await store.list('SecurityProfile')).items.filter((object) => condition(object, 'Programmed') !== undefined)
      .length;
  const counts: number[] = [];
  let asked = 0;
  await writer.write(states, progressOf([3]), () => {
    asked += 1;
    return asked < 3;
  });
  counts.push(await written());
  await writer.write(states, progressOf([3]));
  counts.push(await written());
  assert.equal(counts, [32, 40]);
  await store.close();
});

status.run();
