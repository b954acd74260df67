import type { EnvoyJson } from '../proto/resource.ts';

type RouteJson = EnvoyJson['envoy.config.route.v3.Route'];

/** Whatever is not the hot form: the processor decides, and gives the destination as metadata. */
export const FALL_THROUGH: readonly RouteJson[] = [
  { match: { prefix: '/', grpc: {} }, route: metaRoute('od_meta_h2') },
  { match: { prefix: '/' }, route: metaRoute('od_meta_h1') },
];

function metaRoute(cluster: string): NonNullable<RouteJson['route']> {
  return {
    cluster,
    timeout: '0s',
    // A sandbox that has just been woken may listen a moment later.
    retryPolicy: {
      retryOn: 'connect-failure,refused-stream,reset-before-request',
      numRetries: 20,
      retryBackOff: { baseInterval: '0.1s', maxInterval: '0.25s' },
    },
  };
}
