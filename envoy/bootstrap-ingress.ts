import {
  type Bootstrap,
  type BootstrapSettings,
  commonBootstrap,
  GATEWAY_LIMITS,
  socketCluster,
} from './bootstrap-common.ts';

/** What the ingress gateway needs beside the common part. */
export interface IngressBootstrapSettings extends BootstrapSettings {
  /** Socket of the ingress processor (ext_proc, cleartext). */
  readonly processorSocket: string;
}

/** Bootstrap of the ingress gateway. It resolves no names: sandboxes are reached by address. */
export function ingressBootstrap(settings: IngressBootstrapSettings): Bootstrap {
  return commonBootstrap(settings, {
    role: 'ingress',
    limits: GATEWAY_LIMITS,
    clusters: [socketCluster('processor', settings.processorSocket)],
  });
}
