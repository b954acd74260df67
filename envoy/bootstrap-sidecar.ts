import {
  type Bootstrap,
  type BootstrapSettings,
  commonBootstrap,
  mutualTls,
  socketCluster,
} from './bootstrap-common.ts';

/** What a sidecar needs beside the common part. */
export interface SidecarBootstrapSettings extends BootstrapSettings {
  /** Socket of the egress gateway: HTTP/2 CONNECT over mutual TLS. */
  readonly gatewaySocket: string;
}

/** Bootstrap of the sidecar of one sandbox: everything that its listeners allow leaves through the cluster `gateway`. */
export function sidecarBootstrap(settings: SidecarBootstrapSettings): Bootstrap {
  return commonBootstrap(settings, {
    role: 'sidecar',
    clusters: [socketCluster('gateway', settings.gatewaySocket, mutualTls(settings, 'egress'))],
  });
}
