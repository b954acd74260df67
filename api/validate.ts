import { checkObject } from './check.ts';
import { type Findings, NO_FINDINGS } from './findings.ts';
import { kindNamed } from './kinds.ts';
import type { KubeObject } from './object.ts';
import { isMap } from './schema-check.ts';

/**
 * Everything that is wrong with an object, in the two levels of D2: what `apply` refuses. Nothing is thrown, whatever
 * the object is.
 */
export function validateObject(object: unknown): Findings {
  if (!isMap(object)) {
    return { ...NO_FINDINGS, invalid: [{ path: '', reason: 'must be an object' }] };
  }
  const kind = typeof object['kind'] === 'string' ? kindNamed(object['kind']) : undefined;
  if (kind === undefined) {
    const reason =
      object['kind'] === undefined ? 'is required' : `${JSON.stringify(object['kind'])} is an unknown kind`;
    return { ...NO_FINDINGS, invalid: [{ path: 'kind', reason }] };
  }
  return checkObject(kind, object as unknown as KubeObject);
}
