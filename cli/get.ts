import type { Command } from 'commander';
import { stringify } from 'yaml';
import { type Kind, kindNamed, type PrinterColumn } from '../api/kinds.ts';
import { ANNOTATION_ACCESS_TOKEN, LABEL_SANDBOX_ID } from '../api/labels.ts';
import type { KubeObject } from '../api/object.ts';
import { CodedError, isCoded } from '../base/errors.ts';
import { layoutOf } from '../local/layout.ts';
import { readSettings } from '../local/settings.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { HIDDEN } from './documents.ts';
import { DEFAULT_NAMESPACE, kindNames, type Named, namedObjects } from './object-args.ts';
import { age, outputFormat, table } from './output.ts';
import { readPlaneRecord } from './plane-record.ts';
import { findTarget, type Target, withReadStore } from './target.ts';

interface GetOptions {
  readonly namespace: string;
  readonly allNamespaces?: boolean;
  readonly output?: string;
  readonly showToken?: boolean;
  readonly dir?: string;
}

const LEGACY_TOKEN = 'e2b.agents.kruise.io/envd-access-token';
/** A whole manifest in one annotation, as another tool leaves it: with everything that is hidden elsewhere. */
const COPY = 'kubectl.kubernetes.io/last-applied-configuration';

/** `sandgate get`: objects of some kinds, or single ones. Values of Secrets are never shown, tokens only when asked for. */
export function registerGet(program: Command): void {
  program
    .command('get')
    .description('objects: of one kind or several, or single ones by their names')
    .argument('<kind>', `KIND, KIND,KIND, KIND/NAME or all; kinds: ${kindNames()}`)
    .argument('[name...]', 'NAME or NS/NAME')
    .option('-n, --namespace <namespace>', 'namespace of a list and of names without one', DEFAULT_NAMESPACE)
    .option('-A, --all-namespaces', 'list the objects of every namespace')
    .option('-o, --output <format>', 'yaml, json, wide, name, or token (the access token alone, with --show-token)')
    .option('--show-token', 'show access tokens of sandboxes')
    .option('--dir <dir>', 'the directory of the plane')
    .addHelpText(
      'after',
      [
        '',
        'all: every kind of policy, Sandboxes, Pods and Services.',
        '',
        'Example:',
        '  $ sandgate get sandbox -o wide',
        '  $ sandgate get tp,sp -A',
        '  $ sandgate get trafficpolicy/egress secret/key -n agents -o yaml',
      ].join('\n'),
    )
    .action(get);
}

interface Found {
  readonly objects: readonly KubeObject[];
  /** Errors of named objects that are not there. */
  readonly missing: readonly string[];
}

async function get(kindText: string, names: readonly string[], options: GetOptions): Promise<void> {
  const format = outputFormat(options.output, ['yaml', 'json', 'wide', 'name', 'token']);
  const named = namedObjects([kindText, ...names], options.namespace);
  const target = await findTarget(options.dir);
  const { objects, missing } = await withReadStore(target, (store) => find(store, named, options));
  if (format === 'token') {
    process.stdout.write(tokens(objects, options.showToken === true));
  } else {
    const shown = objects.map((object) => hideSecrets(object, options.showToken === true));
    const isOne = named.objects?.length === 1;
    if (!isOne || shown.length === 1) {
      process.stdout.write(await print(named, shown, format, isOne, target));
    }
  }
  if (named.objects === null && objects.length === 0 && format === 'text') {
    const where = options.allNamespaces === true ? '' : ` in namespace ${options.namespace}; -A lists every namespace`;
    process.stderr.write(`no ${named.kinds.map(({ plural }) => plural).join(', ')}${where}\n`);
  }
  if (missing.length > 0) {
    throw new CodedError('not-found', missing.join('\n'));
  }
}

async function find(store: ObjectStore, named: Named, options: GetOptions): Promise<Found> {
  if (named.objects === null) {
    const lists = await Promise.all(
      named.kinds.map(({ kind, namespaced }) =>
        store.list(kind, namespaced && options.allNamespaces !== true ? { namespace: options.namespace } : {}),
      ),
    );
    return { objects: lists.flatMap(({ items }) => items), missing: [] };
  }
  const missing: string[] = [];
  const objects: KubeObject[] = [];
  for (const { kind, key } of named.objects) {
    try {
      objects.push(await store.get(kind.kind, key));
    } catch (error) {
      if (!isCoded(error, 'not-found')) {
        throw error;
      }
      missing.push(error.message);
    }
  }
  return { objects, missing };
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
  { kinds }: Named,
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
      return objects.map((object) => `${kindNamed(object.kind)!.singular}/${object.metadata.name}\n`).join('');
    default: {
      const tables = kinds.map((kind) => {
        const own = objects.filter((object) => object.kind === kind.kind);
        return own.length === 0 ? null : rows(kind, own, { wide: format === 'wide', prefix: kinds.length > 1 }, target);
      });
      return (await Promise.all(tables.filter((table) => table !== null))).join('\n');
    }
  }
}

const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' };
const POD_COLUMNS: readonly PrinterColumn[] = [
  { name: 'Status', type: 'string', jsonPath: '.status.phase' },
  { name: 'IP', type: 'string', jsonPath: '.status.podIP' },
  AGE,
];

/** The columns of the kind; one that names none shows what kubectl would. */
function columnsOf({ kind, printerColumns }: Kind): readonly PrinterColumn[] {
  return kind === 'Pod' ? POD_COLUMNS : printerColumns.length === 0 ? [AGE] : printerColumns;
}

/** A table of objects of one kind; `prefix`: names say their kind, as with several tables. */
async function rows(
  kind: Kind,
  objects: readonly KubeObject[],
  { wide, prefix }: { readonly wide: boolean; readonly prefix: boolean },
  target: Target,
): Promise<string> {
  const address = wide && kind.kind === 'Sandbox' ? await urlOf(target) : null;
  const columns = columnsOf(kind);
  const head = [
    ...(kind.namespaced ? ['NAMESPACE'] : []),
    'NAME',
    ...columns.map(({ name }) => name.toUpperCase()),
    ...(address === null ? [] : ['URL']),
  ];
  const now = Date.now();
  const body = objects.map((object) => [
    ...(kind.namespaced ? [object.metadata.namespace ?? ''] : []),
    prefix ? `${kind.singular}/${object.metadata.name}` : object.metadata.name,
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
