import {
  type Bootstrap,
  type BootstrapSettings,
  commonBootstrap,
  type Limits,
  mutualTls,
  socketCluster,
} from './bootstrap-common.ts';

/** One sandbox, one worker. */
const SIDECAR_LIMITS: Limits = { maxConnections: 4096, maxHeapBytes: 256 * 1024 ** 2 };

/** What a sidecar needs beside the common part. */
export interface SidecarBootstrapSettings extends BootstrapSettings {
  /** Socket of the egress gateway: HTTP/2 CONNECT over mutual TLS. */
  readonly gatewaySocket: string;
}

/** Bootstrap of the sidecar of one sandbox: everything that its listeners allow leaves through the cluster `gateway`. */
export function sidecarBootstrap(settings: SidecarBootstrapSettings): Bootstrap {
  return commonBootstrap(settings, {
    role: 'sidecar',
    limits: SIDECAR_LIMITS,
    clusters: [socketCluster('gateway', settings.gatewaySocket, mutualTls(settings, 'egress'))],
  });
}
