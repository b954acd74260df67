import { allFindings } from '../api/findings.ts';
import { type KubeObject, type ObjectRef, refOf } from '../api/object.ts';
import type { PodTemplate } from '../api/pod.ts';
import type { SandboxStatus } from '../api/sandbox.ts';
import { templateErrors } from '../api/sandbox-check.ts';
import { isMap } from '../api/schema-check.ts';
import { validateObject } from '../api/validate.ts';
import type { FieldError } from '../base/errors.ts';

/** How a Sandbox is paused: its processes freeze, or its Pod goes. */
export type PauseKind = 'freeze' | 'stop' | 'refused';

/**
 * A stored Sandbox as its reconciler reads it. The object may be malformed in any way: what cannot be read counts as
 * absent, and `errors` says what is wrong (crds §0.3).
 */
export interface SandboxView {
  readonly ref: ObjectRef;
  readonly uid: string;
  readonly generation: number;
  readonly resourceVersion: string;
  readonly deleting: boolean;
  readonly finalizers: readonly string[];
  readonly labels: Readonly<Record<string, unknown>>;
  readonly annotations: Readonly<Record<string, unknown>>;
  readonly paused: boolean;
  readonly pauseKind: PauseKind;
  /** Milliseconds since the epoch; null when absent or unreadable. */
  readonly shutdownTime: number | null;
  readonly pauseTime: number | null;
  /** Whether a template is asked for at all, inline or by reference. */
  readonly hasTemplate: boolean;
  /** The inline template as stored, for its revision. */
  readonly rawTemplate: unknown;
  /** The inline template when it is well formed. */
  readonly template: PodTemplate | null;
  readonly status: SandboxStatus;
  readonly errors: readonly FieldError[];
  readonly object: KubeObject;
}

/** Reads a stored Sandbox. Throws nothing. */
export function viewSandbox(object: KubeObject): SandboxView {
  const spec: Readonly<Record<string, unknown>> = isMap(object.spec) ? object.spec : {};
  const status = isMap(object.status) ? (object.status as SandboxStatus) : {};
  const { metadata } = object;
  const template = spec['template'];
  const wellFormed = template !== undefined && templateErrors(template).length === 0;
  return {
    ref: refOf(object),
    uid: metadata.uid ?? '',
    generation: metadata.generation ?? 0,
    resourceVersion: metadata.resourceVersion ?? '',
    deleting: metadata.deletionTimestamp !== undefined,
    finalizers: Array.isArray(metadata.finalizers) ? metadata.finalizers : [],
    labels: isMap(metadata.labels) ? metadata.labels : {},
    annotations: isMap(metadata.annotations) ? metadata.annotations : {},
    paused: spec['paused'] === true,
    pauseKind: pauseKind(spec['pauseStrategy']),
    shutdownTime: timeOf(spec['shutdownTime']),
    pauseTime: timeOf(spec['pauseTime']),
    hasTemplate: template !== undefined || spec['templateRef'] !== undefined,
    rawTemplate: template ?? spec['templateRef'],
    template: wellFormed ? (template as PodTemplate) : null,
    status: Array.isArray(status.conditions) ? status : { ...status, conditions: [] },
    errors: allFindings(validateObject(object)),
    object,
  };
}

function pauseKind(strategy: unknown): PauseKind {
  const type = isMap(strategy) ? strategy['type'] : undefined;
  return type === undefined ? 'freeze' : type === 'Stop' ? 'stop' : 'refused';
}

function timeOf(value: unknown): number | null {
  const milliseconds = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(milliseconds) ? null : milliseconds;
}
