import type { ObjectRef } from '../api/object.ts';
import { joinHostPort } from '../base/addresses.ts';
import type { Redacted } from '../base/redacted.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import { logRate } from './access-log.ts';
import { ingressClusters } from './ingress-clusters.ts';
import { FALL_THROUGH, WOKEN } from './ingress-fallback.ts';
import { ingressListener, missListener, PROCESSOR, TARGET_FILTER } from './ingress-listener.ts';
import { METADATA_NAMESPACE } from './ingress-names.ts';
import { CLUSTER, encoded, HTTP_PORT, LISTENER, nameOf, type ResourceJson, resourceJson, SCOPE } from './output.ts';

/** A running sandbox that Envoy can reach without asking anybody. */
export interface IngressRoute {
  /** Without `-`: the scope key is cut at the first one (D5, D17). */
  readonly id: string;
  readonly uid: string;
  /** Address of its Pod. */
  readonly address: string;
  readonly token: Redacted;
  readonly ref: ObjectRef;
}

export interface IngressSettings {
  readonly domain: string;
  /** The UNIX socket that the gateway listens on. */
  readonly ingressSocket: string;
  /** Port that clients see, and write into Host unless it is the one of their scheme (D5). */
  readonly publicPort: number;
}

type RouteJson = EnvoyJson['envoy.config.route.v3.Route'];
type RouteMatchJson = EnvoyJson['envoy.config.route.v3.RouteMatch'];

/**
 * Everything that the ingress gateway is given. One inline scope per running sandbox, found by what a client of the
 * public port writes behind the first `-` of its Host, `<id>.<domain>` or `<id>.<domain>:<port>`: its route matches the access token and dials the Pod, without a hop. Every other request has no scope and goes to the
 * external processor, which is the authority; so the gateway is right with none of these scopes (architecture §3).
 */
export function compileIngress(routes: readonly IngressRoute[], settings: IngressSettings): readonly ResourceJson[] {
  return [...fixedResources(settings), ...routes.map((route) => scopeOf(route, settings))];
}

const fixed = new Map<string, readonly ResourceJson[]>();

function fixedResources(settings: IngressSettings): readonly ResourceJson[] {
  const key = JSON.stringify(settings);
  const known = fixed.get(key);
  if (known !== undefined) {
    return known;
  }
  const clusters = ingressClusters();
  const needed = clusters.map(({ name }) => nameOf(CLUSTER, name));
  const made = [
    ...clusters,
    logRate(),
    resourceJson(LISTENER, 'ingress', ingressListener(settings), [], needed),
    resourceJson(LISTENER, 'miss', missListener(), [], needed),
    ...decidedScopes(needed),
  ];
  fixed.clear();
  fixed.set(key, made);
  return made;
}

/** Keys that the processor chooses for what it has decided; no sandbox can have them, since they have no domain. */
const DECIDED = { miss: FALL_THROUGH, woken: WOKEN } as const;

function decidedScopes(requires: ResourceJson['requires']): readonly ResourceJson[] {
  return Object.entries(DECIDED).map(([name, routes]) =>
    resourceJson(
      SCOPE,
      name,
      { name, key: { fragments: [{ stringKey: name }] }, routeConfiguration: inline(name, routes) },
      [],
      requires,
    ),
  );
}

/** What the scopes of all sandboxes require. */
const DIALLED = ['hot_h1', 'hot_h2', 'od_meta_h1', 'od_meta_h2'].map((name) => nameOf(CLUSTER, name));

const scopes = new WeakMap<IngressRoute, { readonly ending: string; readonly resource: ResourceJson }>();

function scopeOf(route: IngressRoute, { domain, publicPort }: IngressSettings): ResourceJson {
  const ending = `${domain}${publicPort === HTTP_PORT ? '' : `:${publicPort}`}`;
  const known = scopes.get(route);
  if (known?.ending === ending) {
    return known.resource;
  }
  const name = `${route.id}.${ending}`;
  const json = {
    name,
    key: { fragments: [{ stringKey: cutKey(name) }] },
    routeConfiguration: inline(name, [hotRoute(route, true), hotRoute(route, false), ...FALL_THROUGH]),
  };
  // Sensitive: it holds the access token (D7).
  const resource = encoded(resourceJson(SCOPE, name, json, [route.ref], DIALLED, true));
  scopes.set(route, { ending, resource });
  return resource;
}

/** The key as the listener cuts it from a host name, which ends at the next `-`, one in the domain too (D5). */
function cutKey(name: string): string {
  return name.split('-', 1)[0]!;
}

function inline(name: string, routes: readonly RouteJson[]): EnvoyJson['envoy.config.route.v3.RouteConfiguration'] {
  return {
    name,
    requestHeadersToRemove: ['x-sbx-scope'],
    virtualHosts: [{ name: 'sandbox', domains: ['*'], routes: [...routes] }],
  };
}

/** A port from 1 to 65535 without leading zeros; the processor answers every other spelling. */
const PORT = '(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])';

function hotMatch({ token }: IngressRoute, isGrpc: boolean): RouteMatchJson {
  return {
    prefix: '/',
    ...(isGrpc ? { grpc: {} } : {}),
    headers: [
      { name: ':authority', stringMatch: { safeRegex: { regex: `${PORT}-.*` } } },
      { name: 'e2b-sandbox-id', presentMatch: false },
      { name: ':path', stringMatch: { prefix: '/kruise' }, invertMatch: true },
      { name: 'x-access-token', stringMatch: { exact: token.reveal() } },
    ],
  };
}

function hotRoute(route: IngressRoute, isGrpc: boolean): RouteJson {
  const text = (inlineString: string) => ({ textFormatSource: { inlineString } });
  return {
    match: hotMatch(route, isGrpc),
    metadata: { filterMetadata: { [METADATA_NAMESPACE]: { sandbox: route.uid, action: 'forward' } } },
    route: {
      cluster: isGrpc ? 'hot_h2' : 'hot_h1',
      timeout: '0s',
      // One try more: the composite cluster then asks the processor, whose word is final (D12).
      retryPolicy: {
        retryOn: 'connect-failure,refused-stream,reset-before-request',
        numRetries: 1,
        retryBackOff: { baseInterval: '0.001s', maxInterval: '0.002s' },
      },
    },
    typedPerFilterConfig: {
      // Not made at all for this request, which costs less than one that is made and does nothing.
      [PROCESSOR]: any('envoy.config.route.v3.FilterConfig', { disabled: true }),
      [TARGET_FILTER]: any('envoy.extensions.filters.http.set_filter_state.v3.Config', {
        onRequestHeaders: [
          {
            objectKey: 'envoy.network.transport_socket.original_dst_address',
            formatString: text(joinHostPort(route.address, 0).replace(/0$/, '%DYNAMIC_METADATA(sbx:port)%')),
          },
        ],
      }),
    },
  };
}
