/** Run by `capture.test.ts` inside network namespaces of its own: tries every kind of traffic and prints what came of it. */
import { execFile, execFileSync, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type Server } from 'node:net';
import { promisify } from 'node:util';
import { captureRules } from '../../envoy/capture.ts';

const sh = (command: string): string => execFileSync('/bin/sh', ['-ec', command], { encoding: 'utf8' });

/** Answers every connection and datagram with its own name, so that a client sees where it has come to. */
async function tcpServer(name: string, port: number): Promise<Server> {
  const server = createServer((socket) => socket.on('error', () => {}).end(name));
  server.listen(port, '::');
  await once(server, 'listening');
  return server;
}

async function udpServer(name: string, address: string, port: number): Promise<{ close(): void }> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', (_, from) => socket.send(name, from.port, from.address));
  socket.bind(port, address);
  await once(socket, 'listening');
  return socket;
}

function tcp(host: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: 700 });
    socket.once('data', (data) => resolve(String(data)));
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
    socket.once('timeout', () => resolve('no answer'));
    socket.once('data', () => socket.destroy()).once('timeout', () => socket.destroy());
  });
}

function udp(host: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    const timer = setTimeout(() => done('no answer'), 700);
    const done = (result: string): void => {
      clearTimeout(timer);
      socket.close();
      resolve(result);
    };
    socket.once('message', (data) => done(String(data)));
    socket.once('error', (error: NodeJS.ErrnoException) => done(error.code ?? 'error'));
    // Connected, so that a refusal by ICMP comes back as an error.
    socket.connect(port, host, () =>
      socket.send('x', (error) => error && done((error as NodeJS.ErrnoException).code!)),
    );
  });
}

/** A neighbour in a network namespace of its own behind a veth, as the node's side of a pod. */
async function neighbour(): Promise<{ pid: number; end(): void }> {
  const holder = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec sleep 60'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(holder.stdout!, 'data');
  const inside = `nsenter --net --target ${holder.pid}`;
  sh(`
    ip link set lo up
    ip link add eth0 type veth peer name eth1 netns ${holder.pid}
    ip addr add 10.244.0.2/16 dev eth0
    ip addr add fd00::2/64 dev eth0 nodad
    ip link set eth0 up
    ${inside} ip addr add 10.244.0.1/16 dev eth1
    ${inside} ip addr add fd00::1/64 dev eth1 nodad
    ${inside} ip link set eth1 up
    ip route add default via 10.244.0.1
    ip -6 route add default via fd00::1
  `);
  return { pid: holder.pid!, end: () => void holder.kill('SIGKILL') };
}

/** Tries one connection from the neighbour. */
async function fromOutside(pid: number, kind: 'tcp' | 'udp', host: string, port: number): Promise<string> {
  const args = ['--net', '--target', String(pid), process.execPath, import.meta.filename, kind, host, String(port)];
  return (await promisify(execFile)('nsenter', args)).stdout.trim();
}

async function main(): Promise<Record<string, string>> {
  const outside = await neighbour();
  // Twice: the second text replaces the first.
  for (let times = 0; times < 2; times++) {
    execFileSync('nft', ['-f', '-'], { input: captureRules() });
  }
  const servers = await Promise.all([
    tcpServer('outbound', 15001),
    tcpServer('tunnel', 15054),
    tcpServer('app', 8000),
    // Bound to one address each: a redirected datagram must be answered from where it was led to.
    udpServer('dns', '127.0.0.1', 15053),
    udpServer('dns', '::1', 15053),
    udpServer('dns', '10.244.0.2', 15053),
    udpServer('app', '127.0.0.1', 8000),
    udpServer('app', '10.244.0.2', 8000),
  ]);
  try {
    return {
      'tcp 203.0.113.9:80': await tcp('203.0.113.9', 80),
      'tcp 10.244.0.1:22': await tcp('10.244.0.1', 22),
      'tcp 203.0.113.9:53': await tcp('203.0.113.9', 53),
      'tcp 240.0.0.7:443': await tcp('240.0.0.7', 443),
      'tcp [2001:db8::9]:443': await tcp('2001:db8::9', 443),
      'tcp 127.0.0.1:8000': await tcp('127.0.0.1', 8000),
      'tcp 10.244.0.2:8000': await tcp('10.244.0.2', 8000),
      'tcp [::1]:8000': await tcp('::1', 8000),
      'udp 203.0.113.9:53': await udp('203.0.113.9', 53),
      'udp [2001:db8::9]:53': await udp('2001:db8::9', 53),
      'udp 203.0.113.9:443': await udp('203.0.113.9', 443),
      'udp [2001:db8::9]:443': await udp('2001:db8::9', 443),
      'udp 127.0.0.1:8000': await udp('127.0.0.1', 8000),
      'in tcp app': await fromOutside(outside.pid, 'tcp', '10.244.0.2', 8000),
      'in tcp app v6': await fromOutside(outside.pid, 'tcp', 'fd00::2', 8000),
      'in tcp outbound': await fromOutside(outside.pid, 'tcp', '10.244.0.2', 15001),
      'in tcp tunnel': await fromOutside(outside.pid, 'tcp', '10.244.0.2', 15054),
      'in udp dns': await fromOutside(outside.pid, 'udp', '10.244.0.2', 15053),
      'in udp app': await fromOutside(outside.pid, 'udp', '10.244.0.2', 8000),
    };
  } finally {
    servers.forEach((server) => {
      server.close();
    });
    outside.end();
  }
}

const [kind, host = '', port = ''] = process.argv.slice(2);
if (kind === 'tcp' || kind === 'udp') {
  process.stdout.write(`${await (kind === 'tcp' ? tcp : udp)(host, Number(port))}\n`);
} else {
  process.stdout.write(`${JSON.stringify(await main())}\n`);
}
