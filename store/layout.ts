import { chmodSync, lstatSync, mkdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { CodedError, errorText } from '../base/errors.ts';

/** The folders of a directory store (D16). */
export interface Layout {
  /** The directory itself, without links in its path. */
  readonly root: string;
  /** `DIR/.sandgate`. */
  readonly own: string;
  readonly state: string;
  /** The log of all objects: state/objects. */
  readonly objects: string;
}

/** The product's own folder in a directory. */
export const OWN_FOLDER = '.sandgate';
/** The settings in a directory; no manifest. */
export const SETTINGS_FILES: readonly string[] = ['sandgate.yaml', 'sandgate.yml'];

/** Makes the product's folders, mode 0700. Throws `unavailable` where the directory is missing or cannot be used. */
export function prepareLayout(directory: string): Layout {
  let root: string;
  try {
    root = realpathSync(directory);
  } catch (error) {
    throw new CodedError('unavailable', `${directory} cannot be used: ${errorText(error)}`, { cause: error });
  }
  const own = join(root, OWN_FOLDER);
  const state = join(own, 'state');
  const objects = join(state, 'objects');
  for (const path of [own, state, objects, join(own, 'pki'), join(own, 'sandboxes')]) {
    makePrivate(path);
  }
  // `run` may be a link to a shorter path, made by whoever serves sockets there.
  if (lstatSync(join(own, 'run'), { throwIfNoEntry: false })?.isSymbolicLink() !== true) {
    makePrivate(join(own, 'run'));
  }
  return { root, own, state, objects };
}

function makePrivate(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700, recursive: true });
    if (!lstatSync(path).isDirectory()) {
      throw new Error('it is not a folder');
    }
    chmodSync(path, 0o700);
  } catch (error) {
    throw new CodedError('unavailable', `${path} cannot be used: ${errorText(error)}`, { cause: error });
  }
}
