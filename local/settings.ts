import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import type { Static } from 'typebox';
import { LineCounter, parseDocument } from 'yaml';
import type { HostEntry } from '../api/facts.ts';
import { isDnsSubdomain } from '../api/names.ts';
import { bool, list, mapOf, object, optional, text, textMap } from '../api/schema.ts';
import { checkSchema, memberPath, type StructuralSchema } from '../api/schema-check.ts';
import { canonicalAddress } from '../base/addresses.ts';
import { CodedError, type FieldError } from '../base/errors.ts';

const imageSchema = object({
  command: list(text({ minLength: 1 }), {
    minItems: 1,
    description: "Program of this machine that stands for the image's entry point",
  }),
  env: optional(textMap({ description: 'Variables below those of the container' })),
});

/** `sandgate.yaml`: the settings of a local directory (D4, D16, D17, D19, D21). */
export const settingsSchema = object({
  domain: optional(text({ description: 'Domain below which sandboxes are reached; localhost by default' })),
  hosts: optional(
    textMap({
      description:
        'Names that the operator places: "10.0.0.5" or "127.0.0.1:8443"; exempt from the private-address filter',
    }),
  ),
  trust: optional(
    list(text({ minLength: 1 }), {
      description:
        "PEM files that the gateway trusts upstream besides the public roots; relative to this file's folder",
    }),
  ),
  images: optional(
    mapOf(imageSchema, { description: 'Commands that stand for container images, which are never pulled' }),
  ),
  shortIds: optional(bool({ description: 'Whether Sandboxes without a short id get one; false by default' })),
  dns: optional(
    object({
      resolver: text({ description: 'Address, with or without a port, of the resolver that the gateway asks' }),
    }),
  ),
});

type RawSettings = Static<typeof settingsSchema>;

/** What stands for an image: argv, and variables that the container's own override. */
export interface ImageEntry {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** The settings with their defaults; paths absolute, names lower-case. */
export interface Settings {
  readonly domain: string;
  readonly hosts: Readonly<Record<string, HostEntry>>;
  /** Absolute paths of PEM files. */
  readonly trust: readonly string[];
  readonly images: Readonly<Record<string, ImageEntry>>;
  readonly shortIds: boolean;
  /** The resolver that the gateway asks; null: the machine's own. */
  readonly resolver: { readonly address: string; readonly port: number } | null;
}

/** Reads `DIR/sandgate.yaml`; an absent or empty file means the defaults. Throws like {@link parseSettings}. */
export async function readSettings(dir: string): Promise<Settings> {
  const file = join(dir, 'sandgate.yaml');
  try {
    return parseSettings(await readFile(file, 'utf8'), dir, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') {
      return parseSettings('', dir, file);
    }
    throw error;
  }
}

/**
 * Parses the text of a settings file. Throws `invalid` with one entry per wrong field and a message that names file,
 * field and reason; an unknown key is an error.
 */
export function parseSettings(source: string, dir: string, file = 'sandgate.yaml'): Settings {
  const lines = new LineCounter();
  const document = parseDocument(source, { lineCounter: lines, uniqueKeys: true });
  const [problem] = document.errors;
  if (problem !== undefined) {
    const { line } = lines.linePos(problem.pos[0]);
    throw new CodedError('invalid', `${file}:${line}: ${problem.message.split('\n')[0]}`);
  }
  const raw = (document.toJS() ?? {}) as unknown;
  const errors = checkSchema(settingsSchema as unknown as StructuralSchema, raw);
  if (errors.length > 0) {
    throw invalid(file, errors);
  }
  return readValues(raw as RawSettings, dir, file);
}

function readValues(raw: RawSettings, dir: string, file: string): Settings {
  const errors: FieldError[] = [];
  const domain = (raw.domain ?? 'localhost').toLowerCase();
  if (!isDnsSubdomain(domain)) {
    errors.push({ path: 'domain', reason: `${JSON.stringify(raw.domain)} is no DNS name` });
  }
  const hosts: Record<string, HostEntry> = {};
  for (const [name, value] of Object.entries(raw.hosts ?? {})) {
    const lower = name.toLowerCase();
    const entry = parseAddress(value);
    const reason = !isDnsSubdomain(lower)
      ? 'the key must be a DNS name'
      : entry === null
        ? `${JSON.stringify(value)} is no address, with or without a port`
        : Object.hasOwn(hosts, lower)
          ? 'the name is given twice'
          : null;
    if (reason !== null || entry === null) {
      errors.push({ path: memberPath('hosts', name), reason: reason ?? '' });
    } else {
      hosts[lower] = entry;
    }
  }
  const resolver = raw.dns === undefined ? null : parseAddress(raw.dns.resolver);
  if (raw.dns !== undefined && resolver === null) {
    errors.push({
      path: 'dns.resolver',
      reason: `${JSON.stringify(raw.dns.resolver)} is no address, with or without a port`,
    });
  }
  if (errors.length > 0) {
    throw invalid(file, errors);
  }
  return Object.freeze({
    domain,
    hosts,
    trust: (raw.trust ?? []).map((path) => (isAbsolute(path) ? path : join(dir, path))),
    images: Object.fromEntries(
      Object.entries(raw.images ?? {}).map(([image, { command, env }]) => [image, { command, env: env ?? {} }]),
    ),
    shortIds: raw.shortIds ?? false,
    resolver: resolver === null ? null : { address: resolver.address, port: resolver.port ?? 53 },
  });
}

/** `10.0.0.5`, `10.0.0.5:80`, `::1` or `[::1]:80`; null for anything else. */
function parseAddress(value: string): HostEntry | null {
  const bare = canonicalAddress(value);
  if (bare !== null) {
    return { address: bare };
  }
  const match = /^(?:\[([^\]]+)\]|([^:]+)):([1-9][0-9]{0,4})$/.exec(value);
  const address = canonicalAddress(match?.[1] ?? match?.[2] ?? '');
  const port = Number(match?.[3]);
  return address === null || !(port <= 65_535) ? null : { address, port };
}

function invalid(file: string, errors: readonly FieldError[]): CodedError {
  const text = errors.map(({ path, reason }) => `${file}: ${path === '' ? '' : `${path}: `}${reason}`).join('\n');
  return new CodedError('invalid', text, { fields: errors });
}
