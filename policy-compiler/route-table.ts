import { refText } from '../api/object.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import { METADATA } from './access-log.ts';
import { STATE_DIAL_ADDRESS, STATE_DIAL_HOST, STATE_DIAL_PORT } from './clusters.ts';
import { type Answer, denial, invalidAnswer } from './denials.ts';
import { type Dial, dialCluster, dialOf, planOf } from './dial.ts';
import { injectionList, PLAIN_AUTHORITY, settle } from './evaluate.ts';
import { type Group, type HostTable, hostTables } from './host-table.ts';
import type { L7Rule } from './l7-policy.ts';
import {
  CLUSTER,
  HTTP_PORT,
  INNER_SCOPE_HEADER,
  nameOf,
  PLAN_HEADER,
  type ResourceJson,
  ROUTES,
  resourceJson,
  STATE_IP,
  STATE_PORT,
} from './output.ts';
import { plansOf } from './plans.ts';
import type { PolicySet } from './policy-set.ts';
import { type HostPattern, rulesFor } from './regions.ts';
import { conditionMatch, filterState, headerMatch, type RouteMatchJson } from './route-match.ts';
import { walk } from './walk.ts';

type RouteJson = EnvoyJson['envoy.config.route.v3.Route'];
type VirtualHostJson = EnvoyJson['envoy.config.route.v3.VirtualHost'];

/** A table and what it dials. */
export interface RouteTable {
  readonly resource: ResourceJson;
  readonly dials: readonly Dial[];
}

/** Name of the route configuration of a set. */
export function tableName(set: PolicySet): string {
  return `pset-${set.tableHash}`;
}

/** The L7 table of a policy set (docs/architecture.md "Egress gateway"). */
export function routeTable(set: PolicySet): RouteTable {
  const dials = new Map<string, Dial>();
  const use = (dial: Dial): string => {
    const cluster = dialCluster(dial);
    dials.set(cluster, dial);
    return cluster;
  };
  const virtualHosts =
    set.invalid === null
      ? hostTables(set).map((table) => virtualHost(set, table, use))
      : [{ name: '*', domains: ['*'], routes: [answerRoute({ prefix: '' }, invalidAnswer(set.invalid), '')] }];
  const name = tableName(set);
  const json: EnvoyJson['envoy.config.route.v3.RouteConfiguration'] = {
    name,
    virtualHosts,
    ignorePortInHostMatching: true,
    maxDirectResponseBodySizeBytes: 2 * 1024 * 1024,
    requestHeadersToRemove: [INNER_SCOPE_HEADER, PLAN_HEADER, 'x-forwarded-proto'],
  };
  const sorted = [...dials.keys()].sort().map((cluster) => dials.get(cluster)!);
  const requires = sorted.map((dial) => nameOf(CLUSTER, dialCluster(dial)));
  return { resource: resourceJson(ROUTES, name, json, set.origins, requires), dials: sorted };
}

type Use = (dial: Dial) => string;

function virtualHost(set: PolicySet, table: HostTable, use: Use): VirtualHostJson {
  const [name, domain] = domainOf(table.pattern);
  const byName = table.groups.filter((group) => group.name !== null);
  const others = table.groups.filter((group) => group.name === null);
  return {
    name,
    domains: [domain],
    routes: [
      answerRoute(STRANGE_AUTHORITY, denial('host-mismatch', null), ''),
      ...(byName.length === 0 ? [] : [answerRoute(OTHER_PORT, denial('host-mismatch', null), '')]),
      ...byName.flatMap((group) => planRoutes(set, table.pattern, group, use)),
      ...byName.flatMap((group) => groupRoutes(set, table.pattern, group, use)),
      answerRoute(
        { prefix: '', filterState: [filterState(STATE_IP, { prefix: '240.' })] },
        denial('host-mismatch', null),
        '',
      ),
      ...others.flatMap((group) => groupRoutes(set, table.pattern, group, use)),
    ],
  };
}

/**
 * Hosts that can be read in more than one way must not profit from that. Exact entries need it too: Envoy ignores a port
 * when it looks for the entry, and takes `name:` for a name with one.
 */
