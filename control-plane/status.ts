import type { Condition } from '../api/common.ts';
import { type ConditionValue, setCondition, withoutConditions } from '../api/conditions.ts';
import type { PolicyRecord } from '../api/facts.ts';
import { type KubeObject, refOf, refText } from '../api/object.ts';
import { validateObject } from '../api/validate.ts';
import { canonicalJson } from '../base/canonical.ts';
import type { Clock } from '../base/clock.ts';
import { errorText, type FieldError, isCoded } from '../base/errors.ts';
import { sameItems } from '../base/items.ts';
import type { Logger } from '../base/logger.ts';
import type { Finding } from '../policy-compiler/output.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { lastGoodRevision, revisionName } from '../world/last-good.ts';
import { ENVOY_REJECTED } from '../world/records.ts';
import { member } from '../world/sandboxes.ts';

/** How far the Envoys are with what is published. */
export interface Progress {
  /** Envoys that are connected. */
  readonly connected: number;
  /** How many of them have acknowledged a publication, by its sequence number. */
  settledAt(sequence: number): number;
}

/** Everything that the conditions of one policy are made from. */
export interface PolicyState {
  readonly object: KubeObject;
  readonly record: PolicyRecord;
  readonly findings: readonly Finding[];
  /** The first publication that has this generation. */
  readonly sequence: number;
  /** Why an Envoy refused what this generation was compiled to; null when none did. */
  readonly refused: string | null;
}

/** Conditions of a policy (crds §11.6, D31): accepted, resolved, enforceable, and in how many Envoys it is in force. */
export function policyConditions(state: PolicyState, progress: Progress): readonly ConditionValue[] {
  const { record, refused } = state;
  const [error] = record.errors;
  const invalid = error !== undefined && refused === null;
  const accepted: ConditionValue = invalid
    ? {
        type: 'Accepted',
        status: 'False',
        reason: invalidReason(record),
        message: record.errors.map(({ path, reason }) => `${path}: ${reason}`).join('; '),
      }
    : { type: 'Accepted', status: 'True', reason: 'Accepted' };
  return [accepted, programmed(state, progress, invalid), ...findingConditions(state)];
}

function invalidReason(record: PolicyRecord): string {
  const text = record.errors[0]?.reason ?? '';
  return /regular expression|regex/i.test(text)
    ? 'InvalidRegex'
    : /template/i.test(text)
      ? 'InvalidTemplate'
      : /unknown field/i.test(text)
        ? 'UnknownField'
        : 'Invalid';
}

function programmed(state: PolicyState, progress: Progress, invalid: boolean): ConditionValue {
  const type = 'Programmed';
  const fallback =
    state.record.inForce === null ? 'the sandboxes that it selects are denied' : 'the last good form is in force';
  if (state.refused !== null) {
    return { type, status: 'False', reason: ENVOY_REJECTED, message: state.refused };
  }
  if (invalid) {
    return { type, status: 'False', reason: 'NotAccepted', message: `not accepted: ${fallback}` };
  }
  const settled = progress.settledAt(state.sequence);
  const message = `${settled} of ${progress.connected} Envoys`;
  return progress.connected > 0 && settled === progress.connected
    ? { type, status: 'True', reason: 'Programmed', message }
    : { type, status: 'False', reason: progress.connected === 0 ? 'NoEnvoyConnected' : 'Pending', message };
}

/** One condition per type of finding; the bad ones come first, their texts together. */
function findingConditions({ object, findings }: PolicyState): readonly ConditionValue[] {
  const { omitted, warned } = uselessParts(object);
  const own = [...omitted, ...warned];
  const types = [...new Set([...findings.map(({ type }) => type), ...(own.length > 0 ? ['Enforceable'] : [])])];
  return types.sort().map((type) => {
    const bad = findings.filter((finding) => finding.type === type && finding.status === 'False');
    const texts = [...bad.map(({ message }) => message), ...(type === 'Enforceable' ? own : [])];
    return texts.length === 0
      ? { type, status: 'True', reason: type }
      : {
          type,
          status: 'False',
          reason: bad[0]?.reason ?? (omitted.length > 0 ? 'RulesOmitted' : 'NoEffect'),
          message: texts.join('; '),
        };
  });
}

interface UselessParts {
  readonly omitted: readonly string[];
  readonly warned: readonly string[];
}

const uselessKnown = new WeakMap<KubeObject, UselessParts>();

/** What of a stored object is left out (D2) or has no effect, worked out once an object. */
function uselessParts(object: KubeObject): UselessParts {
  let parts = uselessKnown.get(object);
  if (parts === undefined) {
    const { omitted, warnings } = validateObject(object);
    const text = ({ path, reason }: FieldError) => `${path}: ${reason}`;
    parts = { omitted: omitted.map(text), warned: warnings.map(text) };
    uselessKnown.set(object, parts);
  }
  return parts;
}

