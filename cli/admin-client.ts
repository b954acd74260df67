import { Agent, request } from 'undici';
import { CodedError, type FieldError } from '../base/errors.ts';
import { layoutOf } from '../local/layout.ts';
import { readAdminRecord } from './admin-record.ts';

/** Calls the admin API of the plane that runs in a directory. Throws its errors, and `unavailable` without a plane. */
export async function adminCall<T>(dir: string, method: 'GET' | 'POST', path: string, body?: unknown): Promise<T> {
  const { dispatcher, answer } = await send(dir, {}, method, path, body);
  try {
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
  const { dispatcher, answer } = await send(dir, { bodyTimeout: 0 }, 'GET', path);
  try {
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

/** Sends a request to where the plane's record says that its admin API is. The caller closes the dispatcher. */
async function send(dir: string, options: Agent.Options, method: 'GET' | 'POST', path: string, body?: unknown) {
  const record = await readAdminRecord(layoutOf(dir));
  if (record === null) {
    throw noPlane(dir);
  }
  const { address, token } = record;
  const isUnix = address.startsWith('unix:');
  const dispatcher = new Agent(
    isUnix ? { ...options, connect: { socketPath: address.slice('unix:'.length) } } : options,
  );
  try {
    const answer = await request(`http://${isUnix ? 'admin' : address}${path}`, {
      dispatcher,
      method,
      headers: {
        'content-type': 'application/json',
        ...(token === null ? {} : { authorization: `Bearer ${token.reveal()}` }),
      },
      body: body === undefined ? null : JSON.stringify(body),
    });
    return { dispatcher, answer };
  } catch (error) {
    await dispatcher.destroy();
    throw noPlane(dir, error);
  }
}

function noPlane(dir: string, cause?: unknown): CodedError {
  return new CodedError('unavailable', `no plane is running in ${dir}: start it with sandgate up --dir ${dir}`, {
    cause,
  });
}

function asError(error: AdminError | undefined): CodedError {
  const fields = error?.fields ?? [];
  return new CodedError(error?.code ?? 'internal', error?.message ?? 'the plane answered with an error', { fields });
}
