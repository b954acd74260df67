import { systemClock } from '../../base/clock.ts';
import { ingressHandler } from '../../extproc/ingress/handler.ts';
import { followRoutes } from '../../extproc/ingress/route-source.ts';
import { Waker } from '../../extproc/ingress/wake.ts';
import { serveExtProc } from '../../extproc/server.ts';
import { runRole } from './role.ts';

/** The external processor of the ingress gateway; its routes come from the store, also without a control plane. */
export async function ingressProcessorRole(options: { readonly dir?: string }): Promise<void> {
  await runRole('ingress-processor', options, async ({ layout, store, logger, ready }) => {
    const source = followRoutes(store, { clock: systemClock, logger });
    const server = await serveExtProc({
      socketPath: layout.socket('ingress-processor'),
      handler: ingressHandler({
        routes: source.table,
        waker: new Waker({ store, routes: source, clock: systemClock, logger }),
        isReady: () => source.isSynced,
      }),
      logger,
    });
    await source.synced;
    ready();
    return async () => {
      await server.close();
      await source.close();
    };
  });
}
