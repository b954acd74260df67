import type { Type } from 'typebox';
import type { KubeObject } from './object.ts';
import {
  anyValue,
  bool,
  type DeepReadonly,
  int32,
  int64,
  intOrString,
  list,
  object,
  oneOf,
  open,
  optional,
  text,
  textMap,
  typeMeta,
} from './schema.ts';

/**
 * Pod and the pod template of a Sandbox. Every member that Kubernetes knows is named, so that a misspelt one is found;
 * those that are not looked at hold any value, and `pod-fields.ts` says what becomes of them (D19).
 */

/** Members that are known by name only. */
function others<const N extends readonly string[]>(...names: N) {
  const members = Object.fromEntries(names.map((name) => [name, optional(anyValue())]));
  return members as Record<N[number], Type.TOptional<Type.TUnsafe<unknown>>>;
}

const keyRef = () => object({ name: text(), key: text(), optional: optional(bool()) });

const envVar = object({
  name: text({ minLength: 1 }),
  value: optional(text()),
  valueFrom: optional(
    object({
      fieldRef: optional(object({ apiVersion: optional(text()), fieldPath: text() })),
      configMapKeyRef: optional(keyRef()),
      secretKeyRef: optional(keyRef()),
      ...others('resourceFieldRef', 'fileKeyRef'),
    }),
  ),
});

const sourceRef = () => object({ name: text(), optional: optional(bool()) });

const envFrom = object({
  prefix: optional(text()),
  configMapRef: optional(sourceRef()),
  secretRef: optional(sourceRef()),
});

const probe = () =>
  object({
    exec: optional(object({ command: optional(list(text())) })),
    httpGet: optional(
      object({
        path: optional(text()),
        port: intOrString(),
        host: optional(text()),
        scheme: optional(oneOf(['HTTP', 'HTTPS'])),
        httpHeaders: optional(list(object({ name: text(), value: text() }))),
      }),
    ),
    tcpSocket: optional(object({ port: intOrString(), host: optional(text()) })),
    initialDelaySeconds: optional(int32({ minimum: 0 })),
    periodSeconds: optional(int32({ minimum: 0 })),
    timeoutSeconds: optional(int32({ minimum: 0 })),
    successThreshold: optional(int32({ minimum: 0 })),
    failureThreshold: optional(int32({ minimum: 0 })),
    ...others('grpc', 'terminationGracePeriodSeconds'),
  });

