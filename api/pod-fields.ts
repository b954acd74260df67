import type { FieldEntry, FieldTable } from './field-classes.ts';
import { except, noted, refused, table } from './field-table.ts';
import { podTemplateSchema } from './pod.ts';
import { type StructuralSchema, structural } from './schema-check.ts';

/** The class of every field of a pod template, where Pods are local processes (D15, D19, D21). */

const NO_PRIVILEGE = refused('a sandbox never gets privileges or namespaces of the machine');
const NO_IMAGE = noted('images are not pulled: programs of this machine run, or what images of sandgate.yaml names');
const NOT_LOCAL = noted('it is not looked at where Pods are local processes');
const OTHER_VOLUME = refused('only emptyDir, configMap and secret volumes are there');

const PROBES = ['readinessProbe', 'livenessProbe', 'startupProbe'];

const PROBE = [
  'exec.command[]',
  'httpGet.path',
  'httpGet.port',
  'httpGet.host',
  'httpGet.scheme',
  'httpGet.httpHeaders[].name',
  'httpGet.httpHeaders[].value',
  'tcpSocket.port',
  'tcpSocket.host',
  'initialDelaySeconds',
  'periodSeconds',
  'timeoutSeconds',
  'successThreshold',
  'failureThreshold',
].flatMap((field) => PROBES.map((probe) => `${probe}.${field}`));

const CARRIED_OUT = [
  'name',
  'command[]',
  'args[]',
  'workingDir',
  'env[].name',
  'env[].value',
  'env[].valueFrom.fieldRef.apiVersion',
  'env[].valueFrom.fieldRef.fieldPath',
  ...['configMapKeyRef', 'secretKeyRef'].flatMap((ref) =>
    ['name', 'key', 'optional'].map((field) => `env[].valueFrom.${ref}.${field}`),
  ),
  'envFrom[].prefix',
  ...['configMapRef', 'secretRef'].flatMap((ref) => ['name', 'optional'].map((field) => `envFrom[].${ref}.${field}`)),
  'ports[].name',
  'ports[].containerPort',
  'ports[].protocol',
  'volumeMounts[].name',
  'volumeMounts[].mountPath',
  'volumeMounts[].readOnly',
  'volumeMounts[].subPath',
  'securityContext.runAsUser',
  'securityContext.runAsGroup',
];

const CONTAINER_OTHERS: FieldTable = {
  image: NO_IMAGE,
  imagePullPolicy: NO_IMAGE,
  'env[].valueFrom.resourceFieldRef': refused('resource limits are not known to the process'),
  'env[].valueFrom.fileKeyRef': refused('values from files are not read'),
  'ports[].hostPort': refused('a sandbox opens no port of the machine; reach it through the ingress gateway'),
  'ports[].hostIP': NOT_LOCAL,
  'volumeMounts[].subPathExpr': refused('use subPath'),
  'volumeMounts[].mountPropagation': except({
    None: NOT_LOCAL,
    HostToContainer: NO_PRIVILEGE,
    Bidirectional: NO_PRIVILEGE,
  }),
  'volumeMounts[].recursiveReadOnly': NOT_LOCAL,
  'securityContext.privileged': except({ true: NO_PRIVILEGE }),
  'securityContext.procMount': except({ Unmasked: NO_PRIVILEGE }),
  'securityContext.capabilities.add': NO_PRIVILEGE,
  'securityContext.capabilities.drop': noted('a sandbox has no capabilities of the machine to begin with'),
  volumeDevices: refused('there are no block devices'),
};

/** What else a schema names, as noted: every member of it that no entry mentions. */
function rest(schema: StructuralSchema, path: string, known: FieldTable): FieldTable {
  const names = Object.keys(schema.properties ?? {}).map((name) => (path === '' ? name : `${path}.${name}`));
  const unmentioned = names.filter((name) => !Object.keys(known).some((key) => within(key, name)));
  return Object.fromEntries(unmentioned.map((name): [string, FieldEntry] => [name, NOT_LOCAL]));
}

function within(key: string, field: string): boolean {
  return key === field || key.startsWith(`${field}.`) || key.startsWith(`${field}[]`);
}

function prefixed(prefix: string, entries: FieldTable): FieldTable {
  return Object.fromEntries(Object.entries(entries).map(([key, entry]) => [`${prefix}${key}`, entry]));
}

const podSpec = structural(podTemplateSchema).properties!['spec']!;
const container = podSpec.properties!['containers']!.items!;
const volume = podSpec.properties!['volumes']!.items!;

function containerTable(): FieldTable {
  const known = table([...CARRIED_OUT, ...PROBE], CONTAINER_OTHERS);
  const context = rest(container.properties!['securityContext']!, 'securityContext', known);
  const probes = PROBES.map((probe) => ({
    ...rest(container.properties![probe]!, probe, known),
    [`${probe}.grpc`]: refused('use exec, httpGet or tcpSocket'),
  }));
  const all: FieldTable = Object.assign({}, known, context, ...probes);
  return { ...all, ...rest(container, '', all) };
}

const VOLUME_SOURCES = ['emptyDir', 'configMap', 'secret'];

const VOLUMES: FieldTable = {
  ...Object.fromEntries(
    Object.keys(volume.properties!)
      .filter((name) => name !== 'name' && !VOLUME_SOURCES.includes(name))
      .map((name) => [name, OTHER_VOLUME]),
  ),
  ...table(
    [
      'name',
      ...['configMap.name', 'secret.secretName'],
      ...['configMap', 'secret'].flatMap((source) =>
        ['optional', 'defaultMode', 'items[].key', 'items[].path', 'items[].mode'].map((field) => `${source}.${field}`),
      ),
    ],
    { 'emptyDir.medium': NOT_LOCAL, 'emptyDir.sizeLimit': NOT_LOCAL },
  ),
};

const IDENTITY = ['securityContext.runAsUser', 'securityContext.runAsGroup'];

const POD_SPEC: FieldTable = {
  ...prefixed('containers[].', containerTable()),
  ...prefixed('volumes[].', VOLUMES),
  ...table(['restartPolicy', 'terminationGracePeriodSeconds', 'hostname', ...IDENTITY], {
    initContainers: refused('only containers are started; do their work at the start of a container'),
    ephemeralContainers: refused('use sandgate exec'),
    hostNetwork: except({ true: NO_PRIVILEGE }),
    hostPID: except({ true: NO_PRIVILEGE }),
    hostIPC: except({ true: NO_PRIVILEGE }),
    shareProcessNamespace: NOT_LOCAL,
    nodeName: NOT_LOCAL,
  }),
};

const SPEC_FIELDS: FieldTable = {
  ...POD_SPEC,
  ...rest(podSpec.properties!['securityContext']!, 'securityContext', POD_SPEC),
  ...rest(podSpec, '', POD_SPEC),
};

export const POD_TEMPLATE_FIELDS: FieldTable = {
  ...table(['metadata.labels', 'metadata.annotations'], {}),
  ...prefixed('spec.', SPEC_FIELDS),
};
