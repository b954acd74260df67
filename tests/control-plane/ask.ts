import { request } from 'node:http';

/** Where a server under test listens. */
export type Where = { readonly socketPath: string } | { readonly host: string; readonly port: number };

export interface Answer {
  readonly status: number;
  readonly json?: unknown;
  readonly text?: string;
}

/** One request; `json` when the answer is JSON, else `text`. Rejects when the answer is cut off. */
export function ask(
  where: Where,
  method: string,
  path: string,
  body?: unknown,
  more: { readonly raw?: string; readonly headers?: Readonly<Record<string, string>> } = {},
): Promise<Answer> {
  const sent = more.raw ?? (body === undefined ? undefined : JSON.stringify(body));
  return new Promise((resolve, reject) => {
    const call = request({ ...where, method, path, headers: { ...more.headers } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      answer.once('error', reject);
      answer.once('end', () => {
        const status = answer.statusCode ?? 0;
        const isJson = answer.headers['content-type'] === 'application/json';
        resolve(isJson ? { status, json: JSON.parse(text) as unknown } : { status, text });
      });
    });
    call.once('error', reject);
    call.setTimeout(10_000, () => call.destroy(new Error(`no answer to ${method} ${path}`)));
    call.end(sent);
  });
}
