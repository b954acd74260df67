import type { Condition } from '../api/common.ts';
import { findCondition } from '../api/conditions.ts';
import { parseDuration } from '../api/duration.ts';
import { ANNOTATION_ACCESS_TOKEN, LABEL_SANDBOX_ID } from '../api/labels.ts';
import { type KubeObject, type ObjectRef, refOf } from '../api/object.ts';
import { canonicalAddress } from '../base/addresses.ts';
import { contentHash } from '../base/canonical.ts';
import type { Clock } from '../base/clock.ts';
import { Redacted } from '../base/redacted.ts';
import { member } from './sandboxes.ts';

/** What requests see of a sandbox's life (ingress-gateway §4.1). */
export type RouteState = 'creating' | 'available' | 'running' | 'paused' | 'dead';

/** How the ingress reaches one sandbox, projected from its object (ingress-gateway §5.1). */
export interface RouteRecord {
  readonly id: string;
  readonly ref: ObjectRef;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly state: RouteState;
  /** Address of its Pod, canonical; empty while there is none. */
  readonly address: string;
  /** What a caller must show as `x-access-token`; null: nothing is stored, and nobody is let in (D9). */
  readonly token: Redacted | null;
  /** Whether it asked for JWT authentication. */
  readonly requireTrafficAuth: boolean;
  /** Whether an authenticated request wakes it (D17). */
  readonly wakeOnTraffic: boolean;
  /** `pauseTimeout` of the wake rule in milliseconds; null when absent or not positive. */
  readonly pauseTimeoutMs: number | null;
  /** Whether it sleeps, or is on its way there or back: what a wake is for, with or without an address (D9). */
  readonly resting: boolean;
  /** Whether it is asleep and can be resumed. */
  readonly asleep: boolean;
  /** Whether it has ended or is about to: a wake has nothing to wait for. */
  readonly ended: boolean;
}

const LEGACY_TOKEN = 'e2b.agents.kruise.io/envd-access-token';
const JWT_OPT_IN = 'security.agents.kruise.io/enable-jwt-auth';

/** Projects a Sandbox; `now` in milliseconds decides whether its shutdown time has passed. Never throws. */
export function routeOf(sandbox: KubeObject, now: number): RouteRecord {
  const { metadata, spec, status } = sandbox;
  const label = metadata.labels?.[LABEL_SANDBOX_ID] ?? '';
  const annotations = metadata.annotations ?? {};
  const token = annotations[ANNOTATION_ACCESS_TOKEN] || annotations[LEGACY_TOKEN] || '';
  const rule = member(member(member(spec, 'autoPausePolicy'), 'resume'), 'onIngressTraffic');
  const timeout = parseDuration(String(member(rule, 'pauseTimeout') ?? ''));
  const conditions = member(status, 'conditions') as readonly Condition[] | undefined;
  const paused = findCondition(conditions, 'SandboxPaused')?.status === 'True';
  const phase = member(status, 'phase');
  const address = member(member(status, 'podInfo'), 'podIP');
  return {
    id: label === '' ? `${metadata.namespace ?? ''}--${metadata.name}` : label,
    ref: refOf(sandbox),
    uid: metadata.uid ?? '',
    resourceVersion: metadata.resourceVersion ?? '',
    state: stateOf(sandbox, now),
    address: typeof address === 'string' ? (canonicalAddress(address) ?? '') : '',
    token: token === '' ? null : new Redacted(token),
    requireTrafficAuth: annotations[JWT_OPT_IN] === 'true',
    wakeOnTraffic: rule !== undefined && rule !== null && !isPooled(metadata),
    pauseTimeoutMs: timeout !== null && timeout > 0 ? timeout : null,
    resting: phase === 'Paused' || phase === 'Resuming' || (phase === 'Running' && member(spec, 'paused') === true),
    asleep: phase === 'Paused' && paused,
    ended: hasEnded(sandbox, now),
  };
}

/** Whether it belongs to a pool and is nobody's yet: nothing wakes it (ingress-gateway §3.2, D17). */
function isPooled({ ownerReferences }: KubeObject['metadata']): boolean {
  return ownerReferences?.some(({ kind, controller }) => kind === 'SandboxSet' && controller === true) === true;
}

