import { createServer, type Server } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { sandbox, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { TestPlane } from '../e2e/plane.ts';

/**
 * The way to the operator's resolver is the sidecar's own: a sandbox asks questions over UDP, and has no connection to
 * that machine whose bytes it chooses (zone transfers, updates, or whatever else answers at that port).
 */
const resolver = suite('the resolver as a way out of a sandbox');
const ANSWER = [192, 0, 2, 77] as const;
let plane: TestPlane;
let server: Server;
/** What arrived at the resolver, byte for byte. */
let arrived = '';

/** A resolver over TCP that knows one address for every question. */
function startResolver(): Promise<Server> {
  const made = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      arrived += data.toString('latin1');
      const question = data.subarray(2);
      const end = question.indexOf(0, 12) + 5;
      if (question.length < 17 || end > question.length) {
        socket.destroy();
        return;
      }
      const head = Buffer.from([...question.subarray(0, 2), 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
      const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, ...ANSWER]);
      const message = Buffer.concat([head, question.subarray(12, end), record]);
      socket.write(Buffer.concat([Buffer.from([message.length >> 8, message.length & 255]), message]));
    });
  });
  return new Promise((resolve) => {
    made.listen(0, '127.0.0.1', () => resolve(made));
  });
}

resolver.before(async () => {
  server = await startResolver();
  const { port } = server.address() as { port: number };
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': `domain: localhost\ndns: { resolver: "127.0.0.1:${port}" }\n`,
      'all.yaml': yaml(
        sandbox('asker'),
        trafficPolicy('asker-egress', 'asker', [{ action: 'reject', to: [{ cidr: '0.0.0.0/0' }, { cidr: '::/0' }] }]),
      ),
    },
  });
  await plane.phase('asker', 'Running');
});

resolver.after(async () => {
  await plane?.stop();
  server?.close();
});

resolver('a question over UDP is answered', async () => {
  const { stdout } = await plane.exec('asker', 'getent', 'ahostsv4', 'unlisted.example.test');
  assert.match(stdout, ANSWER.join('.'));
});

resolver('no bytes of its own arrive there', async () => {
  const script = `
    const net = require('node:net');
    const own = Object.values(require('node:os').networkInterfaces()).flat().map(({ address }) => address);
    const to = [...new Set(['127.0.0.1', '127.7.7.7', '::1', '::ffff:127.0.0.1', ...own])].map((host) => [host, 15054]);
    to.push(['240.0.0.53', 53], ['10.244.0.1', 53], ['127.0.0.1', 53], ['::ffff:240.0.0.53', 53]);
    const attempt = ([host, port]) => new Promise((done) => {
      const socket = net.connect({ host, port, timeout: 1500 }, () => socket.write('canary-of-the-sandbox'));
      socket.on('error', () => {}).on('timeout', () => socket.destroy()).on('close', done);
    });
    Promise.all(to.map(attempt)).then(() => console.log('tried', to.length));
  `;
  const { stdout, stderr } = await plane.exec('asker', '/opt/sandgate/node', '-e', script);
  assert.match(stdout, /^tried \d+\n$/, stderr);
  assert.not.match(arrived, 'canary-of-the-sandbox');
});

resolver.run();
