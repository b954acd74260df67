import { findKind, KINDS, type Kind } from '../api/kinds.ts';
import { CodedError } from '../base/errors.ts';
import type { ObjectKey } from '../store/object-store.ts';

/** Namespace of what names none. */
export const DEFAULT_NAMESPACE = 'default';

/** What the words after `get` and `delete` name: whole kinds, or single objects. */
export type Named =
  | { readonly kinds: readonly Kind[]; readonly objects: null }
  | { readonly kinds: readonly Kind[]; readonly objects: readonly NamedObject[] };

export interface NamedObject {
  readonly kind: Kind;
  readonly key: ObjectKey;
}

/** What `all` stands for: everything but values and the plane's own bookkeeping, as with kubectl. */
const ALL = KINDS.filter(({ kind, custom }) => custom || kind === 'Pod' || kind === 'Service');

/**
 * Reads `KIND`, `KIND,KIND`, `all`, `KIND NAME…` and `KIND/NAME…`, with kinds by name, plural or short name; a name may
 * be `NS/NAME`. Throws `usage`.
 */
export function namedObjects(words: readonly string[], namespace: string = DEFAULT_NAMESPACE): Named {
  const [first = '', ...names] = words;
  if (first.includes('/')) {
    const objects = words.map((word) => {
      const [kind = '', ...name] = word.split('/');
      return namedObject(kindOf(kind), name.join('/'), namespace);
    });
    return { kinds: [...new Set(objects.map(({ kind }) => kind))], objects };
  }
  const kinds = first === 'all' ? ALL : [...new Set(first.split(',').map(kindOf))];
  if (names.length === 0) {
    return { kinds, objects: null };
  }
  if (kinds.length > 1) {
    throw new CodedError('usage', `${first} ${names.join(' ')}: names need one kind; give KIND/NAME of each`);
  }
  return { kinds, objects: names.map((name) => namedObject(kinds[0]!, name, namespace)) };
}

function kindOf(text: string): Kind {
  const kind = findKind(text);
  if (kind === undefined) {
    throw new CodedError('usage', `unknown kind ${text || '""'}: ${kindNames()}`);
  }
  return kind;
}

/** Every kind as it may be given. */
export function kindNames(): string {
  return KINDS.map(({ plural, shortNames }) =>
    shortNames.length === 0 ? plural : `${plural} (${shortNames.join(', ')})`,
  ).join(', ');
}

function namedObject(kind: Kind, text: string, namespace: string): NamedObject {
  const parts = text.split('/');
  const name = parts.at(-1) ?? '';
  if (name === '' || parts[0] === '' || parts.length > (kind.namespaced ? 2 : 1)) {
    throw new CodedError(
      'usage',
      `${kind.singular} ${JSON.stringify(text)}: give NAME${kind.namespaced ? ' or NS/NAME' : ''}`,
    );
  }
  return { kind, key: { namespace: kind.namespaced ? (parts.length === 2 ? parts[0]! : namespace) : '', name } };
}

/** The sandbox that `NS/NAME`, or `NAME` in namespace `default`, names. Throws `usage`. */
export function sandboxKey(text: string): ObjectKey {
  const parts = text.split('/');
  if (parts.length > 2 || parts.includes('')) {
    throw new CodedError('usage', `sandbox ${JSON.stringify(text)}: give NS/NAME, or NAME in namespace default`);
  }
  const [name = '', namespace = DEFAULT_NAMESPACE] = parts.reverse();
  return { namespace, name };
}
