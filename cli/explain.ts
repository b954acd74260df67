import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { type Command, Option } from 'commander';
import { refText } from '../api/object.ts';
import { CodedError } from '../base/errors.ts';
import type { EffectivePolicy } from '../control-plane/effective-policy.ts';
import type { ExplainQuery, Explanation } from '../control-plane/explain.ts';
import { adminCall } from './admin-client.ts';
import { outputFormat, printable } from './output.ts';
import { findTarget } from './target.ts';

interface ExplainOptions {
  readonly sandbox: string;
  readonly request?: string;
  readonly header: readonly string[];
  readonly data?: string;
  readonly to?: string;
  readonly output?: string;
  readonly dir?: string;
}

/** `sandgate explain`: what happens to a request of a sandbox, by which rule, and why (D23). */
export function registerExplain(program: Command): void {
  program
    .command('explain')
    .description('what happens to a request of a sandbox, by which rule, and why; without a URL: its effective policy')
    .requiredOption('--sandbox <ns/name>', 'the sandbox that asks')
    .argument('[url]', 'http://…, https://…, or tcp://host:port for the connection alone')
    .option('-X, --request <method>', 'the method')
    .addOption(
      new Option('-H, --header <header>', '"name: value"; may be repeated')
        .default([], 'none')
        .argParser((value: string, all: readonly string[]) => [...all, value]),
    )
    .option('--data <file>', 'the body: a file, or - for standard input')
    .option('--to <ip[:port]>', 'where the connection goes, instead of where the name leads')
    .option('-o, --output <format>', 'json')
    .option('--dir <dir>', 'the directory of the plane; without a running one its manifests are read')
    .addHelpText(
      'after',
      '\nExample:\n  $ sandgate explain --sandbox default/demo -X POST https://api.example.com/v1\n',
    )
    .action(explain);
}

async function explain(url: string | undefined, options: ExplainOptions): Promise<void> {
  const format = outputFormat(options.output, ['json']);
  const query = await queryOf(url, options);
  try {
    const answer = await ask(query, options.dir);
    process.stdout.write(format === 'json' ? `${JSON.stringify(answer)}\n` : words(answer));
  } catch (error) {
    if (format === 'json' && error instanceof CodedError && error.code === 'not-found') {
      process.stdout.write(`${JSON.stringify({ error: { code: error.code, message: error.message } })}\n`);
      process.exitCode = 1;
      return;
    }
    throw error;
  }
}

async function ask(query: ExplainQuery, dir: string | undefined): Promise<Explanation | EffectivePolicy> {
  const target = await findTarget(dir);
  if (target.isRunning) {
    return adminCall<Explanation | EffectivePolicy>(target.dir, 'POST', '/explain', query);
  }
  const { explainOffline } = await import('./offline.ts');
  return explainOffline(target.dir, query);
}

async function queryOf(url: string | undefined, options: ExplainOptions): Promise<ExplainQuery> {
  const headers = options.header.map((text) => {
    const cut = text.indexOf(':');
    if (cut <= 0) {
      throw new CodedError('usage', `-H ${text}: give "name: value"`);
    }
    return [text.slice(0, cut).trim(), text.slice(cut + 1).trim()] as const;
  });
  const body = options.data === undefined ? undefined : (await readBody(options.data)).toString('base64');
  return {
    sandbox: options.sandbox,
    ...(url === undefined ? {} : { url }),
    ...(options.request === undefined ? {} : { method: options.request }),
    ...(headers.length === 0 ? {} : { headers }),
    ...(body === undefined ? {} : { body }),
    ...(options.to === undefined ? {} : { to: options.to }),
  };
}

function readBody(path: string): Promise<Buffer> {
  return path === '-'
    ? buffer(process.stdin)
    : readFile(path).catch((error: NodeJS.ErrnoException) => {
        throw new CodedError('not-found', `--data ${path} cannot be read: ${error.code}`);
      });
}

function words(answer: Explanation | EffectivePolicy): string {
  return 'l7' in answer && !('defaultDeny' in answer) ? decisionWords(answer) : policyWords(answer as EffectivePolicy);
}

function decisionWords({ l4, l7, tls, executor, policySet }: Explanation): string {
  const rule = l4.rule === null ? '' : ` by ${refText(l4.rule)} rule ${l4.rule.index}`;
  const lines = [`connection: ${l4.action} (${l4.reason})${rule}`];
  if (tls !== null) {
    lines.push(`tls: ${tls}`);
  }
  if (l7 !== null) {
    const why = l7.reason === null ? '' : ` (${l7.reason})`;
    lines.push(`request: ${l7.action}${why}${l7.status === null ? '' : ` with ${l7.status}`}`);
    lines.push(
      ...l7.matched.map(
        (match) =>
          `  ${refText(match.profile)} rule ${match.rule}: ${match.actions.join(', ') || 'no action'}${match.terminal ? ' — decides' : ''}`,
      ),
    );
    if (l7.mcp !== null) {
      const { method, tool, action } = l7.mcp;
      lines.push(`  MCP: ${method ?? 'no method'}${tool === null ? '' : ` of tool ${tool}`}: ${action}`);
    }
    lines.push(...Object.entries(l7.headers.set).map(([name, value]) => `  sets ${name}: ${value}`));
    lines.push(...l7.headers.remove.map((name) => `  removes ${name}`));
    lines.push(
      ...l7.credentials.map(
        ({ header, source }) => `  puts the credential of Secret ${source.namespace}/${source.name} into ${header}`,
      ),
    );
  }
  lines.push(`answered by: ${executor}, policy set ${policySet}`, ...advice(l4.reason));
  return printable(`${lines.join('\n')}\n`);
}

/** What a person can do about a connection that is refused. */
function advice(reason: string): string[] {
  switch (reason) {
    case 'default':
      return ['no rule allows it, and a policy that selects the sandbox governs egress: add an allow rule'];
    case 'unresolved':
      return ['a cidr rule cannot admit a name whose address is not known: allow the name by an fqdn rule'];
    case 'policy-invalid':
      return ['the object above is invalid and never had a good form: mend it (sandgate status says what is wrong)'];
    case 'own-address':
    case 'private-address':
      return ['addresses of the sandbox itself, loopback and link-local are refused before any rule'];
    default:
      return [];
  }
}

function policyWords(policy: EffectivePolicy): string {
  const lines = [`policy of ${policy.sandbox}, set ${policy.policySet}`];
  if (policy.invalid !== null) {
    lines.push(`everything is denied because of ${refText(policy.invalid)}, which is invalid`);
  }
  lines.push(`connections: what no rule matches is ${policy.defaultDeny ? 'denied' : 'allowed'}`);
  lines.push(
    ...policy.l4.map((entry) => `  ${refText(entry)} (priority ${entry.priority}): ${JSON.stringify(entry.rules)}`),
  );
  lines.push('requests, in this order:');
  lines.push(
    ...policy.l7.map(({ profile, rule, actions }) => `  ${refText(profile)} rule ${rule}: ${actions.join(', ')}`),
  );
  return `${lines.join('\n')}\n`;
}
