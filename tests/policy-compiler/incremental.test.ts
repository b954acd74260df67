import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PolicyFacts, PolicyRecord, SandboxFacts } from '../../api/facts.ts';
import { type KubeObject, refOf, refText } from '../../api/object.ts';
import { canonicalJson } from '../../base/canonical.ts';
import type { Compilation, CompilerSettings } from '../../policy-compiler/compilation.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { allocateVirtualAddresses } from '../../world/virtual-addresses.ts';
import { newSeed } from '../differential/generate.ts';
import { invalidObject, securityProfile, trafficPolicy } from '../differential/generate-policies.ts';
import * as pools from '../differential/pools.ts';
import { factsOf, profile, rule } from '../vectors/facts.ts';
import { SETTINGS } from './stage/world.ts';

/** What is stored, as a world would hold it: what no step changes stays the same object. */
interface State {
  readonly objects: readonly KubeObject[];
  readonly facts: PolicyFacts;
  readonly settings: CompilerSettings;
}

/** One change, and what it is called when a sequence fails. */
interface Step {
  readonly text: string;
  apply(state: State, compiled: Compilation | null): State;
}

const records = new WeakMap<KubeObject, PolicyRecord>();

function recordOf(object: KubeObject): PolicyRecord {
  const record = records.get(object) ?? factsOf({ objects: [object] }).policies[0]!;
  records.set(object, record);
  return record;
}

const nameOf = (object: KubeObject) => refText(refOf(object));

function withObjects(state: State, objects: readonly KubeObject[]): State {
  const policies = objects.map(recordOf);
  const { invalidSpecs } = factsOf({ objects });
  return { ...state, objects, facts: { ...state.facts, policies, invalidSpecs } };
}

function withFacts(state: State, change: Partial<PolicyFacts>): State {
  return { ...state, facts: { ...state.facts, ...change } };
}

function step(text: string, apply: Step['apply']): Step {
  return { text, apply };
}

const anyPolicy = fc.oneof(
  { weight: 4, arbitrary: trafficPolicy },
  { weight: 5, arbitrary: securityProfile({ block: 3, token: 4, headers: 3, mcp: 2 }) },
  { weight: 1, arbitrary: invalidObject },
);

const put = anyPolicy.map((object) =>
  step(`put ${nameOf(object)}`, (state) =>
    withObjects(state, [...state.objects.filter((other) => nameOf(other) !== nameOf(object)), object]),
  ),
);

/** The specification of one policy under the name of another that is there: changed rules, changed selectors. */
const edit = fc.tuple(fc.nat(), fc.oneof(trafficPolicy, securityProfile())).map(([at, form]) =>
  step(`edit ${at}`, (state) => {
    const same = state.objects.filter(({ kind }) => kind === form.kind);
    const old = same[at % same.length];
    return old === undefined
      ? state
      : withObjects(
          state,
          state.objects.map((object) => (object === old ? { ...old, spec: form.spec } : object)),
        );
  }),
);

const drop = fc.nat().map((at) =>
  step(`drop ${at}`, (state) =>
    withObjects(
      state,
      state.objects.filter((_, index) => index !== at % state.objects.length),
    ),
  ),
);

const reorder = fc.constant(
  step('reorder', (state) => ({
    ...withObjects(state, state.objects.toReversed()),
    facts: {
      ...withObjects(state, state.objects.toReversed()).facts,
      sandboxes: state.facts.sandboxes.toReversed(),
    },
  })),
);

const LABELS: readonly SandboxFacts['labels'][] = [
  {},
  { app: 'agent' },
  { app: 'web' },
  { app: 'agent', tier: 'gold' },
];

const sandbox = fc.record<SandboxFacts>({
  uid: fc.constantFrom('uid-1', 'uid-2', 'uid-3', 'uid-4', 'uid-5'),
  namespace: fc.constantFrom('team-a', 'team-a', 'team-b', 'team-c'),
  name: fc.constantFrom('sbx-1', 'sbx-2'),
  labels: fc.constantFrom(...LABELS),
  addresses: fc.constantFrom([], ['10.244.1.5'], ['10.244.1.6', 'fd00::7']),
});

const comes = sandbox.map((one) =>
  step(`sandbox ${canonicalJson(one)}`, (state) =>
    withFacts(state, { sandboxes: [...state.facts.sandboxes.filter(({ uid }) => uid !== one.uid), one] }),
  ),
);

const goes = fc
  .nat()
  .map((at) =>
    step(`sandbox ${at} goes`, (state) =>
      withFacts(state, { sandboxes: state.facts.sandboxes.filter((_, index) => index !== at) }),
    ),
  );

const secrets = fc
  .uniqueArray(fc.constantFrom(...Object.keys(pools.SECRET_KEYS)))
  .map((names) =>
    step(`secrets ${names.join()}`, (state) =>
      withFacts(state, { secretKeys: Object.fromEntries(names.map((name) => [name, pools.SECRET_KEYS[name]!])) }),
    ),
  );

const hosts = fc
  .dictionary(
    fc.constantFrom(...pools.NAMES, ...pools.FREE_NAMES),
    fc.constantFrom({ address: '10.1.1.1' }, { address: '203.0.113.9', port: 9000 }),
    { maxKeys: 2 },
  )
  .map((entries) => step(`hosts ${canonicalJson(entries)}`, (state) => withFacts(state, { hosts: entries })));