/** First match wins (ingress-gateway §4.1). */
function stateOf({ metadata, spec, status }: KubeObject, now: number): RouteState {
  const phase = member(status, 'phase');
  const conditions = member(status, 'conditions') as readonly Condition[] | undefined;
  const isReady = findCondition(conditions, 'Ready')?.status === 'True';
  if ((member(member(status, 'podInfo'), 'podIP') ?? '') === '') {
    return 'creating';
  }
  if (hasEnded({ metadata, spec, status }, now)) {
    return 'dead';
  }
  if (phase === 'Pending') {
    return 'creating';
  }
  if (isPooled(metadata)) {
    return isReady ? 'available' : 'creating';
  }
  if (phase === 'Running') {
    return member(spec, 'paused') === true ? 'paused' : isReady ? 'running' : 'dead';
  }
  return 'paused';
}

/** Rows 1, 2 and 4 of ingress-gateway §4.1; exactly at its shutdown time a sandbox is still alive. */
function hasEnded({ metadata, spec, status }: Pick<KubeObject, 'metadata' | 'spec' | 'status'>, now: number): boolean {
  const shutdown = Date.parse(String(member(spec, 'shutdownTime') ?? ''));
  const phase = member(status, 'phase');
  return (
    metadata.deletionTimestamp !== undefined ||
    shutdown < now ||
    phase === 'Succeeded' ||
    phase === 'Failed' ||
    phase === 'Terminating'
  );
}

/** How long the holder of a token learns that its sandbox is gone (D9). */
const TOMBSTONE_MS = 3_600_000;
const MAX_TOMBSTONES = 100_000;

/**
 * The routes by id. An id belongs to the object that took it last; when an object ends, a hash of its id and token stays
 * for an hour, so that who holds the token is told that the sandbox is gone, and nobody else (D9).
 */
export class RouteTable {
  readonly #clock: Clock;
  readonly #byUid = new Map<string, RouteRecord>();
  /** The objects whose shutdown time is to come: nothing tells when it has passed (ingress-gateway §9.2 row 69). */
  readonly #ending = new Map<string, KubeObject>();
  readonly #byId = new Map<string, string>();
  readonly #tombstones = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#byUid.size;
  }

  /** Takes the present form of a Sandbox. */
  set(sandbox: KubeObject): RouteRecord {
    const route = routeOf(sandbox, this.#clock.now());
    const before = this.#byUid.get(route.uid);
    if (before !== undefined && before.id !== route.id) {
      this.#release(before);
    }
    this.#byUid.set(route.uid, route);
    this.#byId.set(route.id, route.uid);
    if (route.ended || member(sandbox.spec, 'shutdownTime') === undefined) {
      this.#ending.delete(route.uid);
    } else {
      this.#ending.set(route.uid, sandbox);
    }
    return route;
  }

  /** The Sandbox is gone. */
  delete(sandbox: KubeObject): void {
    const route = this.#byUid.get(sandbox.metadata.uid ?? '');
    if (route !== undefined) {
      this.#byUid.delete(route.uid);
      this.#ending.delete(route.uid);
      this.#release(route);
      this.#bury(route);
    }
  }

  lookup(id: string): RouteRecord | undefined {
    const route = this.byUid(this.#byId.get(id) ?? '');
    return route?.id === id ? route : undefined;
  }

  byUid(uid: string): RouteRecord | undefined {
    const ending = this.#ending.get(uid);
    const now = this.#clock.now();
    if (ending !== undefined && hasEnded(ending, now)) {
      this.#ending.delete(uid);
      this.#byUid.set(uid, routeOf(ending, now));
    }
    return this.#byUid.get(uid);
  }

  /** Whether this id and token belonged to a sandbox that ended within the last hour. */
  isTombstone(id: string, token: string): boolean {
    const buried = this.#tombstones.get(tombstone(id, token));
    return buried !== undefined && this.#clock.now() - buried < TOMBSTONE_MS;
  }

  #release(route: RouteRecord): void {
    if (this.#byId.get(route.id) === route.uid) {
      this.#byId.delete(route.id);
    }
  }

  #bury(route: RouteRecord): void {
    if (route.token === null) {
      return;
    }
    this.#tombstones.set(tombstone(route.id, route.token.reveal()), this.#clock.now());
    for (const [key, at] of this.#tombstones) {
      if (this.#tombstones.size <= MAX_TOMBSTONES && this.#clock.now() - at < TOMBSTONE_MS) {
        break; // In the order of their deaths: everything behind is younger.
      }
      this.#tombstones.delete(key);
    }
  }
}

function tombstone(id: string, token: string): string {
  return contentHash(`${id}\n${token}`, 64);
}
