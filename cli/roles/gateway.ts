import { findEnvoy } from '../../envoy/find.ts';
import { openPki } from '../../identity/pki-directory.ts';
import { attachNode } from '../../local/node-namespace.ts';
import { startGateway } from '../gateways.ts';
import { runRole } from './role.ts';

/** The egress Envoy, in the machine's own network namespace (D3). */
export async function egressGatewayRole(options: { readonly dir?: string }): Promise<void> {
  await gatewayRole('egress', options);
}

/** The ingress Envoy, in the node namespace, from which the sandboxes' addresses are reached (D15). */
export async function ingressGatewayRole(options: { readonly dir?: string }): Promise<void> {
  await gatewayRole('ingress', options);
}

async function gatewayRole(role: 'ingress' | 'egress', options: { readonly dir?: string }): Promise<void> {
  await runRole(`${role}-gateway`, options, async ({ layout, logger, ready }) => {
    const node = await attachNode(layout);
    const envoy = await startGateway({
      role,
      layout,
      pki: await openPki(layout.pki),
      binary: await findEnvoy(),
      logger,
      concurrency: 1,
      ...(role === 'ingress' ? { wrap: (argv: readonly string[]) => node.wrap(argv) } : {}),
    });
    envoy.ready(60_000).then(ready, () => {});
    return () => envoy.stop({ drain: true });
  });
}
