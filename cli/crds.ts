import type { Command } from 'commander';
import { stringify } from 'yaml';
import { customResourceDefinition } from '../api/crd.ts';
import { KINDS } from '../api/kinds.ts';

/** The CRDs of the product's own kinds as one YAML stream, in the order of the kinds. */
export function crdsYaml(): string {
  return KINDS.filter((kind) => kind.custom)
    .map((kind) => stringify(customResourceDefinition(kind), { lineWidth: 0, aliasDuplicateObjects: false }))
    .join('---\n');
}

/** Adds `sandgate crds`. */
export function registerCrds(program: Command): void {
  program
    .command('crds')
    .description("print the CustomResourceDefinitions of Sandgate's kinds as YAML")
    .addHelpText('after', '\nExample:\n  sandgate crds | kubectl apply --server-side -f -')
    .action(() => {
      process.stdout.write(crdsYaml());
    });
}
