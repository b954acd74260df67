import type { EnvoyJson } from '../proto/resource.ts';

type RouteJson = EnvoyJson['envoy.config.route.v3.Route'];

/** Whatever is not the hot form: the processor decides, and gives the destination as metadata. */
export const FALL_THROUGH: readonly RouteJson[] = answered('od_meta');

/** What the processor has held while its sandbox woke. */
export const WOKEN: readonly RouteJson[] = answered('od_woken');

/** The same two, where no scope tells them apart. */
export const FALL_THROUGH_OR_WOKEN: readonly RouteJson[] = [
  ...WOKEN.map(({ match, ...rest }) => ({
    match: { ...match!, headers: [{ name: 'x-sbx-scope', stringMatch: { exact: 'x-woken' } }] },
    ...rest,
  })),
  ...FALL_THROUGH,
];

function answered(cluster: string): readonly RouteJson[] {
  return [
    { match: { prefix: '/', grpc: {} }, route: route(`${cluster}_h2`) },
    { match: { prefix: '/' }, route: route(`${cluster}_h1`) },
  ];
}

function route(cluster: string): NonNullable<RouteJson['route']> {
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
