import { parseDuration } from '../api/duration.ts';
import { ANNOTATION_RETENTION } from '../api/labels.ts';
import type { SandboxView } from './sandbox-view.ts';

/** What the clock asks of a Sandbox now (lifecycle §1.6). */
export type TimerAction =
  | { readonly kind: 'none' }
  | { readonly kind: 'delete' }
  /** A merge patch of the spec. */
  | { readonly kind: 'pause'; readonly spec: Readonly<Record<string, unknown>>; readonly badRetention: boolean };

const FOREVER_MS = 36_500 * 24 * 3600 * 1000;
const FINISHED = new Set(['Failed', 'Succeeded']);

/** Which timer fires. A shutdown counts in every phase, a pause only for a Sandbox that can still be paused. */
export function dueTimer(view: SandboxView, now: number): TimerAction {
  const pauses =
    !view.paused && view.pauseTime !== null && view.pauseTime <= now && !FINISHED.has(view.status.phase ?? '');
  const retained = Object.hasOwn(view.annotations, ANNOTATION_RETENTION);
  if (view.shutdownTime !== null && view.shutdownTime < now && !(retained && pauses)) {
    return { kind: 'delete' };
  }
  if (!pauses) {
    return { kind: 'none' };
  }
  const { milliseconds, bad } = retention(view.annotations[ANNOTATION_RETENTION]);
  const kept = retained && view.shutdownTime !== null;
  const end = `${new Date(now + milliseconds).toISOString().slice(0, 19)}Z`;
  return {
    kind: 'pause',
    spec: { paused: true, ...(kept ? { shutdownTime: end, pauseTime: end } : {}) },
    badRetention: kept && bad,
  };
}

/** A positive duration, or `forever`; anything else counts as `forever` and is reported. */
function retention(value: unknown): { readonly milliseconds: number; readonly bad: boolean } {
  if (value === 'forever') {
    return { milliseconds: FOREVER_MS, bad: false };
  }
  const milliseconds = typeof value === 'string' ? parseDuration(value) : null;
  return milliseconds !== null && milliseconds > 0
    ? { milliseconds: Math.min(milliseconds, FOREVER_MS), bad: false }
    : { milliseconds: FOREVER_MS, bad: true };
}

/** Milliseconds until the next timer of a Sandbox, or null when none is to come. */
export function nextTimer(view: SandboxView, now: number): number | null {
  const pause = !view.paused && !FINISHED.has(view.status.phase ?? '') ? view.pauseTime : null;
  // A shutdown fires strictly after its time.
  const shutdown = view.shutdownTime === null ? null : view.shutdownTime + 1;
  const times = [pause, shutdown].filter((time) => time !== null && time > now);
  return times.length === 0 ? null : Math.min(...times.map((time) => time! - now));
}
