import { serveDnsRelay } from '../../dns/relay.ts';
import { egressHandler } from '../../extproc/egress/handler.ts';
import { serveExtProc } from '../../extproc/server.ts';
import { TOKEN_AUDIENCE, TOKEN_ISSUER } from '../../identity/sandbox-token.ts';
import { TRUST_DOMAIN } from '../../identity/spiffe.ts';
import { resolverOf } from '../../local/resolver.ts';
import type { Compilation, CompilerSettings } from '../../policy-compiler/compilation.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';
import { World, type WorldView } from '../../world/world.ts';
import { followSettings, ROOT_NAMESPACE, runRole } from './role.ts';

/** The settings of the compiler only shape Envoy resources, which this role never makes: it evaluates alone. */
const NO_RESOURCES: CompilerSettings = {
  trustDomain: TRUST_DOMAIN,
  tokenIssuer: TOKEN_ISSUER,
  tokenAudience: TOKEN_AUDIENCE,
  tokenJwks: '{"keys":[]}',
  egressSocket: '/nonexistent',
  gatewayCaFile: '/nonexistent',
  resolver: null,
  originCaFile: '/nonexistent',
};

/**
 * The external processor of the egress gateway, which decides from a world of its own, also without a control plane; and
 * the end of the DNS tunnels.
 */
export async function egressProcessorRole(options: { readonly dir?: string }): Promise<void> {
  await runRole('egress-processor', options, async ({ layout, settings, store, logger, ready }) => {
    const compiler = createCompiler({ resources: 'none' });
    let compilation: Compilation | null = null;
    const world = new World({ store, settings: { hosts: settings.hosts, rootNamespace: ROOT_NAMESPACE }, logger });
    const update = (view: WorldView) => {
      compilation = compiler.compile(view.facts, NO_RESOURCES);
    };
    update(await world.ready());
    world.onChange(update);
    const stopFollowing = followSettings(layout, ({ hosts }) => {
      world.replaceSettings({ hosts, rootNamespace: ROOT_NAMESPACE });
    });
    const server = await serveExtProc({
      socketPath: layout.socket('egress-processor'),
      handler: egressHandler(() => compilation),
      logger,
    });
    const resolver = await resolverOf(settings);
    const relay =
      resolver === null ? null : await serveDnsRelay({ socketPath: layout.socket('resolver'), resolver, logger });
    ready();
    return async () => {
      stopFollowing();
      await relay?.close();
      await server.close();
      await world.close();
    };
  });
}
