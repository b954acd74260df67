import { createServer, type Server } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { findEnvoy } from '../../envoy/find.ts';
import { sandbox, trafficPolicy, yaml } from '../e2e/manifests.ts';
import { TestPlane, until } from '../e2e/plane.ts';
import { isSecondRun, repeatAsUser, shouldRepeat } from '../local/as-user.ts';

/**
 * The way to the operator's resolver: a sandbox that may connect to some address learns the addresses of names, and has
 * no connection to that machine whose bytes it chooses (zone transfers, updates, or whatever else answers at that port).
 * From any other sandbox no name leaves. A plane of an ordinary user cannot tell a sandbox's connections from its
 * sidecar's, so everything runs once more as one.
 */
const resolver = suite(`the resolver as a way out of a sandbox${isSecondRun ? ' of an ordinary user' : ''}`);
const ANSWER = [192, 0, 2, 77] as const;
const EVERYTHING = [{ cidr: '0.0.0.0/0' }, { cidr: '::/0' }];
let plane: TestPlane;
let server: Server;
/** What arrived at the resolver, byte for byte, without the lengths before each message. */
let arrived: Buffer[] = [];

/** A resolver over TCP that knows one address for every question. */
function startResolver(): Promise<Server> {
  const made = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      arrived.push(data.subarray(2));
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

/** The names that were asked for; fails if a message is anything but one plain question for addresses. */
function askedNames(): readonly string[] {
  const names = arrived.map((message) => {
    assert.equal([...message.subarray(2, 12)], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0], message.toString('latin1'));
    const labels: string[] = [];
    let at = 12;
    for (; message[at] !== 0 && at < message.length; at += 1 + message[at]!) {
      labels.push(message.toString('latin1', at + 1, at + 1 + message[at]!));
    }
    const [type, ...rest] = [message.readUInt16BE(at + 1), message.readUInt16BE(at + 3), message.length - at];
    assert.ok(type === 1 || type === 28, `type ${type}`);
    assert.equal(rest, [1, 5]);
    return labels.join('.');
  });
  return [...new Set(names)].sort();
}

resolver.before(async () => {
  server = await startResolver();
  const { port } = server.address() as { port: number };
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': `domain: localhost\ndns: { resolver: "127.0.0.1:${port}" }\n`,
      'all.yaml': yaml(
        sandbox('asker'),
        sandbox('listed'),
        trafficPolicy('asker-egress', 'asker', [{ action: 'allow', to: [{ cidr: '198.51.100.0/24' }] }]),
        trafficPolicy('listed-egress', 'listed', [
          { action: 'allow', to: [{ fqdn: 'api.example.test' }] },
          { action: 'reject', to: EVERYTHING },
        ]),
      ),
    },
  });
  await Promise.all([plane.phase('asker', 'Running'), plane.phase('listed', 'Running')]);
});

resolver.after(async () => {
  await plane?.stop();
  server?.close();
});

resolver.before.each(() => {
  arrived = [];
});

const lookUp = async (name: string, host: string) => (await plane.exec(name, 'getent', 'ahostsv4', host)).stdout;

resolver('a question over UDP is answered where an address can be reached', async () => {
  assert.match(await lookUp('asker', 'UNLISTED.example.test'), ANSWER.join('.'));
  assert.equal(askedNames(), ['unlisted.example.test']);
});

