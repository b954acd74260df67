import type { Logger } from '../base/logger.ts';
import { type Bootstrap, type BootstrapSettings, writeBootstrap } from '../envoy/bootstrap-common.ts';
import { egressBootstrap } from '../envoy/bootstrap-egress.ts';
import { ingressBootstrap } from '../envoy/bootstrap-ingress.ts';
import type { Wrap } from '../envoy/guard.ts';
import { type EnvoyProcess, type EnvoyState, superviseEnvoy } from '../envoy/supervise.ts';
import type { Pki } from '../identity/pki-directory.ts';
import type { Layout } from '../local/layout.ts';

export interface GatewayOptions {
  readonly role: 'ingress' | 'egress';
  readonly layout: Layout;
  readonly pki: Pki;
  readonly binary: string;
  readonly logger: Logger;
  readonly concurrency: number;
  readonly wrap?: Wrap;
  /** Told of every change of the Envoy's state. */
  readonly onState?: (state: EnvoyState) => void;
}

const RENEW_MS = 10 * 60_000;

/** Starts the Envoy of a gateway; its certificate is renewed in place for as long as it runs. */
export async function startGateway(options: GatewayOptions): Promise<EnvoyProcess> {
  const { role, layout, pki, binary, logger, concurrency, wrap, onState } = options;
  const certificate = await pki.issueRoleCertificate(role);
  const adminSocket = layout.socket(`envoy-${role}`);
  const common: BootstrapSettings & { readonly processorSocket: string } = {
    id: role,
    folder: `${layout.run}/envoy-${role}`,
    xdsSocket: layout.socket('xds'),
    adminSocket,
    processorSocket: layout.socket(`${role}-processor`),
    certificate: { certificateFile: certificate.certificateFile, keyFile: certificate.keyFile, caFile: pki.caFile },
  };
  const bootstrap: Bootstrap = role === 'egress' ? egressBootstrap(common) : ingressBootstrap(common);
  const renewal = setInterval(() => {
    pki.issueRoleCertificate(role).catch((error: Error) => {
      logger.error({ role, error: error.message }, 'a gateway certificate could not be renewed');
    });
  }, RENEW_MS);
  renewal.unref();
  return superviseEnvoy({
    binary,
    bootstrapPath: await writeBootstrap(bootstrap),
    adminSocket,
    logger: logger.child({ envoy: role }),
    concurrency,
    drainSeconds: 4,
    listeners: [role],
    ...(wrap === undefined ? {} : { wrap }),
    ...(onState === undefined ? {} : { onState }),
  });
}
