import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { NO_FINDINGS } from '../../api/findings.ts';
import { validateObject } from '../../api/validate.ts';

const container = { name: 'main', image: 'example/app:1', command: ['serve'] };

function sandbox(spec: object, metadata: object = {}): object {
  return { apiVersion: 'agents.kruise.io/v1alpha1', kind: 'Sandbox', metadata: { name: 's', ...metadata }, spec };
}

function template(container1: object, podSpec: object = {}): object {
  return sandbox({ template: { spec: { containers: [{ ...container, ...container1 }], ...podSpec } } });
}

const T = 'spec.template.spec';

test('a usual Sandbox is valid', () => {
  const spec = {
    paused: false,
    pauseTime: '2030-01-01T00:00:00Z',
    pauseStrategy: { type: 'Stop' },
    autoPausePolicy: { resume: { onIngressTraffic: { pauseTimeout: '10m' } } },
    template: {
      metadata: { labels: { app: 'x' } },
      spec: {
        containers: [
          {
            ...container,
            env: [
              { name: 'A', value: 'b' },
              { name: 'B', valueFrom: { secretKeyRef: { name: 's', key: 'k' } } },
            ],
            envFrom: [{ configMapRef: { name: 'c' } }],
            ports: [{ containerPort: 3000 }],
            readinessProbe: { httpGet: { path: '/', port: 3000 }, periodSeconds: 1 },
            volumeMounts: [{ name: 'tmp', mountPath: '/scratch' }],
            resources: { limits: { cpu: '1' } },
            securityContext: { runAsUser: 1000, privileged: false, capabilities: { drop: ['ALL'] } },
          },
        ],
        volumes: [{ name: 'tmp', emptyDir: {} }],
        restartPolicy: 'Always',
        nodeSelector: { a: 'b' },
      },
    },
  };
  assert.deepEqual(validateObject(sandbox(spec)), NO_FINDINGS);
  assert.deepEqual(validateObject(sandbox({})), NO_FINDINGS);
});

const invalid: readonly [object, string, RegExp][] = [
  [{ ...sandbox({}), spec: undefined }, 'spec', /must be an object/],
  [sandbox({ template: 'str' }), 'spec.template', /must be an object, not a string/],
  [sandbox({ template: {} }), 'spec.template.spec', /is required/],
  [sandbox({ template: { spec: { containers: [] } } }), `${T}.containers`, /at least 1 item/],
  [template({ comand: ['x'] }), `${T}.containers[0].comand`, /did you mean command\?/],
  [template({ name: 'Main' }), `${T}.containers[0].name`, /does not match/],
  [
    template({ securityContext: { privileged: true } }),
    `${T}.containers[0].securityContext.privileged`,
    /^true is not carried out yet: a sandbox never gets privileges/,
  ],
  [
    template({ securityContext: { capabilities: { add: ['NET_ADMIN'] } } }),
    `${T}.containers[0].securityContext.capabilities.add`,
    /never gets privileges/,
  ],
  [template({}, { hostNetwork: true }), `${T}.hostNetwork`, /never gets privileges/],
  [template({}, { volumes: [{ name: 'h', hostPath: { path: '/' } }] }), `${T}.volumes[0].hostPath`, /only emptyDir/],
  [
    template({}, { volumes: [{ name: 'h', emptyDir: {}, secret: { secretName: 's' } }] }),
    `${T}.volumes[0]`,
    /one source only/,
  ],
  [
    template({ volumeMounts: [{ name: 'x', mountPath: '/x' }] }),
    `${T}.containers[0].volumeMounts[0].name`,
    /there is no volume "x"/,
  ],
  [template({ readinessProbe: { periodSeconds: 1 } }), `${T}.containers[0].readinessProbe`, /exactly one of/],
  [
    template({ env: [{ name: 'A', value: 'b', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }] }),
    `${T}.containers[0].env[0]`,
    /not both/,
  ],
  [template({ ports: [{ containerPort: 1, hostPort: 1 }] }), `${T}.containers[0].ports[0].hostPort`, /ingress gateway/],
  [template({}, { initContainers: [container] }), `${T}.initContainers`, /not carried out yet/],
  [sandbox({ pauseStrategy: { type: 'Hibernate' } }), 'spec.pauseStrategy.type', /"Hibernate" is not carried out yet/],
  [sandbox({ templateRef: { name: 't' } }), 'spec.templateRef', /not carried out yet/],
  [sandbox({ volumeClaimTemplates: [] }), 'spec.volumeClaimTemplates', /not carried out yet/],
  [sandbox({ runtimes: [{ name: 'csi' }] }), 'spec.runtimes', /not carried out yet/],
  [sandbox({ upgradePolicy: { type: 'Recreate' } }), 'spec.upgradePolicy', /not carried out yet/],
  [sandbox({ probes: [{ name: 'p', exec: { command: ['x'] } }] }), 'spec.probes', /not carried out yet/],
  [
    sandbox({ autoPausePolicy: { resume: { onIngressTraffic: { pauseTimeout: '1d' } } } }),
    'spec.autoPausePolicy.resume.onIngressTraffic.pauseTimeout',
    /is no duration/,
  ],
  [sandbox({ shutdownTime: 'tomorrow' }), 'spec.shutdownTime', /RFC 3339/],
  [
    sandbox({}, { annotations: { 'agents.kruise.io/security-rules': '[]' } }),
    'metadata.annotations["agents.kruise.io/security-rules"]',
    /write a SecurityProfile/,
  ],
  ...[
    'agents.kruise.io/init-runtime-request',
    'e2b.agents.kruise.io/csi-volume-config',
    'security.agents.kruise.io/agent-name',
  ].map((key): (typeof invalid)[number] => [
    sandbox({}, { annotations: { [key]: 'x' } }),
    `metadata.annotations["${key}"]`,
    /is not carried out yet/,
  ]),
];

for (const [object, path, reason] of invalid) {
  test(`invalid: ${path} ${reason}`, () => {
    const found = validateObject(object).invalid;
    assert.ok(
      found.some((error) => error.path === path && reason.test(error.reason)),
      JSON.stringify(found),
    );
  });
}

test.run();