/** Sends bytes to every way that leads to the resolver, or could: one connection for each. */
const SENDER = `
  const net = require('node:net');
  const own = Object.values(require('node:os').networkInterfaces()).flat().map(({ address }) => address);
  const to = [...new Set(['127.0.0.1', '127.7.7.7', '::1', '::ffff:127.0.0.1', ...own])].map((host) => [host, 15054]);
  to.push(['240.0.0.53', 53], ['10.244.0.1', 53], ['127.0.0.1', 53], ['::ffff:240.0.0.53', 53]);
  const u16 = (value) => [value >> 8, value & 255];
  const framed = (bytes) => Buffer.from([...u16(bytes.length), ...bytes]);
  const name = (...labels) => [...labels.flatMap((label) => [label.length, ...Buffer.from(label, 'latin1')]), 0];
  const message = ({ id = 7, flags = 0x100, counts = [1, 0, 0, 0], question, rest = '' }) =>
    framed([...u16(id), ...u16(flags), ...counts.flatMap(u16), ...question, ...Buffer.from(rest)]);
  const A = [0, 1, 0, 1];
  const good = [...name('canary', 'test'), ...A];
  const messages = [
    Buffer.from('canary-of-the-sandbox canary-of-the-sandbox'),
    framed(Buffer.from('canary-of-the-sandbox')),
    message({ question: [...name('canary', 'test'), 0, 16, 0, 1] }),
    message({ question: [...name('canary', 'test'), 0, 252, 0, 1] }),
    message({ question: [...name('canary', 'test'), 0, 1, 0, 3] }),
    message({ question: [...name('canary of the sandbox', 'test'), ...A] }),
    message({ question: [...name('canary\\u0001', 'test'), ...A] }),
    message({ flags: 0x2800, question: good }),
    message({ flags: 0x8180, question: good }),
    message({ counts: [2, 0, 0, 0], question: [...good, ...good] }),
    message({ counts: [1, 1, 0, 0], question: good, rest: 'canary-of-the-sandbox' }),
    message({ question: good.slice(0, -2) }),
  ];
  const attempt = ([[host, port], bytes]) => new Promise((done) => {
    const socket = net.connect({ host, port, timeout: 1500 }, () => socket.write(bytes));
    socket.on('data', () => socket.destroy()).on('error', () => {}).on('timeout', () => socket.destroy()).on('close', done);
  });
  const attempts = to.flatMap((way) => messages.map((bytes) => [way, bytes]));
  Promise.all(attempts.map(attempt)).then(() => console.log('tried', attempts.length));
`;

resolver('no bytes of its own arrive there', async () => {
  for (const name of ['asker', 'listed']) {
    const { stdout, stderr } = await plane.exec(name, '/opt/sandgate/node', '-e', SENDER);
    assert.match(stdout, /^tried \d+\n$/, stderr);
  }
  assert.equal(askedNames(), []);
});

/** A proper question straight to the sidecar's port, with a spelling and trailing bytes that carry something. */
const QUESTION = `
  const question = Buffer.from('000601000001000000000001' + '06506572436172' + '045445737400' + '00010001', 'hex');
  const bytes = Buffer.concat([question, Buffer.from('canary-of-the-sandbox')]);
  const socket = require('node:net').connect(15054, '127.0.0.1', () =>
    socket.write(Buffer.concat([Buffer.from([0, bytes.length]), bytes])));
  socket.on('error', ({ code }) => console.log(code)).on('data', (data) => {
    console.log(data.length, [...data.subarray(-4)].join('.'));
    socket.destroy();
  });
`;

resolver('of a proper question over that way nothing passes but the name', async () => {
  const ask = async (name: string) => (await plane.exec(name, '/opt/sandgate/node', '-e', QUESTION)).stdout;
  assert.is(await ask('listed'), 'ECONNREFUSED\n');
  const got = await ask('asker');
  if (isSecondRun) {
    assert.is(got, `${2 + 12 + 17 + 16} ${ANSWER.join('.')}\n`);
    assert.equal(askedNames(), ['percar.test']);
  } else {
    assert.is(got, 'ECONNREFUSED\n');
  }
});

resolver('no name leaves a sandbox that can reach no address', async () => {
  assert.match(await lookUp('listed', 'api.example.test'), /^240\./);
  assert.is(await lookUp('listed', 'secret-data.attacker.test'), '');
  assert.is(await lookUp('listed', 'secret-data.api.example.test'), '');
  assert.equal(askedNames(), []);
});

resolver('whether names leave follows the policies', async () => {
  const replace = async (...rules: readonly object[]) => {
    const stored = await plane.store.get('TrafficPolicy', { namespace: 'default', name: 'listed-egress' });
    const spec = { ...(stored.spec as object), egress: { rules } };
    await plane.store.replace({ ...stored, spec });
  };
  await replace({ action: 'allow', to: [{ fqdn: 'api.example.test' }, { cidr: '198.51.100.7' }] });
  await until('a name to be resolved', 20_000, async () =>
    (await lookUp('listed', 'opened.example.test')).includes(ANSWER.join('.')),
  );
  await replace({ action: 'reject', to: EVERYTHING }, { action: 'allow', to: [{ cidr: '198.51.100.7' }] });
  await until('names to be kept inside', 20_000, async () => {
    arrived = [];
    return (await lookUp('listed', 'shut.example.test')) === '' && arrived.length === 0;
  });
});

if (shouldRepeat) {
  resolver('the same as an ordinary user', async () => {
    const { code, output } = await repeatAsUser(import.meta.url, { envoy: await findEnvoy() });
    assert.is(code, 0, output);
  });
}

resolver.run();
