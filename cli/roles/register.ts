import type { Command } from 'commander';
import type { RoleName } from './names.ts';

type Role = (options: { readonly dir?: string }) => Promise<void>;

/** Each role is loaded only when it runs: a process that plays one carries nothing of the others. */
const ROLES: Readonly<Record<RoleName, readonly [description: string, load: () => Promise<Role>]>> = {
  'control-plane': ['xDS, secrets and access logs', async () => (await import('./control-plane.ts')).controlPlaneRole],
  controller: [
    'lifecycle controllers and the node agent',
    async () => (await import('./controller.ts')).controllerRole,
  ],
  'egress-processor': [
    'answers what the egress Envoy cannot decide',
    async () => (await import('./egress-processor.ts')).egressProcessorRole,
  ],
  'ingress-processor': [
    'routes, authenticates and wakes for the ingress Envoy',
    async () => (await import('./ingress-processor.ts')).ingressProcessorRole,
  ],
  'egress-gateway': ['the egress Envoy', async () => (await import('./gateway.ts')).egressGatewayRole],
  'ingress-gateway': ['the ingress Envoy', async () => (await import('./gateway.ts')).ingressGatewayRole],
};

/** Adds one command per role. */
export function registerRoles(program: Command): void {
  for (const [name, [description, load]] of Object.entries(ROLES)) {
    program
      .command(name)
      .helpGroup('Roles, each of a running local mode apart:')
      .description(description)
      .option('--dir <dir>', 'the directory of the plane')
      .addHelpText('after', `\nExample:\n  $ sandgate up --without ${name} & sandgate ${name}\n`)
      .action(async (options: { readonly dir?: string }) => {
        const role = await load();
        await role(options);
      });
  }
}