const container = object({
  name: text({ minLength: 1, maxLength: 63, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' }),
  image: optional(text()),
  command: optional(list(text())),
  args: optional(list(text())),
  workingDir: optional(text()),
  env: optional(list(envVar)),
  envFrom: optional(list(envFrom)),
  ports: optional(
    list(
      object({
        name: optional(text()),
        containerPort: int32({ minimum: 1, maximum: 65535 }),
        protocol: optional(oneOf(['TCP', 'UDP', 'SCTP'])),
        hostPort: optional(int32()),
        hostIP: optional(text()),
      }),
    ),
  ),
  volumeMounts: optional(
    list(
      object({
        name: text(),
        mountPath: text({ minLength: 1 }),
        readOnly: optional(bool()),
        subPath: optional(text()),
        ...others('subPathExpr', 'mountPropagation', 'recursiveReadOnly'),
      }),
    ),
  ),
  readinessProbe: optional(probe()),
  livenessProbe: optional(probe()),
  startupProbe: optional(probe()),
  securityContext: optional(
    object({
      privileged: optional(bool()),
      procMount: optional(text()),
      capabilities: optional(object({ add: optional(list(text())), drop: optional(list(text())) })),
      ...others(
        'allowPrivilegeEscalation',
        'appArmorProfile',
        'readOnlyRootFilesystem',
        'runAsGroup',
        'runAsNonRoot',
        'runAsUser',
        'seLinuxOptions',
        'seccompProfile',
        'windowsOptions',
      ),
    }),
  ),
  ...others(
    'imagePullPolicy',
    'lifecycle',
    'resizePolicy',
    'resources',
    'restartPolicy',
    'restartPolicyRules',
    'stdin',
    'stdinOnce',
    'terminationMessagePath',
    'terminationMessagePolicy',
    'tty',
    'volumeDevices',
  ),
});

const items = () => optional(list(object({ key: text(), path: text({ minLength: 1 }), mode: optional(int32()) })));

const volume = object({
  name: text({ minLength: 1 }),
  emptyDir: optional(object({ medium: optional(text()), sizeLimit: optional(intOrString()) })),
  configMap: optional(
    object({ name: text(), optional: optional(bool()), defaultMode: optional(int32()), items: items() }),
  ),
  secret: optional(
    object({ secretName: text(), optional: optional(bool()), defaultMode: optional(int32()), items: items() }),
  ),
  ...others(
    'awsElasticBlockStore',
    'azureDisk',
    'azureFile',
    'cephfs',
    'cinder',
    'csi',
    'downwardAPI',
    'ephemeral',
    'fc',
    'flexVolume',
    'flocker',
    'gcePersistentDisk',
    'gitRepo',
    'glusterfs',
    'hostPath',
    'image',
    'iscsi',
    'nfs',
    'persistentVolumeClaim',
    'photonPersistentDisk',
    'portworxVolume',
    'projected',
    'quobyte',
    'rbd',
    'scaleIO',
    'storageos',
    'vsphereVolume',
  ),
});

const podSpec = object({
  containers: list(container, { minItems: 1, listKeys: ['name'] }),
  initContainers: optional(list(container, { listKeys: ['name'] })),
  volumes: optional(list(volume, { listKeys: ['name'] })),
  restartPolicy: optional(oneOf(['Always', 'OnFailure', 'Never'])),
  terminationGracePeriodSeconds: optional(int64({ minimum: 0 })),
  hostname: optional(text()),
  hostNetwork: optional(bool()),
  hostPID: optional(bool()),
  hostIPC: optional(bool()),
  shareProcessNamespace: optional(bool()),
  securityContext: optional(
    object({
      ...others(
        'appArmorProfile',
        'fsGroup',
        'fsGroupChangePolicy',
        'runAsGroup',
        'runAsNonRoot',
        'runAsUser',
        'seLinuxChangePolicy',
        'seLinuxOptions',
        'seccompProfile',
        'supplementalGroups',
        'supplementalGroupsPolicy',
        'sysctls',
        'windowsOptions',
      ),
    }),
  ),
  nodeName: optional(text()),
  ...others(
    'activeDeadlineSeconds',
    'affinity',
    'automountServiceAccountToken',
    'dnsConfig',
    'dnsPolicy',
    'enableServiceLinks',
    'ephemeralContainers',
    'hostAliases',
    'hostUsers',
    'hostnameOverride',
    'imagePullSecrets',
    'nodeSelector',
    'os',
    'overhead',
    'preemptionPolicy',
    'priority',
    'priorityClassName',
    'readinessGates',
    'resourceClaims',
    'resources',
    'runtimeClassName',
    'schedulerName',
    'schedulingGates',
    'serviceAccount',
    'serviceAccountName',
    'setHostnameAsFQDN',
    'subdomain',
    'tolerations',
    'topologySpreadConstraints',
  ),
});

/** The template of a Sandbox (crds B1). */
export const podTemplateSchema = object({
  metadata: optional(open({ labels: optional(textMap()), annotations: optional(textMap()) })),
  spec: podSpec,
});

export type PodTemplate = DeepReadonly<Type.Static<typeof podTemplateSchema>>;
export type PodSpec = DeepReadonly<Type.Static<typeof podSpec>>;
export type Container = DeepReadonly<Type.Static<typeof container>>;
export type Volume = DeepReadonly<Type.Static<typeof volume>>;
export type ContainerProbe = DeepReadonly<Type.Static<ReturnType<typeof probe>>>;
export type EnvVar = DeepReadonly<Type.Static<typeof envVar>>;
export type EnvFrom = DeepReadonly<Type.Static<typeof envFrom>>;

/** A Pod in the store; its status is written by a node agent. */
export const podSchema = object({
  ...typeMeta('v1', 'Pod'),
  spec: podSpec,
  status: optional(anyValue()),
});

export interface PodCondition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason?: string;
  readonly message?: string;
  readonly lastTransitionTime?: string;
}

export interface ContainerStatus {
  readonly name: string;
  readonly image?: string;
  readonly ready?: boolean;
  readonly restartCount?: number;
  readonly state?: {
    readonly waiting?: { readonly reason?: string; readonly message?: string };
    readonly running?: { readonly startedAt?: string };
    readonly terminated?: { readonly exitCode: number; readonly reason?: string; readonly message?: string };
  };
}

/** The part of a Pod's status that is read here. */
export interface PodStatus {
  readonly phase?: 'Pending' | 'Running' | 'Succeeded' | 'Failed' | 'Unknown';
  readonly message?: string;
  readonly reason?: string;
  readonly podIP?: string;
  readonly podIPs?: readonly { readonly ip: string }[];
  readonly conditions?: readonly PodCondition[];
  readonly initContainerStatuses?: readonly ContainerStatus[];
  readonly containerStatuses?: readonly ContainerStatus[];
}

export type Pod = KubeObject & { readonly spec: PodSpec; readonly status?: PodStatus };
