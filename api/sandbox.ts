import type { Type } from 'typebox';
import { conditions } from './common.ts';
import {
  API_VERSION,
  anyValue,
  bool,
  type DeepReadonly,
  int32,
  int64,
  intOrString,
  list,
  object,
  oneOf,
  optional,
  text,
  textMap,
  time,
  typeMeta,
} from './schema.ts';

/** Sandbox: one isolated environment and its life (crds §2). */

const pauseStrategy = object({
  type: optional(oneOf(['Stop', 'Hibernate'])),
  hibernateStrategy: optional(object({ type: optional(text()) })),
});

const exec = object({ command: optional(list(text(), { listType: 'atomic' })) });

const hook = object({ exec: optional(exec), timeoutSeconds: optional(int32({ default: 60 })) });

const probe = object({
  name: text({ maxLength: 299, pattern: '^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$' }),
  containerName: optional(text()),
  exec: optional(exec),
  httpGet: optional(
    object({
      host: optional(text()),
      path: optional(text()),
      scheme: optional(text()),
      port: intOrString(),
      httpHeaders: optional(list(object({ name: text(), value: text() }), { listType: 'atomic' })),
    }),
  ),
  tcpSocket: optional(object({ host: optional(text()), port: intOrString() })),
  grpc: optional(object({ port: int32(), service: optional(text({ default: '' })) })),
  initialDelaySeconds: optional(int32()),
  periodSeconds: optional(int32()),
  timeoutSeconds: optional(int32()),
  successThreshold: optional(int32()),
  failureThreshold: optional(int32()),
  terminationGracePeriodSeconds: optional(int64()),
});

const autoPausePolicy = object({
  pause: optional(
    object({
      whenProbedIdleState: optional(
        object({ probe: text(), messageRegex: text({ maxLength: 512 }), thresholdDuration: text() }),
      ),
    }),
  ),
  resume: optional(
    object({
      whenProbedScheduleTime: optional(
        object({
          probe: text(),
          timeFormat: optional(oneOf(['unix', 'datetime'], { default: 'unix' })),
          leadTime: optional(text({ default: '5m' })),
        }),
      ),
      onIngressTraffic: optional(
        object(
          { pauseTimeout: optional(text()) },
          { description: 'Its presence lets an authenticated request wake the Sandbox.' },
        ),
      ),
    }),
  ),
});

const spec = object({
  paused: optional(bool()),
  pauseStrategy: optional(pauseStrategy),
  persistentContents: optional(list(text(), { listType: 'atomic' })),
  shutdownTime: optional(time({ description: 'When the Sandbox is deleted.' })),
  pauseTime: optional(time({ description: 'When the Sandbox is paused.' })),
  runtimes: optional(list(object({ name: text() }), { listType: 'atomic' })),
  lifecycle: optional(object({ preUpgrade: optional(hook), postUpgrade: optional(hook) })),
  upgradePolicy: optional(object({ type: optional(oneOf(['Recreate', 'CheckpointRestore'])) })),
  templateRef: optional(object({ name: text(), kind: optional(text()), apiVersion: optional(text()) })),
  template: optional(anyValue({ description: 'A core/v1 PodTemplateSpec.' })),
  volumeClaimTemplates: optional(anyValue()),
  probes: optional(list(probe, { maxItems: 16, listKeys: ['name'] })),
  autoPausePolicy: optional(autoPausePolicy),
});

const status = object({
  observedGeneration: optional(int64()),
  phase: optional(text()),
  message: optional(text()),
  conditions: optional(conditions()),
  podInfo: optional(
    object({
      annotations: optional(textMap({ mapType: 'granular' })),
      labels: optional(textMap({ mapType: 'granular' })),
      nodeName: optional(text()),
      podIP: optional(text()),
      podUID: optional(text()),
    }),
  ),
  nodeName: optional(text()),
  sandboxIp: optional(text()),
  updateRevision: optional(text()),
  recycledCount: optional(int32()),
  schedules: optional(
    list(object({ reason: text(), nextPauseTime: optional(time()), nextResumeTime: optional(time()) }), {
      listKeys: ['reason'],
    }),
  ),
});

export const sandboxSchema = object({
  ...typeMeta(API_VERSION, 'Sandbox'),
  spec,
  status: optional(status),
});

export type Sandbox = DeepReadonly<Type.Static<typeof sandboxSchema>>;
export type SandboxSpec = DeepReadonly<Type.Static<typeof spec>>;
export type SandboxStatus = DeepReadonly<Type.Static<typeof status>>;

/** Phases that are written (lifecycle §1.2). */
export type SandboxPhase = 'Pending' | 'Running' | 'Paused' | 'Resuming' | 'Succeeded' | 'Failed';