const OURS = ['Accepted', 'Programmed', 'ResolvedRefs', 'Enforceable'];

/** Everything that {@link policyConditions} reads beside the object itself. */
interface Done extends Pick<PolicyState, 'record' | 'findings' | 'refused'> {
  readonly connected: number;
  readonly settled: number;
}

/** Conditions that are written at once. */
const AT_ONCE = 16;

/** Writes conditions back onto policies, and keeps the last form of each that every connected Envoy took (D2). */
export class StatusWriter {
  readonly #store: ObjectStore;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #rootNamespace: string;
  readonly #kept = new Map<string, number>();
  /** What an object has conditions for already, so that thousands of unchanged ones cost a look. */
  readonly #done = new WeakMap<KubeObject, Done>();

  constructor(store: ObjectStore, options: { clock: Clock; logger: Logger; rootNamespace: string }) {
    this.#store = store;
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#rootNamespace = options.rootNamespace;
  }

  /**
   * Writes what differs, some at a time: with each of them the world moves, and nobody should wait for a policy because
   * a thousand conditions are being written. `goesOn` is asked in between. An object that cannot be written is logged
   * and does not stop the others.
   */
  async write(states: readonly PolicyState[], progress: Progress, goesOn: () => boolean = () => true): Promise<void> {
    const due = states.filter((state) => !this.#isDone(state, progress));
    for (let at = 0; at < due.length && goesOn(); at += AT_ONCE) {
      const began = performance.now();
      await Promise.all(due.slice(at, at + AT_ONCE).map((state) => this.#attempt(state, progress)));
      if (at + AT_ONCE < due.length) {
        // As long as it took, so that at least half of the time is everybody else's.
        await pause(performance.now() - began);
      }
    }
  }

  #isDone({ object, record, findings, sequence, refused }: PolicyState, progress: Progress): boolean {
    const done = this.#done.get(object);
    return (
      done !== undefined &&
      done.record === record &&
      done.refused === refused &&
      done.connected === progress.connected &&
      done.settled === progress.settledAt(sequence) &&
      sameItems(done.findings, findings)
    );
  }

  async #attempt(state: PolicyState, progress: Progress): Promise<void> {
    try {
      await this.#writeOne(state, progress);
    } catch (error) {
      if (!isCoded(error, 'not-found') && !isCoded(error, 'conflict')) {
        this.#logger.warn({ object: refText(refOf(state.object)), error: errorText(error) }, 'no status written');
      }
    }
  }

  async #writeOne(state: PolicyState, progress: Progress): Promise<void> {
    const { object, record, findings, sequence, refused } = state;
    const generation = object.metadata.generation ?? 0;
    const wanted = policyConditions(state, progress);
    await this.#writeConditions(object, generation, wanted);
    if (wanted.some(({ type, status }) => type === 'Programmed' && status === 'True')) {
      await this.#keep(object, generation);
    }
    const { connected } = progress;
    this.#done.set(object, { record, findings, refused, connected, settled: progress.settledAt(sequence) });
  }

  async #writeConditions(object: KubeObject, generation: number, wanted: readonly ConditionValue[]): Promise<void> {
    const at = { now: new Date(this.#clock.now()).toISOString().replace(/\.\d+Z$/, 'Z'), generation };
    const before = member(object.status, 'conditions') as readonly Condition[] | undefined;
    const gone = OURS.filter((type) => !wanted.some((value) => value.type === type));
    const after = wanted.reduce((list, value) => setCondition(list, value, at), withoutConditions(before, ...gone));
    if (canonicalJson(after) !== canonicalJson(before ?? [])) {
      const key = { namespace: object.metadata.namespace ?? '', name: object.metadata.name };
      const own = object.kind.endsWith('SecurityProfile') ? { observedGeneration: generation } : {};
      await this.#store.patchStatus(object.kind, key, {
        type: 'merge',
        body: { status: { ...own, conditions: after } },
      });
    }
  }

  async #keep(object: KubeObject, generation: number): Promise<void> {
    const uid = object.metadata.uid ?? '';
    if (this.#kept.get(uid) === generation) {
      return;
    }
    const revision = lastGoodRevision(object, this.#rootNamespace);
    const key = { namespace: revision.metadata.namespace ?? '', name: revisionName(object) };
    try {
      const stored = await this.#store.get('ControllerRevision', key);
      if (stored['revision'] !== generation) {
        await this.#store.replace({ ...revision, metadata: { ...stored.metadata, ...revision.metadata } });
      }
    } catch (error) {
      if (!isCoded(error, 'not-found')) {
        throw error;
      }
      await this.#store.create(revision);
    }
    this.#kept.set(uid, generation);
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
