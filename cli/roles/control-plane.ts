import { serveApi } from '../../control-plane/api.ts';
import { ingressCompiler } from '../../control-plane/ingress-world.ts';
import { controlPlaneRoutes } from '../../control-plane/routes.ts';
import { runControlPlane } from '../../control-plane/run.ts';
import { openPki } from '../../identity/pki-directory.ts';
import { machineResolver } from '../../local/resolver.ts';
import { readPlaneRecord } from '../plane-record.ts';
import { followSettings, originCaFile, ROOT_NAMESPACE, runRole } from './role.ts';

/** The control plane of a local directory: xDS on `run/xds.sock`, its API on `run/control-plane.sock`. */
export async function controlPlaneRole(options: { readonly dir?: string }): Promise<void> {
  await runRole('control-plane', options, async ({ layout, settings, store, logger, ready }) => {
    const { ingress, domain } = await readPlaneRecord(layout);
    const plane = await runControlPlane({
      store,
      pki: await openPki(layout.pki),
      xdsSocket: layout.socket('xds'),
      egressSocket: layout.socket('egress'),
      world: { hosts: settings.hosts, rootNamespace: ROOT_NAMESPACE },
      resolver: settings.resolver ?? (await machineResolver()),
      originCaFile: originCaFile(layout),
      compileIngress: ingressCompiler({
        domain: domain ?? settings.domain,
        ingressSocket: layout.socket('ingress'),
        publicPort: ingress.port,
      }),
      logger,
    });
    const api = await serveApi({
      address: { kind: 'unix', path: layout.socket('control-plane') },
      routes: controlPlaneRoutes(plane),
      logger,
    });
    const stopFollowing = followSettings(layout, ({ hosts }) => {
      plane.replaceSettings({ hosts, rootNamespace: ROOT_NAMESPACE });
    });
    ready();
    return async () => {
      stopFollowing();
      await api.close();
      await plane.close();
    };
  });
}
