/** Checked by the compiler only (`npm run check`): each expected error below must be one, or checking fails. */
import type { EnvoyJson } from '../../proto/resource.ts';
import { any, resource } from '../../proto/resource.ts';

export function typed(): void {
  const router = any('envoy.extensions.filters.http.router.v3.Router', { suppressEnvoyHeaders: true });
  const listener: EnvoyJson['envoy.config.listener.v3.Listener'] = {
    name: 'a',
    filterChains: [{ filters: [{ name: 'router', typedConfig: router }] }],
  };
  resource('envoy.config.listener.v3.Listener', listener);
  any('google.protobuf.StringValue', 'text');

  // @ts-expect-error no such message
  any('envoy.config.listener.v3.Listner', {});
  // @ts-expect-error no such field
  resource('envoy.config.listener.v3.Listener', { nme: 'a' });
  // @ts-expect-error a field in snake case is not the typed form
  resource('envoy.config.listener.v3.Listener', { filter_chains: [] });
  // @ts-expect-error no such enum value
  resource('envoy.config.cluster.v3.Cluster', { name: 'a', type: 'STATICK' });
  // @ts-expect-error a wrong field two levels down
  resource('envoy.config.route.v3.RouteConfiguration', { virtualHosts: [{ name: 'v', domain: ['*'] }] });
  // @ts-expect-error not a text
  any('google.protobuf.StringValue', 1);
  // @ts-expect-error the content of an Any needs its type
  listener.filterChains = [{ filters: [{ name: 'router', typedConfig: { suppressEnvoyHeaders: true } }] }];
}
