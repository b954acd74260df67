import { ANNOTATION_ACCESS_TOKEN, ANNOTATION_IMMUTABLE_HASH, LABEL_SANDBOX_ID } from '../api/labels.ts';
import type { KubeObject } from '../api/object.ts';
import { isMap } from '../api/schema-check.ts';
import { canonicalJson } from '../base/canonical.ts';
import { isCoded } from '../base/errors.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { keyOf } from './documents.ts';

export type Applied = 'created' | 'configured' | 'unchanged';

const ATTEMPTS = 10;

/**
 * Stores what a manifest says, or with `dryRun` only tells what that would be. Somebody else may change the object
 * between the look and the change: then it is looked at again.
 */
export async function applyObject(store: ObjectStore, object: KubeObject, dryRun = false): Promise<Applied> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await attemptOne(store, object, dryRun);
    } catch (error) {
      const isRace = ['conflict', 'already-exists', 'not-found'].some((code) => isCoded(error, code));
      if (!isRace || attempt === ATTEMPTS) {
        throw error;
      }
    }
  }
}

async function attemptOne(store: ObjectStore, object: KubeObject, dryRun: boolean): Promise<Applied> {
  const key = keyOf(object);
  const stored = await store.get(object.kind, key).catch((error: unknown) => {
    if (isCoded(error, 'not-found')) {
      return null;
    }
    throw error;
  });
  const metadata = { ...object.metadata, ...(key.namespace === '' ? {} : { namespace: key.namespace }) };
  if (stored === null) {
    if (!dryRun) {
      await store.create({ ...object, metadata });
    }
    return 'created';
  }
  const next = merged(stored, { ...object, metadata });
  if (canonicalJson(ownPart(stored)) === canonicalJson(ownPart(next))) {
    return 'unchanged';
  }
  if (!dryRun) {
    await store.replace(next);
  }
  return 'configured';
}

/** What a person writes; the rest of an object is the plane's. */
export function ownPart(object: KubeObject): object {
  const { status: _status, metadata, ...rest } = object;
  return { ...rest, metadata: { labels: metadata.labels ?? {}, annotations: metadata.annotations ?? {} } };
}

/** What the controller writes onto a Sandbox once: a manifest that does not mention it leaves it as it is (D17). */
const MINTED = {
  labels: [LABEL_SANDBOX_ID],
  annotations: [ANNOTATION_ACCESS_TOKEN, ANNOTATION_IMMUTABLE_HASH],
} as const;

/**
 * The stored object with everything that the manifest says; what it leaves out goes away, but for {@link MINTED} and the
 * pause of a Sandbox, which `sandgate pause`, a timer or a client has asked for and an apply must not end by the way.
 */
function merged(stored: KubeObject, object: KubeObject): KubeObject {
  const { labels: _labels, annotations: _annotations, ...identity } = stored.metadata;
  const mapOf = (field: 'labels' | 'annotations') => {
    const minted = object.kind === 'Sandbox' ? (MINTED[field] as readonly string[]) : [];
    const kept = Object.entries(stored.metadata[field] ?? {}).filter(([key]) => minted.includes(key));
    const map = { ...Object.fromEntries(kept), ...object.metadata[field] };
    return Object.keys(map).length === 0 ? {} : { [field]: map };
  };
  return {
    ...object,
    ...(object.kind === 'Sandbox' ? { spec: withPause(stored.spec, object.spec) } : {}),
    ...(stored.status === undefined ? {} : { status: stored.status }),
    metadata: { ...identity, ...mapOf('labels'), ...mapOf('annotations') },
  };
}

function withPause(stored: unknown, given: unknown): unknown {
  const isKept = isMap(stored) && isMap(given) && Object.hasOwn(stored, 'paused') && !Object.hasOwn(given, 'paused');
  return isKept ? { ...given, paused: stored['paused'] } : given;
}
