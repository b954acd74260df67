/**
 * The upstream, a process of its own: `upstream.ts ADDRESS PORT`. It answers every request with 200 at a few
 * microseconds each, far below any HTTP server, so that even the bare Envoy is the limit on two cores. It reads
 * requests without a body, and says in its answer which mark they carried and to which address they came.
 */
import { createServer, type Socket } from 'node:net';
import { MARK_HEADER } from './worlds.ts';

/** Headers of the answer. */
export const SEEN_MARK = 'x-seen-mark';
export const SEEN_ADDRESS = 'x-seen-address';

const END = Buffer.from('\r\n\r\n');
const MARK = Buffer.from(`\r\n${MARK_HEADER}: `);

function serve(socket: Socket): void {
  const address = `${socket.localAddress}:${socket.localPort}`;
  const answers = new Map<string, Buffer>();
  let rest: Buffer | null = null;
  socket.on('error', () => {});
  socket.on('data', (data) => {
    let bytes = rest === null ? data : Buffer.concat([rest, data]);
    for (let end = bytes.indexOf(END); end >= 0; end = bytes.indexOf(END)) {
      const mark = markOf(bytes.subarray(0, end));
      let answer = answers.get(mark);
      if (answer === undefined) {
        answer = answerFor(mark, address);
        answers.set(mark, answer);
      }
      socket.write(answer);
      bytes = bytes.subarray(end + END.length);
    }
    rest = bytes.length === 0 ? null : bytes;
  });
}

function markOf(head: Buffer): string {
  const at = head.indexOf(MARK);
  if (at < 0) {
    return '';
  }
  const end = head.indexOf('\r\n', at + MARK.length);
  return head.toString('latin1', at + MARK.length, end < 0 ? head.length : end);
}

function answerFor(mark: string, address: string): Buffer {
  const lines = ['HTTP/1.1 200 OK', 'content-length: 3', `${SEEN_MARK}: ${mark}`, `${SEEN_ADDRESS}: ${address}`];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\nok\n`, 'latin1');
}

if (import.meta.main) {
  const [address = '127.0.0.1', port = '0'] = process.argv.slice(2);
  const server = createServer({ noDelay: true }, serve);
  server.listen(Number(port), address, () => process.stdout.write('{"ready":true}\n'));
}
