import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { writeBootstrap } from '../envoy/bootstrap-common.ts';
import { sidecarBootstrap } from '../envoy/bootstrap-sidecar.ts';
import { superviseEnvoy } from '../envoy/supervise.ts';
import { replacePrivate } from '../identity/files.ts';
import type { Pki } from '../identity/pki-directory.ts';
import type { SandboxIdentity } from '../identity/spiffe.ts';
import type { Layout } from './layout.ts';
import type { NodeNamespace } from './node-namespace.ts';

/** The sidecar Envoy of one sandbox. */
export interface Sidecar {
  /** Resolves when its `outbound` listener is up; rejects when it is stopped first. */
  ready(): Promise<void>;
  readonly live: boolean;
  stop(): Promise<void>;
}

export interface SidecarOptions {
  readonly node: NodeNamespace;
  readonly layout: Layout;
  readonly pki: Pki;
  readonly envoyPath: string;
  readonly logger: Logger;
  readonly identity: SandboxIdentity;
  /** Folder of the Pod: certificate, key and bootstrap lie there, outside the sandbox's namespaces. */
  readonly folder: string;
  /** Process whose network namespace it serves. */
  readonly holderPid: number;
  /** Numbers its admin socket. */
  readonly index: number;
  /** Told whenever it becomes live or ceases to be. */
  readonly onChange: () => void;
  readonly clock?: Clock;
}

/** Forbidden connections end within this (D14). */
const DRAIN_SECONDS = 4;
const READY_POLL_MS = 3_600_000;

/**
 * Starts the sidecar in the sandbox's network namespace, outside its pid, mount and user namespaces, with a certificate
 * of its own that goes when the Pod goes. Without it the capture rules lead nowhere: connections are refused.
 */
export async function startSidecar(options: SidecarOptions): Promise<Sidecar> {
  const { node, layout, pki, folder, clock = systemClock } = options;
  const certificate = {
    certificateFile: join(folder, 'sidecar.crt'),
    keyFile: join(folder, 'sidecar.key'),
    caFile: pki.caFile,
  };
  let renewal: NodeJS.Timeout | undefined;
  const issue = async (): Promise<void> => {
    const { certificatePem, keyPem, renewAt } = await pki.issueSidecarCertificate(options.identity);
    await replacePrivate(certificate.keyFile, keyPem.reveal());
    await replacePrivate(certificate.certificateFile, certificatePem);
    renewal = setTimeout(renew, Math.max(1000, renewAt - clock.now()));
  };
  const renew = (): void => {
    issue().catch((error: unknown) => {
      options.logger.error({ error: errorText(error) }, "the sidecar's certificate could not be renewed");
      renewal = setTimeout(renew, 60_000);
    });
  };
  await issue();
  const adminSocket = layout.socket(`envoy-sidecar-${options.index}`);
  const bootstrap = sidecarBootstrap({
    id: `sidecar-${options.identity.uid}`,
    folder,
    xdsSocket: layout.socket('xds'),
    adminSocket,
    gatewaySocket: layout.socket('egress'),
    certificate,
  });
  const envoy = superviseEnvoy({
    binary: options.envoyPath,
    bootstrapPath: await writeBootstrap(bootstrap),
    adminSocket,
    logger: options.logger,
    concurrency: 1,
    drainSeconds: DRAIN_SECONDS,
    listeners: ['outbound'],
    wrap: (argv) => node.wrapIn(options.holderPid, argv),
    onState: options.onChange,
  });
  return {
    ready: () => envoy.ready(READY_POLL_MS),
    get live() {
      return envoy.state === 'live';
    },
    stop: async () => {
      clearTimeout(renewal);
      await envoy.stop();
      await rm(adminSocket, { force: true });
    },
  };
}
