import type { Command } from 'commander';
import { stringify } from 'yaml';
import { findKind, KINDS, type Kind } from '../api/kinds.ts';
import { ANNOTATION_ACCESS_TOKEN, LABEL_SANDBOX_ID } from '../api/labels.ts';
import type { KubeObject } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import { layoutOf } from '../local/layout.ts';
import { readSettings } from '../local/settings.ts';
import { HIDDEN } from './documents.ts';
import { age, outputFormat, table } from './output.ts';
import { readPlaneRecord } from './plane-record.ts';
import { findTarget, type Target, withReadStore } from './target.ts';

interface GetOptions {
  readonly namespace?: string;
  readonly allNamespaces?: boolean;
  readonly output?: string;
  readonly showToken?: boolean;
  readonly dir?: string;
}

const LEGACY_TOKEN = 'e2b.agents.kruise.io/envd-access-token';
/** A whole manifest in one annotation, as another tool leaves it: with everything that is hidden elsewhere. */
const COPY = 'kubectl.kubernetes.io/last-applied-configuration';

/** `sandgate get`: objects of one kind, or one of them. Values of Secrets are never shown, tokens only when asked for. */
export function registerGet(program: Command): void {
  program
    .command('get')
    .description('objects of one kind, or one of them')
    .argument('<kind>', `kind, plural or short name: ${KINDS.map(({ plural }) => plural).join(', ')}`)
    .argument('[name]')
    .option('-n, --namespace <namespace>', 'namespace (default: default for one object, all for a list)')
    .option('-A, --all-namespaces', 'the objects of every namespace')
    .option('-o, --output <format>', 'yaml, json, wide, name, or token (the access token alone, with --show-token)')
    .option('--show-token', 'show access tokens of sandboxes')
    .option('--dir <dir>', 'the directory of the plane')
    .addHelpText('after', '\nExample:\n  $ sandgate get sandbox -o wide\n')
    .action(get);
}

async function get(kindText: string, name: string | undefined, options: GetOptions): Promise<void> {
  const format = outputFormat(options.output, ['yaml', 'json', 'wide', 'name', 'token']);
  const kind = findKind(kindText);
  if (kind === undefined) {
    throw new CodedError('usage', `unknown kind ${kindText}: ${KINDS.map(({ plural }) => plural).join(', ')}`);
  }
  const target = await findTarget(options.dir);
  const objects = await withReadStore(target, async (store) => {
    if (name !== undefined) {
      return [await store.get(kind.kind, { namespace: kind.namespaced ? (options.namespace ?? 'default') : '', name })];
    }
    const { items } = await store.list(kind.kind);
    return items.filter(({ metadata }) => options.namespace === undefined || metadata.namespace === options.namespace);
  });
  if (format === 'token') {
    process.stdout.write(tokens(objects, options.showToken === true));
    return;
  }
  const shown = objects.map((object) => hideSecrets(object, options.showToken === true));
  process.stdout.write(await print(kind, shown, format, name !== undefined, target));
}

function tokens(objects: readonly KubeObject[], isAllowed: boolean): string {
  if (!isAllowed) {
    throw new CodedError('usage', '-o token shows a secret: add --show-token');
  }
  return objects.map(({ metadata }) => `${metadata.annotations?.[ANNOTATION_ACCESS_TOKEN] ?? ''}\n`).join('');
}

/** Secrets show their keys alone; a sandbox's token is hidden unless it is asked for (D7, D17). */
export function hideSecrets(object: KubeObject, showToken: boolean): KubeObject {
  // A stored Secret need not be valid: another shape than a map is hidden whole.
  const hide = (map: unknown) =>
    map !== null && typeof map === 'object' && !Array.isArray(map)
      ? Object.fromEntries(Object.keys(map).map((key) => [key, HIDDEN]))
      : HIDDEN;
  const values = ['data', 'stringData'].filter((field) => object.kind === 'Secret' && object[field] !== undefined);
  const annotations = Object.entries(object.metadata.annotations ?? {}).map(([key, value]) => {
    const isToken = key === ANNOTATION_ACCESS_TOKEN || key === LEGACY_TOKEN;
    return [key, key === COPY || (isToken && !showToken) ? HIDDEN : value] as const;
  });
  return {
    ...object,
    ...Object.fromEntries(values.map((field) => [field, hide(object[field])])),
    metadata: {
      ...object.metadata,
      ...(annotations.length === 0 ? {} : { annotations: Object.fromEntries(annotations) }),
    },
  };
}

async function print(
  kind: Kind,
  objects: readonly KubeObject[],
  format: 'yaml' | 'json' | 'wide' | 'name' | 'text',
  isOne: boolean,
  target: Target,
): Promise<string> {
  switch (format) {
    case 'json':
      return `${JSON.stringify(isOne ? objects[0] : { apiVersion: 'v1', kind: 'List', items: objects }, null, 2)}\n`;
    case 'yaml':
      return objects.map((object) => stringify(object, { aliasDuplicateObjects: false })).join('---\n');
    case 'name':
      return objects.map(({ metadata }) => `${kind.singular}/${metadata.name}\n`).join('');
    default:
      return rows(kind, objects, format === 'wide', target);
  }
}

async function rows(kind: Kind, objects: readonly KubeObject[], wide: boolean, target: Target): Promise<string> {
  if (objects.length === 0) {
    return `no ${kind.plural}\n`;
  }
  const address = wide && kind.kind === 'Sandbox' ? await urlOf(target) : null;
  const columns = kind.printerColumns;
  const head = [
    ...(kind.namespaced ? ['NAMESPACE'] : []),
    'NAME',
    ...columns.map(({ name }) => name.toUpperCase()),
    ...(address === null ? [] : ['URL']),
  ];
  const now = Date.now();
  const body = objects.map((object) => [
    ...(kind.namespaced ? [object.metadata.namespace ?? ''] : []),
    object.metadata.name,
    ...columns.map(({ jsonPath, type }) => {
      const value = valueAt(object, jsonPath);
      return type === 'date' && jsonPath.includes('creationTimestamp') ? age(value, now) : value;
    }),
    ...(address === null ? [] : [address(object)]),
  ]);
  return table(head, body);
}

/** The value at a printer column's path, such as `.metadata.labels.agents\.kruise\.io/sandbox-claimed`. */
function valueAt(object: KubeObject, path: string): string {
  const keys = path
    .slice(1)
    .split(/(?<!\\)\./)
    .map((key) => key.replaceAll('\\.', '.'));
  const value = keys.reduce<unknown>(
    (at, key) => (at !== null && typeof at === 'object' ? (at as Record<string, unknown>)[key] : undefined),
    object,
  );
  return value === undefined || value === null ? '' : String(value);
}

/** How a port of a sandbox is reached. */
async function urlOf({ dir, isRunning }: Target): Promise<(sandbox: KubeObject) => string> {
  const { domain } = await readSettings(dir);
  const port = isRunning ? (await readPlaneRecord(layoutOf(dir))).ingress.port : 80;
  return ({ metadata }) => {
    const id = metadata.labels?.[LABEL_SANDBOX_ID] ?? `${metadata.namespace}--${metadata.name}`;
    return `http://<port>-${id}.${domain}${port === 80 ? '' : `:${port}`}`;
  };
}
