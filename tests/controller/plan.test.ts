import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import type { KubeObject } from '../../api/object.ts';
import { templateRevision } from '../../controller/revision.ts';
import { planSandbox, type SandboxAction } from '../../controller/sandbox-plan.ts';
import { viewPod } from '../../controller/sandbox-pod.ts';
import { viewSandbox } from '../../controller/sandbox-view.ts';

const NOW = Date.UTC(2030, 0, 1);
const template = { spec: { containers: [{ name: 'main', command: ['serve'] }] } };
const revision = templateRevision(template);
const OLD = '2029-12-31T00:00:00Z';

interface Case {
  readonly name: string;
  readonly phase?: string;
  readonly conditions?: readonly string[];
  readonly spec?: object;
  readonly podInfo?: object;
  readonly annotations?: Record<string, string>;
  readonly finalizers?: readonly string[];
  /** undefined: no Pod. */
  readonly pod?: {
    readonly phase?: string;
    readonly status?: object;
    readonly foreign?: boolean;
    readonly deleting?: boolean;
    readonly freeze?: boolean;
    readonly conditions?: readonly string[];
    readonly hash?: string;
  };
  readonly next: string;
  readonly actions?: readonly SandboxAction[];
  /** Conditions that must be there, as `Type=Status/Reason`; a leading `!` that there is none of the type. */
  readonly has?: readonly string[];
  readonly message?: string;
  readonly events?: readonly string[];
  readonly check?: (status: ReturnType<typeof planSandbox>['status']) => void;
}

/** `Ready=True/PodReady` as a condition. */
function condition(text: string): object {
  const [type, status, reason] = text.split(/[=/]/);
  return { type, status, reason, message: '', lastTransitionTime: OLD, observedGeneration: 1 };
}

function sandbox(spec: Case): KubeObject {
  return {
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'Sandbox',
    metadata: {
      name: 'fox',
      namespace: 'lab',
      uid: 'u-1',
      generation: 1,
      resourceVersion: '7',
      annotations: spec.annotations ?? {},
      finalizers: spec.finalizers ?? [],
    },
    spec: { template, ...spec.spec },
    ...(spec.phase === undefined
      ? {}
      : {
          status: {
            phase: spec.phase,
            updateRevision: revision,
            conditions: (spec.conditions ?? []).map(condition),
            ...(spec.podInfo === undefined ? {} : { podInfo: spec.podInfo }),
          },
        }),
  };
}

function pod({ pod: spec }: Case): KubeObject | null {
  if (spec === undefined) {
    return null;
  }
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: 'fox',
      namespace: 'lab',
      uid: 'p-1',
      labels: { 'pod-template-hash': spec.hash ?? revision },
      annotations: spec.freeze === true ? { 'sandgate.dev/freeze': 'true' } : {},
      ownerReferences: [{ apiVersion: 'x', kind: 'Sandbox', name: 'fox', uid: spec.foreign === true ? 'old' : 'u-1' }],
      ...(spec.deleting === true ? { deletionTimestamp: OLD } : {}),
    },
    spec: { nodeName: 'n3', containers: [] },
    status: {
      phase: spec.phase ?? 'Running',
      podIP: '10.9.0.7',
      conditions: (spec.conditions ?? []).map(condition),
      ...spec.status,
    },
  };
}

const READY = ['Ready=True/PodReady'];
const PAUSING = {
  phase: 'Paused',
  spec: { paused: true },
  conditions: ['SandboxPaused=False/Pending', 'Ready=False/PodReady'],
};
const PAUSED = (reason: string) => ['Ready=False/PodReady', `SandboxPaused=True/${reason}`];
const RESUMING = {
  phase: 'Resuming',
  conditions: [...PAUSED('StopPauseSucceed'), 'SandboxResumed=False/CreatePod'],
};
const THAWING = {
  phase: 'Resuming',
  podInfo: { podUID: 'p-1' },
  conditions: [...PAUSED('FreezePauseSucceed'), 'SandboxResumed=False/CreatePod'],
};
const waiting = (reason: string, message: string) => ({
  containerStatuses: [{ name: 'main', ready: false, state: { waiting: { reason, message } } }],
});

