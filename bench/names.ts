/** A name server over TCP that gives every name one IPv4 address, as the gateway's resolver. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';

/** Serves on 127.0.0.1; an A question gets the address, any other an empty answer. */
export async function serveNames(port: number, address: string): Promise<{ close(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    let rest = Buffer.alloc(0);
    socket.on('data', (data) => {
      rest = Buffer.concat([rest, data]);
      while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE(0)) {
        const end = 2 + rest.readUInt16BE(0);
        const answer = answerTo(rest.subarray(2, end), address);
        const size = Buffer.alloc(2);
        size.writeUInt16BE(answer.length);
        socket.write(Buffer.concat([size, answer]));
        rest = rest.subarray(end);
      }
    });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    async close() {
      for (const socket of sockets) {
        socket.destroy();
      }
      server.close();
      await once(server, 'close');
    },
  };
}

const HEADER_BYTES = 12;
const TYPE_A = 1;

/** The question again, with one record that points to its name. */
function answerTo(query: Buffer, address: string): Buffer {
  const end = query.indexOf(0, HEADER_BYTES) + 5;
  const isAddress = query.readUInt16BE(end - 4) === TYPE_A;
  const header = Buffer.from(query.subarray(0, HEADER_BYTES));
  header.writeUInt16BE(0x8180, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(isAddress ? 1 : 0, 6);
  header.writeUInt32BE(0, 8);
  const record = Buffer.from([0xc0, HEADER_BYTES, 0, TYPE_A, 0, 1, 0, 0, 0x0e, 0x10, 0, 4]);
  const answers = isAddress ? [record, Buffer.from(address.split('.').map(Number))] : [];
  return Buffer.concat([header, query.subarray(HEADER_BYTES, end), ...answers]);
}
