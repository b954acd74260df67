/** One HTTP request, from here or, as `ask.ts URL HEADERS` behind a prefix such as `nsenter`, from another network. */
import { execFile } from 'node:child_process';
import { request } from 'node:http';
import { promisify } from 'node:util';

const execute = promisify(execFile);

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

type Headers = Readonly<Record<string, string>>;

/** One request on a connection of its own. */
export async function ask(url: string, headers: Headers, prefix: readonly string[] = []): Promise<Answer> {
  if (prefix.length === 0) {
    return send(url, headers);
  }
  const argv = [...prefix, process.execPath, import.meta.filename, url, JSON.stringify(headers)];
  const { stdout } = await execute(argv[0]!, argv.slice(1));
  return JSON.parse(stdout) as Answer;
}

function send(url: string, headers: Headers): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const call = request(url, { headers, agent: false, timeout: 5000 }, (answer) => {
      let body = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      answer.once('end', () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body }));
    });
    call.once('timeout', () => call.destroy(new Error(`no answer from ${url}`)));
    call.once('error', reject);
    call.end();
  });
}

/** Throws when what was answered is not what the policy says. */
export function expect(what: string, got: unknown, wanted: unknown): void {
  if (got !== wanted) {
    throw new Error(`${what}: expected ${JSON.stringify(wanted)}, got ${JSON.stringify(got)}`);
  }
}

if (import.meta.main) {
  const [url = '', headers = '{}'] = process.argv.slice(2);
  process.stdout.write(JSON.stringify(await send(url, JSON.parse(headers) as Headers)));
}
