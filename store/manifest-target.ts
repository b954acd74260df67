import { join } from 'node:path';
import { type KubeObject, refOf } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import { readSource } from './file-swap.ts';
import { parseManifest } from './manifest.ts';
import { editManifest, removeDocument, renderManifest } from './manifest-edit.ts';
import type { ManifestIndex } from './manifest-index.ts';
import { objectKey } from './manifest-reader.ts';
import type { KindLookup } from './object-store.ts';

/** A manifest that a commit changes, and how: from the present content to the new one; null is no file. */
export interface Target {
  readonly path: string;
  readonly content: (text: string | null) => string | null;
}

/** Kinds that only controllers make. */
const INTERNAL_KINDS: ReadonlySet<string> = new Set(['Pod', 'ControllerRevision', 'Lease', 'Event']);

/** Whether the object is a controller's: it never becomes a manifest. */
export function isInternal(object: KubeObject): boolean {
  const labels = object.metadata.labels as Readonly<Record<string, unknown>> | undefined;
  return INTERNAL_KINDS.has(object.kind) || labels?.['app.kubernetes.io/managed-by'] === 'sandgate';
}

/** The manifest of a new object: `objects/<kind>/<namespace>/<name>.yaml`, numbered when that name is taken. */
export function newManifest(root: string, index: ManifestIndex, form: KubeObject): Target {
  const { kind, namespace, name } = refOf(form);
  const folder = ['objects', kind.toLowerCase(), ...(namespace === '' ? [] : [namespace])].join('/');
  for (let number = 1; ; number += 1) {
    const path = `${folder}/${name}${number === 1 ? '' : `.${number}`}.yaml`;
    if (index.get(path) === undefined && readSource(join(root, path)) === null) {
      return { path, content: () => renderManifest(form) };
    }
  }
}

/** What one object of a manifest is to become; `next` null takes it out. */
export interface ManifestChange {
  readonly text: string | null;
  readonly path: string;
  readonly key: string;
  readonly next: KubeObject | null;
}

/** The content of a manifest with one object changed; null when nothing is left. Throws `unavailable`. */
export function changedManifest({ text, path, key, next }: ManifestChange, kinds: KindLookup): string | null {
  const found = parseManifest(text ?? '', kinds).objects.find((object) => objectKey(object.form) === key);
  if (text === null || found === undefined) {
    throw new CodedError('unavailable', `${path} is not valid YAML at present: mend it first`);
  }
  return next === null ? removeDocument(text, found.index) : editManifest(text, found.index, found.form, next, kinds);
}
