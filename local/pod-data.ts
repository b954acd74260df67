import type { ConfigMap, Secret } from '../api/core-kinds.ts';
import type { Container, EnvFrom, EnvVar, Pod, Volume } from '../api/pod.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import { Redacted } from '../base/redacted.ts';
import type { ObjectStore } from '../store/object-store.ts';
import type { VolumeFile } from './container-setup.ts';
import { commandOf, normalised, userOf } from './pod-check.ts';
import type { Settings } from './settings.ts';

/** Where the one file of public roots and the interception CA lies in a sandbox (D21). */
export const CA_BUNDLE_PATH = '/etc/sandgate/ca-bundle.pem';
const TRUST_VARIABLES = [
  'SSL_CERT_FILE',
  'REQUESTS_CA_BUNDLE',
  'CURL_CA_BUNDLE',
  'GIT_SSL_CAINFO',
  'NODE_EXTRA_CA_CERTS',
  'AGENTIO_TRUST_BUNDLE',
];
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** One text of an environment has at most 128 KiB on Linux, and the whole one goes through one. */
const ENVIRONMENT_BYTES = 120 * 1024;
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;

type Values = ReadonlyMap<string, Uint8Array>;

/** What a Pod's containers need from the store. Every error is `config-error`: the object or key is not there (yet). */
export class PodData {
  readonly #store: ObjectStore;
  readonly #pod: Pod;
  readonly #podIp: string;

  constructor(store: ObjectStore, pod: Pod, podIp: string) {
    this.#store = store;
    this.#pod = pod;
    this.#podIp = podIp;
  }

  /** The whole environment of a container (D21) and its argv with `$(NAME)` replaced. */
  async program(
    container: Container,
    settings: Settings,
  ): Promise<{
    readonly env: Redacted<Record<string, string>>;
    readonly argv: readonly string[];
    readonly idle: boolean;
  }> {
    const { argv, env: imageEnv, idle } = commandOf(container, settings.images);
    const env: Record<string, string> = {
      PATH,
      HOME: userOf(this.#pod.spec, container).uid === 0 ? '/root' : '/',
      HOSTNAME: hostnameOf(this.#pod),
      ...imageEnv,
    };
    for (const source of container.envFrom ?? []) {
      Object.assign(env, await this.#all(source));
    }
    for (const variable of container.env ?? []) {
      const value = await this.#one(variable, env);
      if (value !== null) {
        env[variable.name] = value;
      }
    }
    for (const name of TRUST_VARIABLES) {
      env[name] ??= CA_BUNDLE_PATH;
    }
    const bytes = Object.entries(env).reduce(
      (sum, [name, value]) => sum + name.length + Buffer.byteLength(value) + 16,
      0,
    );
    if (bytes > ENVIRONMENT_BYTES) {
      throw new CodedError(
        'config-error',
        `container ${container.name}: the environment has more than ${ENVIRONMENT_BYTES} bytes`,
      );
    }
    return { env: new Redacted(env), argv: argv.map((word) => expand(word, env)), idle };
  }

  /** Files of a secret or configMap volume as one mount of it shows them. */
  async files(volume: Volume): Promise<readonly VolumeFile[]> {
    const source = volume.secret ?? volume.configMap;
    if (source === undefined) {
      return [];
    }
    const name = volume.secret?.secretName ?? volume.configMap?.name ?? '';
    const values = await this.#values(
      volume.secret === undefined ? 'ConfigMap' : 'Secret',
      name,
      source.optional === true,
    );
    const fallback = source.defaultMode ?? 0o644;
    const items = source.items ?? [...values.keys()].sort().map((key) => ({ key, path: key }));
    return items.flatMap((item) => {
      const content = values.get(item.key);
      if (content === undefined && source.optional !== true) {
        throw new CodedError('config-error', `volume ${volume.name}: ${name} has no key ${JSON.stringify(item.key)}`);
      }
      if (item.path.startsWith('/') || item.path.split('/').some((part) => part === '..' || part === '')) {
        throw new CodedError('config-error', `volume ${volume.name}: ${JSON.stringify(item.path)} is no relative path`);
      }
      const mode = ('mode' in item ? item.mode : undefined) ?? fallback;
      return content === undefined ? [] : [{ path: normalised(item.path), content, mode: mode & 0o777 }];
    });
  }

  async #all(source: EnvFrom): Promise<Record<string, string>> {
    const [kind, ref] =
      source.secretRef === undefined
        ? (['ConfigMap', source.configMapRef] as const)
        : (['Secret', source.secretRef] as const);
    const values =
      ref === undefined ? new Map<string, Uint8Array>() : await this.#values(kind, ref.name, ref.optional === true);
    const entries = [...values].map(([key, value]): [string, string] => [`${source.prefix ?? ''}${key}`, text(value)]);
    // As on Kubernetes: a key that cannot be a variable's name is left out.
    return Object.fromEntries(entries.filter(([name, value]) => IDENTIFIER.test(name) && !value.includes('\0')));
  }

  async #one(variable: EnvVar, known: Readonly<Record<string, string>>): Promise<string | null> {
    const from = variable.valueFrom;
    if (from === undefined) {
      return expand(variable.value ?? '', known);
    }
    if (from.fieldRef !== undefined) {
      return this.#field(variable.name, from.fieldRef.fieldPath);
    }
    const ref = from.secretKeyRef ?? from.configMapKeyRef;
    if (ref === undefined) {
      return null;
    }
    const kind = from.secretKeyRef === undefined ? 'ConfigMap' : 'Secret';
    const value = (await this.#values(kind, ref.name, ref.optional === true)).get(ref.key);
    if (value === undefined && ref.optional !== true) {
      throw new CodedError(
        'config-error',
        `env ${variable.name}: ${kind} ${ref.name} has no key ${JSON.stringify(ref.key)}`,
      );
    }
    return value === undefined ? null : text(value);
  }

  #field(variable: string, path: string): string {
    const { metadata, spec } = this.#pod;
    const member = /^metadata\.(labels|annotations)\['(.+)'\]$/.exec(path);
    if (member !== null) {
      return metadata[member[1] as 'labels' | 'annotations']?.[member[2]!] ?? '';
    }
    const fields: Readonly<Record<string, string>> = {
      'metadata.name': metadata.name,
      'metadata.namespace': metadata.namespace ?? '',
      'metadata.uid': metadata.uid ?? '',
      'spec.nodeName': spec.nodeName ?? '',
      'spec.serviceAccountName': 'default',
      'status.podIP': this.#podIp,
      'status.podIPs': this.#podIp,
      'status.hostIP': '',
    };
    const value = Object.hasOwn(fields, path) ? fields[path] : undefined;
    if (value === undefined) {
      throw new CodedError('config-error', `env ${variable}: fieldPath ${JSON.stringify(path)} is not known`);
    }
    return value;
  }