const STRANGE_AUTHORITY: RouteMatchJson = {
  prefix: '',
  headers: [{ ...headerMatch(':authority', { safeRegex: { regex: PLAIN_AUTHORITY } }), invertMatch: true }],
};

/** Host names a port on a connection to a name's port 80; for other ports a filter compares (inner-connection). */
const OTHER_PORT: RouteMatchJson = {
  prefix: '',
  headers: [
    headerMatch(':authority', { contains: ':' }),
    { ...headerMatch(':authority', { suffix: `:${HTTP_PORT}` }), invertMatch: true },
    headerMatch(':scheme', { exact: 'http' }),
  ],
  filterState: [filterState(STATE_IP, { prefix: '240.' }), filterState(STATE_PORT, { exact: String(HTTP_PORT) })],
};

function domainOf(pattern: HostPattern): readonly [name: string, domain: string] {
  switch (pattern.kind) {
    case 'any':
      return ['*', '*'];
    case 'suffix':
      return [`*.${pattern.suffix}`, `*.${pattern.suffix}`];
    case 'exact':
      return [pattern.name, pattern.name.includes(':') ? `[${pattern.name}]` : pattern.name];
  }
}

function arrival({ scheme, name }: Group): RouteMatchJson {
  return {
    headers: [headerMatch(':scheme', { exact: scheme })],
    ...(name === null ? {} : { filterState: [filterState(STATE_IP, { exact: name.name.virtual })] }),
  };
}

/** Routes that the external processor chooses by the plan header, one per set of credentials (docs/architecture.md). */
function planRoutes(set: PolicySet, pattern: HostPattern, group: Group, use: Use): RouteJson[] {
  const rules = rulesFor(set.rules, pattern);
  const possible = group.scheme === 'https' || rules.some(allowsPlainCredential);
  const plans = possible && group.regions.some(({ processor }) => processor) ? plansOf(rules) : null;
  return [...(plans?.values() ?? [])]
    .filter((injections) => injections.length > 0)
    .map((injections) => {
      const dial = dialOf(group.name, group.scheme === 'https', injections);
      const { headers = [], ...rest } = arrival(group);
      const match: RouteMatchJson = {
        prefix: '',
        ...rest,
        headers: [headerMatch(PLAN_HEADER, { exact: planOf(dial) }), ...headers],
      };
      return forwardRoute(match, dial, group, { set: [], remove: [] }, 'plan', use);
    });
}

/** Whether a credential of the rule may go over plain HTTP. */
function allowsPlainCredential({ token, clauses }: L7Rule): boolean {
  return token !== null && clauses.some(({ schemes }) => schemes.includes('http'));
}

function groupRoutes(set: PolicySet, pattern: HostPattern, group: Group, use: Use): RouteJson[] {
  const rules = rulesFor(set.rules, pattern);
  return group.regions.flatMap((region) => {
    const match = conditionMatch(region.condition, arrival(group), group.name?.piece.ports ?? null);
    const result = region.processor ? null : walk(region.matched, null);
    if (result === null || result.kind === 'body') {
      return [processorRoute(match, dialOf(group.name, group.scheme === 'https', []), group, use)];
    }
    const context = { scheme: group.scheme, byName: group.name !== null, plans: () => plansOf(rules) };
    const outcome = settle(result, { ...context, isTrace: false });
    const walked = outcome.walked.map(({ profile, rule }) => `${refText(profile)}/${rule}`).join(', ');
    if (outcome.kind === 'answer') {
      return [answerRoute(match, outcome.answer, walked)];
    }
    const dial = dialOf(group.name, group.scheme === 'https', injectionList(outcome.injections));
    const forward = forwardRoute(match, dial, group, outcome, walked, use);
    const traced = settle(result, { ...context, isTrace: true });
    const canBeTrace = region.condition.methods.length === 0 || region.condition.methods.includes('TRACE');
    return traced.kind === 'answer' && canBeTrace
      ? [answerRoute(onlyTrace(match), traced.answer, walked), forward]
      : [forward];
  });
}

