import { posix } from 'node:path';
import { refusedFields } from '../api/field-classes.ts';
import type { Container, PodSpec } from '../api/pod.ts';
import { isMap } from '../api/schema-check.ts';
import type { FieldError } from '../base/errors.ts';
import type { Settings } from './settings.ts';

/** Node of the product itself, for commands that ask for it by this path. */
export const PRODUCT_NODE = '/opt/sandgate/node';

/** Folders whose programs and libraries start a container: nothing may be mounted over, above or below them. */
const SYSTEM = [
  ...['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/proc', '/sys', '/dev', '/etc'],
  ...['/.old', '/opt/sandgate', '/etc/sandgate'],
];
/** Parts of them that hold neither. */
const OPEN = ['/usr/local', '/usr/share', '/usr/src', '/etc', '/dev/shm'];
const CLOSED = /^\/etc\/(ld\.so|sandgate|ssl|pki|alternatives|passwd|group|nsswitch)/;
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Why a Pod cannot be run here at all: fields that are refused (D19), and what this agent's way of starting containers
 * does not allow. Empty when it can.
 */
export function podProblems(spec: PodSpec): FieldError[] {
  return [
    ...refusedFields('Pod', spec),
    ...spec.containers.flatMap((container, index) => containerProblems(spec, container, `spec.containers[${index}]`)),
  ];
}

function containerProblems(spec: PodSpec, container: Container, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, variable] of (container.env ?? []).entries()) {
    if (!IDENTIFIER.test(variable.name)) {
      errors.push({
        path: `${path}.env[${index}].name`,
        reason: 'must be letters, digits and _, not beginning with a digit',
      });
    }
  }
  if (container.workingDir !== undefined && !container.workingDir.startsWith('/')) {
    errors.push({ path: `${path}.workingDir`, reason: 'must be an absolute path' });
  }
  const mounts = container.volumeMounts ?? [];
  for (const [index, mount] of mounts.entries()) {
    const reason =
      mountProblem(mount.mountPath, mounts.map(({ mountPath }) => mountPath).toSpliced(index, 1)) ??
      (mount.subPath === undefined || mount.subPath === '' ? null : subPathProblem(spec, mount.name, mount.subPath));
    if (reason !== null) {
      errors.push({ path: `${path}.volumeMounts[${index}]`, reason });
    }
    if (!(spec.volumes ?? []).some(({ name }) => name === mount.name)) {
      errors.push({
        path: `${path}.volumeMounts[${index}].name`,
        reason: `there is no volume ${JSON.stringify(mount.name)}`,
      });
    }
  }
  return errors;
}

function mountProblem(mountPath: string, others: readonly string[]): string | null {
  if (!mountPath.startsWith('/') || mountPath.split('/').includes('..')) {
    return 'mountPath must be absolute, without ".."';
  }
  const path = normalised(mountPath);
  if (others.some((other) => isWithin(path, normalised(other)))) {
    return 'mountPath lies in another mount of the container, which is not carried out';
  }
  const allowed = OPEN.some((open) => path !== open && isWithin(path, open)) && !CLOSED.test(path);
  const system = SYSTEM.find((folder) => isWithin(path, folder) || isWithin(folder, path));
  return system === undefined || (allowed && path !== system) || path === '/dev/shm'
    ? null
    : `mountPath covers or lies in ${system}, which the container is started from`;
}

/** A link in a volume that a sandbox writes could lead anywhere, so only volumes that nobody can write have parts. */
function subPathProblem(spec: PodSpec, volumeName: string, subPath: string): string | null {
  const volume = (spec.volumes ?? []).find(({ name }) => name === volumeName);
  if (volume?.secret === undefined && volume?.configMap === undefined) {
    return 'subPath is carried out for secret and configMap volumes only';
  }
  return subPath.startsWith('/') || subPath.split('/').includes('..') ? 'subPath must be relative, without ".."' : null;
}

/** An absolute path without empty parts and without `/` at its end. */
export function normalised(path: string): string {
  const text = posix.normalize(path);
  return text.length > 1 && text.endsWith('/') ? text.slice(0, -1) : text;
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === '/' ? '/' : `${folder}/`);
}

/**
 * argv of a container and what stands behind it: its own command, else what the settings name for its image, else
 * `idle` (images are not pulled, so nothing else is known about them).
 */
export function commandOf(
  container: Container,
  images: Settings['images'],
): { readonly argv: readonly string[]; readonly env: Readonly<Record<string, string>>; readonly idle: boolean } {
  const image = Object.hasOwn(images, container.image ?? '') ? images[container.image ?? ''] : undefined;
  const command = container.command ?? [];
  const args = container.args ?? [];
  const env = image?.env ?? {};
  if (command.length > 0) {
    return { argv: [...command, ...args], env, idle: false };
  }
  return image === undefined
    ? { argv: ['sleep', 'infinity'], env, idle: true }
    : { argv: [...image.command, ...args], env, idle: false };
}

/** The user that a container asks for, as ids inside; 0 when it asks for none. Throws nothing: other types count as 0. */
export function userOf(spec: PodSpec, container: Container): { readonly uid: number; readonly gid: number } {
  const pick = (field: 'runAsUser' | 'runAsGroup'): number | null => {
    for (const context of [container.securityContext, spec.securityContext]) {
      const value = isMap(context) ? context[field] : undefined;
      if (Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31) {
        return value as number;
      }
    }
    return null;
  };
  const uid = pick('runAsUser') ?? 0;
  return { uid, gid: pick('runAsGroup') ?? uid };
}