  async #values(kind: 'Secret' | 'ConfigMap', name: string, optional: boolean): Promise<Values> {
    const namespace = this.#pod.metadata.namespace ?? 'default';
    try {
      const object = await this.#store.get(kind, { namespace, name });
      return kind === 'Secret' ? secretValues(object as Secret) : configValues(object as ConfigMap);
    } catch (error) {
      if (!isCoded(error, 'not-found')) {
        throw error;
      }
      if (optional) {
        return new Map();
      }
      throw new CodedError('config-error', `${kind} ${namespace}/${name} is not there`);
    }
  }
}

/** The host name of a Pod: what it asks for, else its name, cut to what a host name may be. */
export function hostnameOf(pod: Pod): string {
  return (pod.spec.hostname ?? pod.metadata.name).split('.')[0]!.slice(0, 63).replace(/-+$/, '');
}

function secretValues(secret: Secret): Values {
  const data = Object.entries(secret.data ?? {}).map(([key, value]) => [key, Buffer.from(value, 'base64')] as const);
  const plain = Object.entries(secret.stringData ?? {}).map(([key, value]) => [key, Buffer.from(value)] as const);
  return new Map<string, Uint8Array>([...data, ...plain]);
}

function configValues(map: ConfigMap): Values {
  const binary = Object.entries(map.binaryData ?? {}).map(
    ([key, value]) => [key, Buffer.from(value, 'base64')] as const,
  );
  const plain = Object.entries(map.data ?? {}).map(([key, value]) => [key, Buffer.from(value)] as const);
  return new Map<string, Uint8Array>([...binary, ...plain]);
}

function text(value: Uint8Array): string {
  return Buffer.from(value).toString('utf8');
}

/** `$(NAME)` becomes the variable's value, `$$` becomes `$`, an unknown name stays as it is. */
function expand(word: string, env: Readonly<Record<string, string>>): string {
  return word.replace(/\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)/g, (all, name?: string) =>
    name === undefined ? '$' : Object.hasOwn(env, name) ? env[name]! : all,
  );
}
