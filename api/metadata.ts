import type { FieldError } from '../base/errors.ts';
import { annotationErrors, isDnsLabel, isDnsSubdomain, labelErrors } from './names.ts';
import { isMap } from './schema-check.ts';

/** Members of ObjectMeta; the ones that are not read here are accepted, as exported objects carry them. */
const KNOWN = new Set([
  'name',
  'namespace',
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'labels',
  'annotations',
  'ownerReferences',
  'finalizers',
  'managedFields',
  'selfLink',
]);

/** What is wrong with an object's metadata. An absent namespace of a namespaced kind is `default`, and no error. */
export function metadataErrors(metadata: unknown, kind: { kind: string; namespaced: boolean }): FieldError[] {
  if (!isMap(metadata)) {
    return [{ path: 'metadata', reason: metadata === undefined ? 'is required' : 'must be an object' }];
  }
  const errors: FieldError[] = [];
  const { name, namespace } = metadata;
  if (typeof name !== 'string' || name === '') {
    errors.push({ path: 'metadata.name', reason: 'is required' });
  } else if (!isDnsSubdomain(name)) {
    errors.push({ path: 'metadata.name', reason: 'must be lower-case letters, digits, "-" and ".", at most 253' });
  }
  if (namespace !== undefined && namespace !== '') {
    if (!kind.namespaced) {
      errors.push({ path: 'metadata.namespace', reason: `${kind.kind} belongs to no namespace: remove this field` });
    } else if (typeof namespace !== 'string' || !isDnsLabel(namespace)) {
      errors.push({ path: 'metadata.namespace', reason: 'must be lower-case letters, digits and "-", at most 63' });
    }
  }
  for (const key of Object.keys(metadata)) {
    if (!KNOWN.has(key)) {
      errors.push({
        path: `metadata.${key}`,
        reason: key === 'generateName' ? 'is not supported: give a name' : 'is an unknown field',
      });
    }
  }
  if (metadata['labels'] !== undefined) {
    errors.push(...labelErrors(metadata['labels'], 'metadata.labels'));
  }
  if (metadata['annotations'] !== undefined) {
    errors.push(...annotationErrors(metadata['annotations'], 'metadata.annotations'));
  }
  return errors;
}