const cases: readonly Case[] = [
  { name: '1, 2: first pass', next: 'Pending', actions: ['create-pod'], has: ['Accepted=True/Accepted', '!Ready'] },
  { name: '2: no Pod yet', phase: 'Pending', next: 'Pending', actions: ['create-pod'] },
  {
    name: '3: a Pod of another Sandbox',
    phase: 'Pending',
    pod: { foreign: true, phase: 'Failed' },
    next: 'Pending',
    events: ['PodOwnerMismatch'],
    check: (status) => assert.equal(status.podInfo, undefined),
  },
  {
    name: '4: Pod succeeded',
    phase: 'Pending',
    pod: { phase: 'Succeeded' },
    next: 'Succeeded',
    message: 'Pod status phase is Succeeded',
    has: ['Ready=False/PodReady'],
  },
  {
    name: '4: Pod failed',
    phase: 'Pending',
    pod: { phase: 'Failed' },
    next: 'Failed',
    message: 'Pod status phase is Failed',
    events: ['SandboxFailed'],
  },
  {
    name: '4: not while it is being deleted',
    phase: 'Pending',
    pod: { phase: 'Failed', deleting: true },
    next: 'Pending',
  },
  {
    name: '5: Pod runs',
    phase: 'Pending',
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    has: READY,
    events: ['SandboxRunning'],
    check: (status) => {
      assert.deepEqual(status.podInfo, { nodeName: 'n3', podIP: '10.9.0.7', podUID: 'p-1' });
      assert.equal(status.sandboxIp, '10.9.0.7');
      assert.equal(status.nodeName, 'n3');
      assert.equal(status.updateRevision, revision);
      assert.equal(status.conditions!.find(({ type }) => type === 'Ready')!.lastTransitionTime, OLD);
    },
  },
  {
    name: '6: a start failure is seen while Pending',
    phase: 'Pending',
    pod: { phase: 'Pending', status: waiting('CreateContainerConfigError', 'secret x') },
    next: 'Pending',
    has: ['Ready=False/StartContainerFailed'],
  },
  {
    name: '6: a harmless wait is none',
    phase: 'Pending',
    pod: {
      phase: 'Pending',
      conditions: ['Ready=False/x'],
      status: { conditions: [condition('Ready=False/x')], ...waiting('ContainerCreating', '') },
    },
    next: 'Pending',
    has: ['Ready=False/PodReady'],
  },
  {
    name: '6: unschedulable',
    phase: 'Pending',
    pod: { phase: 'Pending', conditions: ['PodScheduled=False/Unschedulable'] },
    next: 'Pending',
    has: ['Ready=False/Unschedulable'],
  },
  {
    name: '7, 8: recycle is refused',
    phase: 'Running',
    conditions: READY,
    annotations: { 'agents.kruise.io/cleanup': 'true', 'agents.kruise.io/cleanup-enabled': 'true' },
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    has: ['Recycling=False/RecyclingRejected', ...READY],
    events: ['RecyclingRejected'],
  },
  {
    name: '9: Pod missing',
    phase: 'Running',
    conditions: READY,
    podInfo: { podIP: '10.9.0.7' },
    next: 'Failed',
    message: 'Pod Not Found',
    has: ['Ready=False/PodReady'],
    events: ['SandboxFailed'],
    check: (status) => assert.equal(status.sandboxIp, undefined),
  },
  {
    name: '9: Pod being deleted',
    phase: 'Running',
    conditions: READY,
    pod: { deleting: true },
    next: 'Failed',
    message: 'Pod Not Found',
  },
  {
    name: '9: Pod of another Sandbox',
    phase: 'Running',
    conditions: READY,
    pod: { foreign: true },
    next: 'Failed',
    message: 'Pod Not Found',
    events: ['PodOwnerMismatch', 'SandboxFailed'],
  },
  {
    name: '10: Pod ended',
    phase: 'Running',
    conditions: READY,
    pod: { phase: 'Succeeded' },
    next: 'Succeeded',
    message: 'Pod status phase is Succeeded',
    has: ['Ready=False/PodReady'],
  },
  {
    name: '11: a new template is not put into a running Pod',
    phase: 'Running',
    conditions: READY,
    pod: { hash: 'older', conditions: ['Ready=True/x'] },
    next: 'Running',
    has: ['InplaceUpdate=False/Failed', ...READY],
    events: ['InplaceUpdateForbidden'],
  },
  {
    name: '12: pause by freezing',
    phase: 'Running',
    spec: { paused: true },
    conditions: [...READY, 'SandboxResumed=True/ResumePod'],
    pod: {},
    next: 'Paused',
    actions: ['add-finalizer', 'withdraw', 'freeze'],
    has: ['SandboxPaused=False/Pending', 'Ready=False/PodReady', '!SandboxResumed'],
  },
  {
    name: '12: pause by Stop',
    phase: 'Running',
    spec: { paused: true, pauseStrategy: { type: 'Stop' } },
    conditions: READY,
    pod: {},
    next: 'Paused',
    actions: ['add-finalizer', 'withdraw', 'delete-pod'],
    has: ['SandboxPaused=False/Pending', 'Ready=False/PodReady'],
  },
  {
    name: '12: Hibernate is refused, and nothing is lost',
    phase: 'Running',
    spec: { paused: true, pauseStrategy: { type: 'Hibernate' } },
    conditions: READY,
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    has: ['Accepted=False/InvalidSpec', ...READY],
    events: ['SandboxRefused'],
  },
  {
    name: '13: readiness follows the Pod',
    phase: 'Running',
    conditions: READY,
    pod: { conditions: ['Ready=False/x'] },
    next: 'Running',
    has: ['Ready=False/PodReady'],
  },
  {
    name: '13: five restarts',
    phase: 'Running',
    conditions: READY,
    pod: { status: { containerStatuses: [{ name: 'main', ready: false, restartCount: 5 }] } },
    next: 'Running',
    has: ['Ready=False/StartContainerFailed'],
    check: (status) =>
      assert.match(
        status.conditions!.find(({ type }) => type === 'Ready')!.message,
        /^container "main" has restarted 5 times and is not ready$/,
      ),
  },
  {
    name: '13: four restarts',
    phase: 'Running',
    conditions: READY,
    pod: { status: { containerStatuses: [{ name: 'main', ready: false, restartCount: 4 }] } },
    next: 'Running',
    has: ['Ready=False/PodReady'],
  },
  {
    name: '13: recovery',
    phase: 'Running',
    conditions: ['Ready=False/StartContainerFailed'],
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    has: READY,
  },
  {
    name: '13: a freeze that nobody asked for is undone',
    phase: 'Running',
    conditions: READY,
    pod: { freeze: true, conditions: ['Ready=True/x'] },
    next: 'Running',
    actions: ['thaw'],
  },
  {
    name: '14: freeze is asked for and not done',
    ...PAUSING,
    pod: { freeze: true },
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    has: ['SandboxPaused=False/Pending'],
  },
  {
    name: '14: restart before the freeze was asked for',
    ...PAUSING,
    pod: {},
    next: 'Paused',
    actions: ['add-finalizer', 'withdraw', 'freeze'],
  },
  {
    name: '14: frozen',
    ...PAUSING,
    pod: { freeze: true, conditions: ['ContainersPaused=True/x'] },
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    has: ['SandboxPaused=True/FreezePauseSucceed', 'Ready=False/PodReady'],
  },
  {
    name: '14: pausing goes on when it is no longer asked for',
    ...PAUSING,
    spec: { paused: false },
    pod: {},
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    actions: ['withdraw', 'freeze'],
  },
  {
    name: '14: Stop waits for the Pod',
    ...PAUSING,
    spec: { paused: true, pauseStrategy: { type: 'Stop' } },
    pod: { deleting: true },
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    has: ['SandboxPaused=False/Pending'],
  },
  {
    name: '14: Stop is done',
    ...PAUSING,
    spec: { paused: true, pauseStrategy: { type: 'Stop' } },
    podInfo: { podIP: '10.9.0.7' },
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    has: ['SandboxPaused=True/StopPauseSucceed'],
    check: (status) => assert.equal(status.sandboxIp, undefined),
  },
  {
    name: '14: the Pod was deleted while it froze',
    ...PAUSING,
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    has: ['SandboxPaused=True/StopPauseSucceed'],
    events: ['PodLost'],
  },
  {
    name: '14: a strategy that is refused now touches nothing',
    ...PAUSING,
    spec: { paused: true, pauseStrategy: { type: 'Hibernate' } },
    pod: {},
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    has: ['SandboxPaused=False/Pending'],
    events: ['SandboxRefused'],
  },
  {
    name: '14: the old revision is kept while pausing',
    ...PAUSING,
    spec: { paused: true, template: { ...template, metadata: { labels: { a: 'b' } } } },
    pod: { freeze: true },
    finalizers: ['agents.kruise.io/sandbox'],
    next: 'Paused',
    check: (status) => assert.equal(status.updateRevision, revision),
  },
  {
    name: '15: resume of a frozen one',
    phase: 'Paused',
    conditions: PAUSED('FreezePauseSucceed'),
    podInfo: { podUID: 'p-1' },
    pod: { freeze: true, conditions: ['ContainersPaused=True/x'] },
    next: 'Resuming',
    actions: ['thaw'],
    has: ['SandboxResumed=False/CreatePod', 'SandboxPaused=True/FreezePauseSucceed'],
  },
  {
    name: '15: resume of a stopped one',
    phase: 'Paused',
    conditions: PAUSED('StopPauseSucceed'),
    next: 'Resuming',
    actions: ['create-pod'],
    has: ['SandboxResumed=False/CreatePod'],
  },
  {
    name: '15: stays paused',
    phase: 'Paused',
    spec: { paused: true },
    conditions: PAUSED('FreezePauseSucceed'),
    pod: { freeze: true, conditions: ['ContainersPaused=True/x'] },
    next: 'Paused',
  },
  {
    name: '15: a frozen Pod was deleted by hand',
    phase: 'Paused',
    spec: { paused: true },
    conditions: PAUSED('FreezePauseSucceed'),
    podInfo: { podIP: '10.9.0.7' },
    next: 'Paused',
    has: ['SandboxPaused=True/StopPauseSucceed'],
    events: ['PodLost'],
    check: (status) => assert.equal(status.sandboxIp, undefined),
  },
  {
    name: '16: an upgrade of a paused one is refused',
    phase: 'Paused',
    spec: { paused: true },
    annotations: { 'agents.kruise.io/upgrade-resume-trigger': 'true' },
    conditions: PAUSED('StopPauseSucceed'),
    next: 'Paused',
    events: ['UpgradeRefused'],
  },
  {
    name: '18: the old Pod is still there',
    ...RESUMING,
    pod: { deleting: true },
    next: 'Resuming',
    message: 'the pods created in the previous stage are still in the terminating state',
  },
  { name: '19: no Pod', ...RESUMING, next: 'Resuming', actions: ['create-pod'] },
  {
    name: '19: a Pod of another Sandbox is waited for',
    ...RESUMING,
    pod: { foreign: true },
    next: 'Resuming',
    events: ['PodOwnerMismatch'],
  },
  {
    name: '20: the new Pod does not run yet',
    ...RESUMING,
    pod: { phase: 'Pending' },
    next: 'Resuming',
    has: ['SandboxPaused=True/StopPauseSucceed'],
  },
  {
    name: '20: the new Pod cannot start',
    ...RESUMING,
    pod: { phase: 'Pending', status: waiting('InvalidImageName', 'x') },
    next: 'Resuming',
    has: ['Ready=False/StartContainerFailed'],
  },
  {
    name: '20: the new Pod runs',
    ...RESUMING,
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    actions: ['remove-finalizer'],
    has: [
      'SandboxResumed=True/ResumePod',
      'RuntimeInitialized=False/Pending',
      'Ready=False/PodReady',
      '!SandboxPaused',
    ],
    check: (status) => assert.equal(status.sandboxIp, '10.9.0.7'),
  },
  { name: '20: still frozen', ...THAWING, pod: { conditions: ['ContainersPaused=True/x'] }, next: 'Resuming' },
  {
    name: '20: no word of the thaw yet',
    ...THAWING,
    pod: { conditions: ['ContainersPaused=False/x'] },
    next: 'Resuming',
  },
  {
    name: '20: thawed',
    ...THAWING,
    pod: { conditions: ['ContainersPaused=False/x', 'ContainersResumed=True/x'] },
    next: 'Running',
    actions: ['remove-finalizer'],
    has: ['SandboxResumed=True/ResumePod', '!SandboxPaused'],
  },
  {
    name: '20: the thaw was not asked for yet',
    ...THAWING,
    pod: { freeze: true, conditions: ['ContainersResumed=True/x'] },
    next: 'Resuming',
    actions: ['thaw'],
  },
  {
    name: '20: a pause while resuming waits for Running',
    ...RESUMING,
    spec: { paused: true },
    pod: { phase: 'Pending' },
    next: 'Resuming',
  },
  {
    name: '20: a Pod that ended at once',
    ...RESUMING,
    pod: { phase: 'Failed' },
    next: 'Failed',
    message: 'Pod status phase is Failed',
  },
  {
    name: 'after a resume: not ready before the Pod is',
    phase: 'Running',
    conditions: ['Ready=False/PodReady', 'RuntimeInitialized=False/Pending'],
    pod: { conditions: ['Ready=False/x'] },
    next: 'Running',
    has: ['Ready=False/PodReady', 'RuntimeInitialized=False/Pending'],
  },
  {
    name: 'after a resume: ready',
    phase: 'Running',
    conditions: ['Ready=False/PodReady', 'RuntimeInitialized=False/Pending'],
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    has: ['Ready=True/PodReady', 'RuntimeInitialized=True/Succeeded'],
  },
  { name: '23: ended stays ended', phase: 'Failed', conditions: ['Ready=False/PodReady'], next: 'Failed' },
  {
    name: '23: also when a Pod comes',
    phase: 'Succeeded',
    conditions: ['Ready=False/PodReady'],
    pod: {},
    next: 'Succeeded',
  },
  {
    name: 'a refused field: no Pod, and a condition that names it',
    spec: { runtimes: [{ name: 'csi' }] },
    next: 'Pending',
    has: ['Accepted=False/InvalidSpec', 'Ready=False/PodCreateFailed'],
    events: ['SandboxRefused'],
    check: (status) =>
      assert.match(
        status.conditions!.find(({ type }) => type === 'Ready')!.message,
        /^spec\.runtimes is not carried out yet/,
      ),
  },
  {
    name: 'a malformed template: no Pod',
    spec: { template: 'str' },
    next: 'Pending',
    has: ['Accepted=False/InvalidSpec', 'Ready=False/PodCreateFailed'],
    events: ['SandboxRefused'],
  },
  {
    name: 'a spec that became bad leaves the Pod alone',
    phase: 'Running',
    spec: { template: 'str' },
    conditions: READY,
    pod: { conditions: ['Ready=True/x'] },
    next: 'Running',
    has: ['Accepted=False/InvalidSpec', ...READY],
    events: ['InplaceUpdateForbidden', 'SandboxRefused'],
  },
  {
    name: 'noted fields are named',
    phase: 'Pending',
    spec: { template: { spec: { containers: [{ name: 'main', image: 'x' }] } } },
    next: 'Pending',
    actions: ['create-pod'],
    has: ['FieldsWithoutEffect=True/NotCarriedOut'],
    check: (status) =>
      assert.equal(
        status.conditions!.find(({ type }) => type === 'FieldsWithoutEffect')!.message,
        'spec.template.spec.containers[0].image',
      ),
  },
  { name: 'a phase that is not known is left alone', phase: 'constructor', next: 'constructor' },
];

