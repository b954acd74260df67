import { Agent, request } from 'undici';
import { CodedError, type FieldError } from '../base/errors.ts';
import { layoutOf } from '../local/layout.ts';

/** Calls the admin API of the plane that runs in a directory. Throws its errors, and `unavailable` without a plane. */
export async function adminCall<T>(dir: string, method: 'GET' | 'POST', path: string, body?: unknown): Promise<T> {
  const dispatcher = new Agent({ connect: { socketPath: layoutOf(dir).socket('admin') } });
  try {
    const answer = await send(dispatcher, dir, method, path, body);
    const value = (await answer.body.json()) as T & { error?: AdminError };
    if (answer.statusCode >= 400) {
      throw asError(value.error);
    }
    return value;
  } finally {
    await dispatcher.close();
  }
}

/** The lines of a streaming answer, each parsed, until the server or the caller ends it. */
export async function* adminLines<T>(dir: string, path: string): AsyncIterable<T> {
  const dispatcher = new Agent({ connect: { socketPath: layoutOf(dir).socket('admin') }, bodyTimeout: 0 });
  try {
    const answer = await send(dispatcher, dir, 'GET', path);
    if (answer.statusCode >= 400) {
      throw asError(((await answer.body.json()) as { error?: AdminError }).error);
    }
    let rest = '';
    for await (const chunk of answer.body.setEncoding('utf8')) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop() ?? '';
      yield* lines.filter((line) => line !== '').map((line) => JSON.parse(line) as T);
    }
  } finally {
    await dispatcher.destroy();
  }
}

interface AdminError {
  readonly code?: string;
  readonly message?: string;
  readonly fields?: readonly FieldError[];
}

function send(dispatcher: Agent, dir: string, method: 'GET' | 'POST', path: string, body?: unknown) {
  return request(`http://admin${path}`, {
    dispatcher,
    method,
    headers: { 'content-type': 'application/json' },
    body: body === undefined ? null : JSON.stringify(body),
  }).catch((error: Error) => {
    throw new CodedError('unavailable', `no plane is running in ${dir}: start it with sandgate up --dir ${dir}`, {
      cause: error,
    });
  });
}

function asError(error: AdminError | undefined): CodedError {
  const fields = error?.fields ?? [];
  return new CodedError(error?.code ?? 'internal', error?.message ?? 'the plane answered with an error', { fields });
}
