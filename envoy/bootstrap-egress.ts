import { any } from '../proto/resource.ts';
import {
  type Bootstrap,
  type BootstrapSettings,
  commonBootstrap,
  GATEWAY_LIMITS,
  socketCluster,
} from './bootstrap-common.ts';

/** What the egress gateway needs beside the common part. */
export interface EgressBootstrapSettings extends BootstrapSettings {
  /** Socket of the egress processor (ext_proc, cleartext). */
  readonly processorSocket: string;
}

/**
 * Bootstrap of the egress gateway. Names are resolved by c-ares without search domains: a name that a policy lists is
 * absolute. Tables may bring a resolver of their own.
 */
export function egressBootstrap(settings: EgressBootstrapSettings): Bootstrap {
  return commonBootstrap(settings, {
    role: 'egress',
    limits: GATEWAY_LIMITS,
    clusters: [socketCluster('processor', settings.processorSocket)],
    extra: {
      typedDnsResolverConfig: {
        name: 'envoy.network.dns_resolver.cares',
        typedConfig: any('envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig', {
          dnsResolverOptions: { noDefaultSearchDomain: true },
        }),
      },
    },
  });
}
