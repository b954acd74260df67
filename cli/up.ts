import type { Command } from 'commander';
import { CodedError } from '../base/errors.ts';
import type { UpOptions } from './plane.ts';
import { ROLE_NAMES } from './roles/names.ts';

/** `sandgate up`: local mode on this machine (architecture §5, §8). */
export function registerUp(program: Command): void {
  program
    .command('up')
    .description('run local mode: everything on this machine, from a directory of manifests')
    .option('--dir <dir>', 'the directory of manifests (default: the working directory)')
    .option(
      '--domain <domain>',
      'domain below which sandboxes are reached (default: from sandgate.yaml, else localhost)',
    )
    .option('--ingress <host:port>', 'where requests for sandboxes are accepted', '127.0.0.1:8080')
    .option('--api <host:port>', 'where the E2B API is to be served; it does not exist yet')
    .option(
      '--admin <address>',
      'unix:PATH or HOST:PORT on loopback of the admin API (default: a socket in DIR/.sandgate/run)',
    )
    .option('--without <role...>', `leave a role out, to run it apart: ${ROLE_NAMES.join(', ')}`, collect, [])
    .option('-o, --output <format>', 'json: one JSON object a line', undefined)
    .addHelpText('after', '\nExample:\n  $ sandgate up --dir ./policies --ingress 127.0.0.1:8080\n')
    .action(async (given: Record<string, unknown>) => {
      const options = upOptions(given);
      // Loaded only here: no other command, and no role, carries what `up` needs.
      const [{ runUp }, { createLogger }] = await Promise.all([import('./plane.ts'), import('../base/logger.ts')]);
      await runUp(options, createLogger('up'));
    });
}

function collect(value: string, known: readonly string[]): readonly string[] {
  return [...known, value];
}

/** Checks the options; throws `usage`. */
export function upOptions(given: Record<string, unknown>): UpOptions {
  if (given['api'] !== undefined) {
    throw new CodedError('usage', '--api: the E2B API does not exist yet');
  }
  if (given['output'] !== undefined && given['output'] !== 'json') {
    throw new CodedError('usage', `-o ${String(given['output'])}: only json is known`);
  }
  const without = [given['without'] ?? []].flat().flatMap((text) => String(text).split(','));
  const strange = without.find((role) => !(ROLE_NAMES as readonly string[]).includes(role));
  if (strange !== undefined) {
    throw new CodedError('usage', `--without ${strange}: the roles are ${ROLE_NAMES.join(', ')}`);
  }
  return {
    dir: typeof given['dir'] === 'string' ? given['dir'] : (process.env['SANDGATE_DIR'] ?? '.'),
    ...(typeof given['domain'] === 'string' ? { domain: given['domain'] } : {}),
    ingress: parseHostPort('--ingress', String(given['ingress'])),
    ...(typeof given['admin'] === 'string' ? { admin: given['admin'] } : {}),
    without,
    json: given['output'] === 'json',
  };
}

function parseHostPort(option: string, text: string): { readonly host: string; readonly port: number } {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+):([0-9]{1,5})$/.exec(text);
  if (match === null || Number(match[2]) > 65_535) {
    throw new CodedError('usage', `${option} ${text}: give HOST:PORT`);
  }
  return { host: match[1]!.replace(/^\[|\]$/g, ''), port: Number(match[2]) };
}
