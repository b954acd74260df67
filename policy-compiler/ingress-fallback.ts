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
    // The processor waits for the port of a sandbox that it wakes; this is for one that listens a moment later still.
    // With the cluster's connect timeout it is also what an address that drops packets costs, about five seconds.
    retryPolicy: {
      retryOn: 'connect-failure,refused-stream,reset-before-request',
      numRetries: 8,
      retryBackOff: { baseInterval: '0.1s', maxInterval: '0.25s' },
    },
  };
}
