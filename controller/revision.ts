import { createHash } from 'node:crypto';
import { isMap } from '../api/schema-check.ts';
import { canonicalJson } from '../base/canonical.ts';

const ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** Each byte of a text as a letter or digit that forms no words (lifecycle §0.3). */
export function safeText(text: string): string {
  return [...Buffer.from(text, 'utf8')].map((byte) => ALPHABET[byte % ALPHABET.length]).join('');
}

function revisionOfText(text: string): string {
  return safeText(createHash('sha256').update(text).digest('hex').slice(0, 9));
}

/**
 * Revision of a pod template: `status.updateRevision` and the Pod label `pod-template-hash`. It depends on the content
 * alone, not on the order of members, nor on members that are null (lifecycle §0.3).
 */
export function templateRevision(template: unknown): string {
  return revisionOfText(canonicalJson(withoutNulls(template)));
}

/** Revision of what cannot change in place: labels, annotations, images and resources left out. */
export function immutableRevision(template: unknown): string {
  if (!isMap(template)) {
    return templateRevision(template);
  }
  const { metadata, spec } = template;
  const meta = isMap(metadata) ? omit(metadata, ['labels', 'annotations']) : metadata;
  const lists = isMap(spec)
    ? Object.fromEntries(['containers', 'initContainers'].map((list) => [list, bare(spec[list])]))
    : {};
  return templateRevision({ ...template, metadata: meta, spec: isMap(spec) ? { ...spec, ...lists } : spec });
}

function bare(containers: unknown): unknown {
  return Array.isArray(containers)
    ? containers.map((container: unknown) => (isMap(container) ? omit(container, ['image', 'resources']) : container))
    : containers;
}

function omit(map: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(map).filter(([name]) => !names.includes(name)));
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(withoutNulls);
  }
  if (!isMap(value)) {
    return value ?? null;
  }
  const kept = Object.entries(value).filter(([, member]) => member !== null && member !== undefined);
  return Object.fromEntries(kept.map(([name, member]) => [name, withoutNulls(member)]));
}