const behind = fc
  .record({ services: fc.subarray([...pools.SERVICES]), pods: fc.subarray([...pools.PODS]) })
  .map((change) => step('services and pods', (state) => withFacts(state, change)));

const allocate = fc.constant(
  step('allocate', (state, compiled) =>
    withFacts(state, {
      virtualAddresses: allocateVirtualAddresses(state.facts.virtualAddresses, compiled?.listedNames ?? []),
    }),
  ),
);

const forget = fc.nat().map((at) =>
  step(`address ${at} is gone`, (state) => {
    const entries = Object.entries(state.facts.virtualAddresses);
    return withFacts(state, { virtualAddresses: Object.fromEntries(entries.filter((_, index) => index !== at)) });
  }),
);

const settings = fc
  .constantFrom(null, { address: '127.0.0.1', port: 53, relay: '/run/dns.sock' })
  .map((resolver) => step('settings', (state) => ({ ...state, settings: { ...state.settings, resolver } })));

/** Everything read again from elsewhere: the same values as other objects. */
const again = fc.constant(
  step('read again', (state) =>
    withFacts(withObjects(state, structuredClone(state.objects)), structuredClone(state.facts)),
  ),
);

const steps = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: put },
    { weight: 6, arbitrary: edit },
    { weight: 2, arbitrary: drop },
    { weight: 1, arbitrary: reorder },
    { weight: 3, arbitrary: comes },
    { weight: 1, arbitrary: goes },
    { weight: 3, arbitrary: secrets },
    { weight: 2, arbitrary: hosts },
    { weight: 2, arbitrary: behind },
    { weight: 5, arbitrary: allocate },
    { weight: 1, arbitrary: forget },
    { weight: 1, arbitrary: settings },
    { weight: 1, arbitrary: again },
  ),
  { minLength: 4, maxLength: 14 },
);

const token = {
  tokenTransformation: {
    credentialRef: { secret: { name: 'key' } },
    apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
  },
};

/** Profiles whose meaning depends on Secrets, one of them on the caller's namespace too. */
const START: State = withObjects(
  {
    objects: [],
    facts: factsOf({
      sandboxes: pools.SANDBOXES,
      secretKeys: pools.SECRET_KEYS,
      services: pools.SERVICES,
      pods: pools.PODS,
    }),
    settings: SETTINGS,
  },
  [
    profile([rule(token, { domains: ['a.test'] })], { name: 'own' }),
    profile([rule(token, { domains: ['b.test'] })], { name: 'callers', kind: 'GlobalSecurityProfile' }),
  ],
);

/** Everything that a compilation says, in its order. */
function everything(compilation: Compilation): string {
  const { egress, sidecarSets, sidecarChains, subjects, credentials, leaves, listedNames, findings } = compilation;
  const sets = [...subjects.keys()].map((uid) => {
    const { names, virtuals, ...set } = compilation.policySetOf(uid)!;
    return { ...set, names: [...names], virtuals: [...virtuals] };
  });
  return JSON.stringify(
    [
      egress,
      [...sidecarSets],
      [...sidecarChains],
      [...subjects],
      [...credentials],
      leaves,
      listedNames,
      findings,
      sets,
    ],
    null,
    1,
  );
}

/** The first line that differs. */
function difference(made: string, wanted: string): string {
  const [a, b] = [made.split('\n'), wanted.split('\n')];
  const at = a.findIndex((line, index) => line !== b[index]);
  return `line ${at}: ${a[at]} instead of ${b[at]}`;
}

const isLong = process.env['SANDGATE_LONG'] !== undefined;

test('whatever changed before, a compiler gives what a fresh one gives of the same facts, byte for byte', () => {
  fc.assert(
    fc.property(steps, (sequence) => {
      const compiler = createCompiler();
      let state = START;
      let compiled: Compilation | null = null;
      for (const [at, { text, apply }] of sequence.entries()) {
        state = apply(state, compiled);
        compiled = compiler.compile(state.facts, state.settings);
        const made = everything(compiled);
        const wanted = everything(createCompiler().compile(structuredClone(state.facts), state.settings));
        if (made !== wanted) {
          const done = sequence.slice(0, at + 1).map((one) => one.text);
          assert.unreachable(`${difference(made, wanted)}, after ${done.join('; ')}; the last step was ${text}`);
        }
      }
    }),
    { seed: newSeed(), numRuns: isLong ? 5000 : 150 },
  );
});

test('a name that every JavaScript object has is a name like any other', () => {
  const facts = factsOf({
    objects: [
      {
        apiVersion: 'agents.kruise.io/v1alpha1',
        kind: 'TrafficPolicy',
        metadata: { namespace: 'team-a', name: 'p' },
        spec: {
          selector: {},
          egress: { rules: [{ action: 'allow', to: [{ fqdn: 'constructor' }, { fqdn: '__proto__' }] }] },
        },
      },
    ],
  });
  const compiler = createCompiler();
  const before = compiler.compile({ ...facts, virtualAddresses: {} }, SETTINGS);
  assert.equal(before.subjects.get('uid-1')!.names, []);
  const virtualAddresses = allocateVirtualAddresses({}, before.listedNames);
  assert.equal(Object.keys(virtualAddresses), ['__proto__', 'constructor']);
  const after = compiler.compile({ ...facts, virtualAddresses }, SETTINGS);
  assert.equal(after.subjects.get('uid-1')!.names, ['__proto__', 'constructor']);
});

test.run();