function onlyTrace(match: RouteMatchJson): RouteMatchJson {
  const isTrace = headerMatch(':method', { exact: 'TRACE', ignoreCase: true });
  return { ...match, headers: [...(match.headers ?? []), isTrace] };
}

function metadata(action: string, rules: string): Pick<RouteJson, 'metadata'> {
  return rules === '' && action === 'forward'
    ? {}
    : { metadata: { filterMetadata: { [METADATA]: { action, rules } } } };
}

function answerRoute(match: RouteMatchJson, answer: Answer, rules: string): RouteJson {
  const { status, body, contentType, reason } = answer;
  const empty = body === null || body === '' || status === 204 || status === 304;
  const headers = [
    ...(contentType === null ? [] : [{ key: 'content-type', value: contentType }]),
    ...(reason === null ? [] : [{ key: 'x-sandgate-reason', value: reason }]),
  ];
  return {
    match,
    ...metadata(reason ?? 'block', rules),
    directResponse: { status, ...(empty ? {} : { body: { inlineString: body } }) },
    ...(headers.length === 0
      ? {}
      : {
          responseHeadersToAdd: headers.map((header) => ({
            header,
            appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD' as const,
          })),
        }),
  };
}

interface HeaderChanges {
  readonly set: readonly (readonly [name: string, value: string])[];
  readonly remove: readonly string[];
}

function forwardRoute(
  match: RouteMatchJson,
  dial: Dial,
  group: Group,
  changes: HeaderChanges,
  rules: string,
  use: Use,
): RouteJson {
  const filters = dialState(group);
  return {
    match,
    ...metadata('forward', rules),
    route: { cluster: use(dial), timeout: '0s' },
    ...(changes.set.length === 0
      ? {}
      : {
          requestHeadersToAdd: changes.set.map(([key, value]) => ({
            header: { key, value: value.replaceAll('%', '%%') },
            appendAction: 'OVERWRITE_IF_EXISTS_OR_ADD' as const,
            keepEmptyValue: true,
          })),
        }),
    ...(changes.remove.length === 0 ? {} : { requestHeadersToRemove: [...changes.remove] }),
    ...(filters === null ? {} : { typedPerFilterConfig: { [DIAL_FILTER]: filters } }),
  };
}

/** Name of the filter that puts the dial target into the filter state. */
export const DIAL_FILTER = 'dial';
/** Name of the external processor's filter, which only some routes enable. */
export const PROCESSOR_FILTER = 'processor';

/** At most this much of a body is held for the processor; more is answered 413 (egress-policy §4 caps at 8 MiB). */
export const MAX_BODY_BYTES = 9 * 1024 * 1024;

function processorRoute(match: RouteMatchJson, dial: Dial, group: Group, use: Use): RouteJson {
  const filters = dialState(group);
  return {
    match,
    ...metadata('processor', ''),
    requestBodyBufferLimit: String(MAX_BODY_BYTES),
    route: { cluster: use(dial), timeout: '0s' },
    typedPerFilterConfig: {
      [PROCESSOR_FILTER]: any('envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute', { overrides: {} }),
      ...(filters === null ? {} : { [DIAL_FILTER]: filters }),
    },
  };
}

/** What is dialled never depends on the Host header: the name behind the virtual address and the original port (D4). */
function dialState(group: Group): ReturnType<typeof any> | null {
  if (group.name === null) {
    return null;
  }
  const { name, host } = group.name.name;
  const port = '%DOWNSTREAM_LOCAL_PORT%';
  const states =
    host === null
      ? [
          [STATE_DIAL_HOST, name],
          [STATE_DIAL_PORT, port],
        ]
      : [
          [
            STATE_DIAL_ADDRESS,
            `${host.address.includes(':') ? `[${host.address}]` : host.address}:${host.port ?? port}`,
          ],
        ];
  return any('envoy.extensions.filters.http.set_filter_state.v3.Config', {
    onRequestHeaders: states.map(([objectKey, inlineString]) => ({
      objectKey: objectKey!,
      formatString: { textFormatSource: { inlineString: inlineString! } },
    })),
  });
}
