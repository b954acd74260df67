/**
 * The upstream of the quickstart: answers with what it received, over HTTP on 18080 and HTTPS on 18443, and is a small
 * MCP server (tools `add` and `remove_everything`) under /mcp. `upstream.ts FOLDER` makes its certificate in FOLDER and
 * prints `ready`.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { join } from 'node:path';
import { CertificateAuthority } from '../../identity/certificates.ts';

export const UPSTREAM_NAME = 'api.quickstart.test';
export const HTTP_PORT = 18_080;
export const HTTPS_PORT = 18_443;

const DAY_MS = 86_400_000;

/** Makes the upstream's CA and certificate; returns what its HTTPS server shows. */
export async function makeCertificate(folder: string): Promise<{ readonly cert: string; readonly key: string }> {
  const now = Date.now();
  const authority = await CertificateAuthority.create('Quickstart upstream CA', { now, lifetimeMs: 30 * DAY_MS });
  const leaf = await authority.issueLeaf(UPSTREAM_NAME, { now, lifetimeMs: 30 * DAY_MS });
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'ca.pem'), authority.certificatePem);
  return { cert: leaf.certificatePem, key: leaf.keyPem.reveal() };
}

const respond: RequestListener = (request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const body = Buffer.concat(chunks).toString('utf8');
    const answer = request.url?.startsWith('/mcp') === true ? mcp(body) : echo(request, body);
    send(response, answer);
  });
};

function echo(request: IncomingMessage, body: string): object {
  const scheme = 'encrypted' in request.socket ? 'https' : 'http';
  return { scheme, method: request.method, path: request.url, headers: request.headers, body };
}

interface Call {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly name?: string; readonly arguments?: { readonly a?: number; readonly b?: number } };
}

function mcp(body: string): object {
  const call = parse(body);
  const { name, arguments: values } = call.params ?? {};
  const tools = [{ name: 'add' }, { name: 'remove_everything' }];
  const result =
    call.method === 'tools/call'
      ? {
          content: [
            { type: 'text', text: name === 'add' ? `${(values?.a ?? 0) + (values?.b ?? 0)}` : 'everything is gone' },
          ],
        }
      : { tools };
  return { jsonrpc: '2.0', id: call.id ?? null, result };
}

function parse(body: string): Call {
  try {
    return JSON.parse(body) as Call;
  } catch {
    return {};
  }
}

function send(response: ServerResponse, value: object): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(value, null, 2)}\n`);
}

if (import.meta.main) {
  const folder = process.argv[2] ?? '.';
  const certificate = await makeCertificate(folder);
  const servers = [
    createServer(respond).listen(HTTP_PORT, '127.0.0.1'),
    createSecureServer(certificate, respond).listen(HTTPS_PORT, '127.0.0.1'),
  ];
  for (const server of servers) {
    server.once('error', (error) => {
      process.stderr.write(`quickstart upstream: ${error.message}: end the program that has this port\n`);
      process.exit(1);
    });
  }
  await Promise.all(servers.map((server) => new Promise((resolve) => server.once('listening', resolve))));
  process.stdout.write('{"ready":true}\n');
  process.once('SIGTERM', () => process.exit(0));
}
