import { refOf, refText } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import { registry } from '../base/metrics.ts';
import { encoded, type ResourceJson } from '../policy-compiler/output.ts';
import type { EnvoyJson } from '../proto/resource.ts';
import type { ApiHandler, ApiRequest } from './api.ts';
import { effectivePolicy } from './effective-policy.ts';
import { type ExplainQuery, explainRequest, findSandbox } from './explain.ts';
import type { Published } from './plane.ts';
import type { ControlPlane } from './run.ts';
import { resourcesOf } from './sandbox-resources.ts';

/** One policy in the answer of `GET /status`. */
export interface PolicyStatus {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly generation: number;
  /** Whether the stored form, an older form or nothing is in force. */
  readonly inForce: 'stored' | 'last-good' | 'none';
  readonly errors: readonly { readonly path: string; readonly reason: string }[];
  readonly conditions: readonly unknown[];
}

/** One Envoy in the answer of `GET /status`. */
export interface EnvoyStatus {
  readonly identity: string;
  readonly streams: number;
  /** The last publication that it has acknowledged whole. */
  readonly settled: number;
  readonly upToDate: boolean;
}

/** The answer of `GET /status`. */
export interface PlaneStatus {
  readonly sequence: number;
  readonly sandboxes: number;
  readonly policies: readonly PolicyStatus[];
  readonly envoys: readonly EnvoyStatus[];
}

/** The answer of `GET /compile`: resources by role; those of sidecars by their L4 set. */
export interface CompiledPlane {
  readonly egress: readonly PrintedResource[];
  readonly ingress: readonly PrintedResource[];
  readonly sidecars: Readonly<Record<string, readonly PrintedResource[]>>;
}

export interface PrintedResource {
  readonly type: keyof EnvoyJson;
  readonly name: string;
  /** `[redacted]` for a sensitive resource (D7). */
  readonly resource: unknown;
}

/** What the control plane answers on its socket. */
export function controlPlaneRoutes(plane: ControlPlane): Readonly<Record<string, ApiHandler>> {
  return {
    'GET /status': async () => planeStatus(plane),
    'GET /compile': async ({ query }) => {
      const sandbox = query.get('sandbox');
      return compiled(sandbox === null ? published(plane) : resourcesOf(published(plane), sandbox));
    },
    'POST /explain': async ({ body }) => explain(plane, body),
    'GET /logs': (request) => logs(plane, request),
    'POST /withdrawn': async ({ body }) => {
      await plane.withdrawn(textField(body, 'uid'));
      return {};
    },
    'GET /metrics': async () => ({ metrics: await registry.metrics() }),
  };
}

function published(plane: ControlPlane): Published {
  const value = plane.plane.published;
  if (value === null) {
    throw new CodedError('unavailable', 'nothing has been compiled yet');
  }
  return value;
}

async function explain(plane: ControlPlane, body: unknown): Promise<unknown> {
  const { world, compilation } = published(plane);
  const query = { ...(body as ExplainQuery), sandbox: textField(body, 'sandbox') };
  return query.url === undefined
    ? effectivePolicy(world.facts, compilation, query.sandbox)
    : explainRequest(world.facts, compilation, query);
}

function planeStatus(plane: ControlPlane): PlaneStatus {
  const { world, sequence } = published(plane);
  const records = new Map(world.facts.policies.map((record) => [refText(record.ref), record]));
  const policies = world.policies.map((object): PolicyStatus => {
    const ref = refOf(object);
    const record = records.get(refText(ref));
    const errors = record?.errors ?? [];
    const status = object.status as { readonly conditions?: readonly unknown[] } | undefined;
    return {
      ...ref,
      generation: object.metadata.generation ?? 0,
      inForce: errors.length === 0 ? 'stored' : record?.inForce == null ? 'none' : 'last-good',
      errors,
      conditions: status?.conditions ?? [],
    };
  });
  const envoys = plane.clients().map(({ spiffeId, streams, settled }) => ({
    identity: spiffeId,
    streams,
    settled,
    upToDate: settled >= sequence,
  }));
  return { sequence, sandboxes: world.sandboxes.length, policies, envoys };
}

/** The resources of every role as they may be printed. */
export function compiled({
  compilation,
  ingress,
}: Pick<Published, 'ingress'> & {
  readonly compilation: Pick<Published['compilation'], 'egress' | 'sidecarSets'>;
}): CompiledPlane {
  const sets = [...compilation.sidecarSets].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    egress: compilation.egress.map(printed),
    ingress: ingress.map(printed),
    sidecars: Object.fromEntries(sets.map(([set, resources]) => [set, resources.map(printed)])),
  };
}

/** One resource as it may be printed. */
export function printed(made: ResourceJson): PrintedResource {
  const { type, name, sensitive } = made;
  return { type, name, resource: sensitive ? '[redacted]' : encoded(made).json };
}

async function logs(plane: ControlPlane, request: ApiRequest): Promise<undefined> {
  const { uid } = findSandbox(published(plane).world.facts, request.query.get('sandbox') ?? '');
  const known = plane.decisions.of(uid);
  const tail = request.query.get('tail');
  for (const record of known.slice(tail === null ? 0 : Math.max(0, known.length - Number(tail)))) {
    request.line(record);
  }
  if (request.query.get('follow') === '1' && !request.signal.aborted) {
    const stop = plane.decisions.follow(uid, (record) => request.line(record));
    await new Promise<void>((resolve) => request.signal.addEventListener('abort', () => resolve(), { once: true }));
    stop();
  }
  return undefined;
}

function textField(body: unknown, name: string): string {
  const value = body !== null && typeof body === 'object' ? (body as Record<string, unknown>)[name] : undefined;
  if (typeof value !== 'string' || value === '') {
    throw new CodedError('invalid', `${name}: must be a text`, { fields: [{ path: name, reason: 'must be a text' }] });
  }
  return value;
}
