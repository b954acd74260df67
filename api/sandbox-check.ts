import type { FieldError } from '../base/errors.ts';
import { parseDuration } from './duration.ts';
import { type Findings, NO_FINDINGS } from './findings.ts';
import {
  ANNOTATION_AGENT_NAME,
  ANNOTATION_CSI_VOLUMES,
  ANNOTATION_INIT_RUNTIME,
  ANNOTATION_SECURITY_RULES,
  OWN_PREFIX,
} from './labels.ts';
import { annotationErrors, isDnsLabel, labelErrors } from './names.ts';
import type { ObjectMeta } from './object.ts';
import { type Container, type PodTemplate, podTemplateSchema } from './pod.ts';
import type { SandboxSpec } from './sandbox.ts';
import { checkSchema, isMap, memberPath, structural } from './schema-check.ts';

/** Annotations that ask for what is not there: to ignore one would promise it (D19). */
const NOT_CARRIED_OUT: Readonly<Record<string, string>> = {
  [ANNOTATION_SECURITY_RULES]: 'write a SecurityProfile that selects this Sandbox',
  [ANNOTATION_INIT_RUNTIME]: 'no runtime is initialised; remove it',
  [ANNOTATION_CSI_VOLUMES]: 'no CSI volume is mounted; remove it',
  [ANNOTATION_AGENT_NAME]: 'no security token is issued; remove it',
};

/** The rules of Sandbox that its schema does not hold: its pod template first of all. `spec` fits the schema. */
export function checkSandbox(spec: SandboxSpec, metadata: ObjectMeta): Findings {
  const invalid: FieldError[] = [];
  for (const [key, advice] of Object.entries(NOT_CARRIED_OUT)) {
    if (metadata.annotations?.[key] !== undefined) {
      const path = memberPath('metadata.annotations', key);
      invalid.push({ path, reason: `is not carried out yet: ${advice}` });
    }
  }
  const timeout = spec.autoPausePolicy?.resume?.onIngressTraffic?.pauseTimeout;
  if (timeout !== undefined && parseDuration(timeout) === null) {
    const path = 'spec.autoPausePolicy.resume.onIngressTraffic.pauseTimeout';
    invalid.push({ path, reason: `${JSON.stringify(timeout)} is no duration such as 300s, 10m or 1h30m` });
  }
  invalid.push(...templateErrors(spec.template));
  return { ...NO_FINDINGS, invalid };
}

/** What is wrong with a pod template, whatever it is. An absent one is no error here (crds §2.1). */
export function templateErrors(template: unknown, path = 'spec.template'): FieldError[] {
  if (template === undefined) {
    return [];
  }
  const errors = checkSchema(structural(podTemplateSchema), template, path);
  if (errors.length > 0) {
    return errors;
  }
  const { metadata, spec } = template as PodTemplate;
  return [
    ...labelErrors(metadata?.labels ?? {}, `${path}.metadata.labels`),
    ...annotationErrors(metadata?.annotations ?? {}, `${path}.metadata.annotations`),
    ...(['labels', 'annotations'] as const).flatMap((map) =>
      Object.keys(metadata?.[map] ?? {})
        .filter((key) => key.startsWith(OWN_PREFIX))
        .map((key) => ({
          path: memberPath(`${path}.metadata.${map}`, key),
          reason: 'is a key that Sandgate alone writes',
        })),
    ),
    ...volumeErrors(spec.volumes ?? [], `${path}.spec.volumes`),
    ...(['containers', 'initContainers'] as const).flatMap((list) =>
      (spec[list] ?? []).flatMap((container, index) =>
        containerErrors(
          container,
          new Set((spec.volumes ?? []).map(({ name }) => name)),
          `${path}.spec.${list}[${index}]`,
        ),
      ),
    ),
    ...(spec.hostname === undefined || isDnsLabel(spec.hostname)
      ? []
      : [{ path: `${path}.spec.hostname`, reason: 'must be lower-case letters, digits and "-", at most 63' }]),
  ];
}

function volumeErrors(volumes: readonly object[], path: string): FieldError[] {
  return volumes.flatMap((volume, index) =>
    Object.keys(volume).length <= 2 ? [] : [{ path: `${path}[${index}]`, reason: 'must have one source only' }],
  );
}

function containerErrors(container: Container, volumes: ReadonlySet<string>, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, entry] of (container.env ?? []).entries()) {
    const at = `${path}.env[${index}]`;
    if (entry.value !== undefined && entry.value !== '' && entry.valueFrom !== undefined) {
      errors.push({ path: at, reason: 'must have value or valueFrom, not both' });
    }
    if (entry.valueFrom !== undefined && Object.keys(entry.valueFrom).length !== 1) {
      errors.push({ path: `${at}.valueFrom`, reason: 'must have exactly one source' });
    }
    if (entry.name.includes('=') || entry.name.includes('\0')) {
      errors.push({ path: `${at}.name`, reason: 'must not hold = or NUL' });
    }
  }
  for (const [index, mount] of (container.volumeMounts ?? []).entries()) {
    if (!volumes.has(mount.name)) {
      errors.push({
        path: `${path}.volumeMounts[${index}].name`,
        reason: `there is no volume ${JSON.stringify(mount.name)}`,
      });
    }
  }
  for (const name of ['readinessProbe', 'livenessProbe', 'startupProbe'] as const) {
    const probe = container[name];
    const handlers = isMap(probe) ? ['exec', 'httpGet', 'tcpSocket', 'grpc'].filter((kind) => kind in probe) : [];
    if (probe !== undefined && handlers.length !== 1) {
      errors.push({ path: `${path}.${name}`, reason: 'must have exactly one of exec, httpGet, tcpSocket and grpc' });
    }
  }
  return errors;
}