for (const entry of cases) {
  test(entry.name, () => {
    const object = sandbox(entry);
    const seen = viewPod(pod(entry), 'u-1');
    const plan = planSandbox(viewSandbox(object), seen, NOW);
    assert.equal(plan.status.phase, entry.next);
    assert.deepEqual(plan.actions, entry.actions ?? []);
    assert.equal(plan.status.message ?? '', entry.message ?? '');
    const texts = plan.status.conditions!.map(({ type, status, reason }) => `${type}=${status}/${reason}`);
    for (const wanted of entry.has ?? []) {
      const good = wanted.startsWith('!')
        ? !texts.some((text) => text.startsWith(`${wanted.slice(1)}=`))
        : texts.includes(wanted);
      assert.ok(good, `${wanted} in ${texts.join(', ')}`);
    }
    assert.deepEqual(
      [...new Set(plan.events.map(({ reason }) => reason))].sort(),
      [...(entry.events ?? defaultEvents(entry))].sort(),
    );
    entry.check?.(plan.status);
    assert.ok(plan.status.conditions!.every(({ observedGeneration }) => observedGeneration === 1));
    // Planning again over the stored result, with the world as it was, changes no condition that was just set.
    const again = planSandbox(viewSandbox({ ...object, status: plan.status }), seen, NOW + 5000);
    if (again.status.phase === plan.status.phase && plan.status.phase !== 'Running') {
      assert.deepEqual(again.status, plan.status);
    }
  });
}

/** A change of phase is an event; no other is expected where a case names none. */
function defaultEvents(entry: Case): readonly string[] {
  return entry.phase === undefined || entry.phase === entry.next ? [] : [`Sandbox${entry.next}`];
}

test.run();
