import { serveApi } from '../../control-plane/api.ts';
import { ingressCompiler } from '../../control-plane/ingress-world.ts';
import { controlPlaneRoutes } from '../../control-plane/routes.ts';
import { runControlPlane } from '../../control-plane/run.ts';
import { openPki } from '../../identity/pki-directory.ts';
import type { Layout } from '../../local/layout.ts';
import { resolverOf } from '../../local/resolver.ts';
import type { Settings } from '../../local/settings.ts';
import type { CompilerSettings } from '../../policy-compiler/compilation.ts';
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
      resolver: await tunnelResolver(settings, layout),
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

/** The resolver with the socket of the relay that the egress processor serves. */
async function tunnelResolver(settings: Settings, layout: Layout): Promise<CompilerSettings['resolver']> {
  const resolver = await resolverOf(settings);
  return resolver === null ? null : { ...resolver, relay: layout.socket('resolver') };
}
