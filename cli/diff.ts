import type { Command } from 'commander';
import { checkDocuments, readInputs } from './documents.ts';
import { outputFormat } from './output.ts';
import { findTarget } from './target.ts';

interface DiffOptions {
  readonly filename: readonly string[];
  readonly output?: string;
  readonly dir?: string;
}

/** `sandgate diff`: what applying would change: objects, decisions, xDS resources. Writes nothing. */
export function registerDiff(program: Command): void {
  program
    .command('diff')
    .description('what applying would change: objects, the policy of every sandbox, xDS resources; nothing is written')
    .requiredOption('-f, --filename <path...>', 'a file, a directory, or - for standard input')
    .option('-o, --output <format>', 'json: with the rules and resources before and after')
    .option('--dir <dir>', 'the directory of the plane; without a running one its manifests are compared')
    .addHelpText(
      'after',
      [
        '',
        'The exit status is 0 whether something would change or not; 1 when an object is bad or the plane cannot be read.',
        'What the controllers would do afterwards (a new Pod and its address) is not part of it.',
        '',
        'Example:',
        '  $ sandgate diff -f policy.yaml',
      ].join('\n'),
    )
    .action(diff);
}

async function diff(options: DiffOptions): Promise<void> {
  const format = outputFormat(options.output, ['json']);
  const documents = await readInputs(options.filename);
  checkDocuments(documents);
  const target = await findTarget(options.dir);
  const [{ difference }, { diffWords }] = await Promise.all([import('./difference.ts'), import('./diff-words.ts')]);
  const found = await difference(
    target,
    documents.map(({ object }) => object),
  );
  process.stdout.write(format === 'json' ? `${JSON.stringify(found)}\n` : diffWords(found));
}
