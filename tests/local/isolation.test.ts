import { once } from 'node:events';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { podProblems } from '../../local/pod-check.ts';
import { isSecondRun, repeatAsUser, shouldRepeat } from './as-user.ts';
import { LocalPlane, type Output, shell, temporaryFolder } from './harness.ts';

const CANARY = 'canary-3f9a1c';

/** Python is how an attacker in the sandbox reaches what the shell cannot. */
function python(script: string): string[] {
  return ['/usr/bin/python3', '-c', script];
}

interface Context {
  plane: LocalPlane;
  outside: string;
  tcp: Server;
  port: number;
  unix: Server;
}

const test = suite<Context>(`isolation${isSecondRun ? ' of an ordinary user' : ''}`);

test.before(async (context) => {
  process.env['SANDGATE_CANARY'] = CANARY;
  context.outside = await temporaryFolder();
  await chmod(context.outside, 0o755);
  await writeFile(join(context.outside, 'secret'), CANARY, { mode: 0o644 });
  context.tcp = createServer((socket) => socket.end(CANARY)).listen(0, '127.0.0.1');
  context.unix = createServer((socket) => socket.end(CANARY)).listen(join(context.outside, 'open.sock'));
  await Promise.all([once(context.tcp, 'listening'), once(context.unix, 'listening')]);
  await chmod(join(context.outside, 'open.sock'), 0o777);
  context.port = (context.tcp.address() as { port: number }).port;
  context.plane = await LocalPlane.open();
  await writeFile(join(context.plane.layout.pki, 'ca.key.canary'), CANARY);
  const secret = {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'other' },
    data: { key: Buffer.from(CANARY).toString('base64') },
  };
  await context.plane.store.create(secret);
  const serve = shell('main', 'exec python3 -m http.server 3000', { readinessProbe: { tcpSocket: { port: 3000 } } });
  await context.plane.createPod('one', { containers: [serve] });
  await context.plane.createPod('two', { containers: [serve] });
  await context.plane.ready('one');
  await context.plane.ready('two');
});

test.after(async ({ plane, outside, tcp, unix }) => {
  await plane?.close();
  tcp.close();
  unix.close();
  await rm(outside, { recursive: true, force: true });
});

/** A command must have failed, and for the reason that is meant. */
function refused(result: Output, why: RegExp): void {
  assert.is.not(result.code, 0, result.out);
  assert.match(result.err + result.out, why);
  assert.not.match(result.out, CANARY);
}

test('a sandbox sees its own processes only', async ({ plane }) => {
  const { out } = await plane.sh('one', 'for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; echo; done');
  const lines = out.split('\n').filter((line) => line.trim() !== '');
  assert.ok(lines.some((line) => line.includes('http.server')));
  assert.ok(
    lines.every((line) => /http\.server|\/bin\/sh|\btr\b/.test(line)),
    out,
  );
  refused(await plane.sh('one', `kill -0 ${process.pid}`), /No such process/i);
});

test('no file of the machine beside its programs is there', async ({ plane, outside }) => {
  for (const path of [
    outside,
    plane.layout.dir,
    '/etc/shadow',
    '/etc/sudoers',
    '/root/.ssh',
    '/boot',
    '/.old',
    '/var/run/docker.sock',
    '/sys/kernel',
  ]) {
    refused(await plane.sh('one', `ls -d ${path}`), /No such file/);
  }
  const { out } = await plane.sh('one', 'ls -A /home /root /run /tmp /mnt /srv');
  assert.not.match(out, /[a-z0-9]+\.|checkout/);
});

test('nothing readable in it holds a secret of the plane', async ({ plane }) => {
  // The machine's programs are no place for secrets, and too many to read; a pattern in brackets does not find itself.
  const folders = ['usr', 'bin', 'sbin', 'lib', 'lib64', 'proc', 'dev'].map((name) => `--exclude-dir=${name}`);
  const pattern = CANARY.replace('-', '[-]');
  const search = [
    `grep -rsl ${folders.join(' ')} '${pattern}' /`,
    `grep -slE '${pattern}|PRIVATE KE[Y]' /proc/[0-9]*/environ`,
    'find / -xdev -type s 2>/dev/null',
    'wc -l < /proc/net/unix',
  ];
  const { out } = await plane.sh('one', search.join('; '));
  assert.equal(out.trim().split('\n'), ['1']);
});

test('its descriptors lead nowhere but to its log', async ({ plane }) => {
  const { out } = await plane.sh('one', 'ls -l /proc/1/fd | sed "s/.* -> //"');
  const targets = out
    .trim()
    .split('\n')
    .slice(1)
    .filter((target) => !/^(\/dev\/null|socket:|anon_inode:|.*\/main\.log$)/.test(target));
  assert.equal(targets, []);
});

test('the machine cannot be reached: loopback, its UNIX sockets, the bridge', async ({ plane, port, outside }) => {
  const connect = (host: string, to: number): string[] =>
    python(`import socket; s=socket.create_connection(("${host}", ${to}), 3); print(s.recv(99))`);
  refused(await plane.exec('one', connect('127.0.0.1', port)), /refused/i);
  for (const host of ['10.244.0.1', 'fd53:6174:6e64::1', '192.0.2.1']) {
    // Captured, and there is no sidecar: closed.
    refused(await plane.exec('one', connect(host, port)), /refused/i);
  }
  const unix = python(
    `import socket; s=socket.socket(socket.AF_UNIX); s.connect("${outside}/open.sock"); print(s.recv(99))`,
  );
  refused(await plane.exec('one', unix), /No such file/);
});

test('another sandbox is reached through the sidecar only', async ({ plane }) => {
  const { status } = await plane.ready('two');
  for (const { ip } of status!.podIPs!) {
    refused(await plane.exec('one', python(`import socket; socket.create_connection(("${ip}", 3000), 3)`)), /refused/i);
  }
  // The node's network, where the ingress gateway lives, reaches it.
  const own = await plane.exec(
    'two',
    python('import socket; socket.create_connection(("127.0.0.1", 3000), 3); print("own")'),
  );
  assert.is(own.out.trim(), 'own');
});

test('UDP and ICMP do not leave', async ({ plane }) => {
  const send = (host: string, port: number): string[] =>
    python(
      `import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect(("${host}", ${port})); s.send(b"x"); s.recv(9)`,
    );
  refused(await plane.exec('one', send('192.0.2.1', 4433)), /PermissionError|No route|unreachable|refused/i);
  refused(await plane.exec('one', send('10.244.0.1', 4433)), /PermissionError|No route|unreachable|refused/i);
});

test('it has no capability and no way to one', async ({ plane }) => {
  for (const where of ['/proc/self/status', '/proc/1/status']) {
    const { out } = await plane.sh('one', `grep -E "^(Cap|NoNewPrivs)" ${where}`);
    assert.match(out, /CapPrm:\t0000000000000000/);
    assert.match(out, /CapEff:\t0000000000000000/);
    assert.match(out, /CapBnd:\t0000000000000000/);
    assert.match(out, /NoNewPrivs:\t1/);
  }
  refused(await plane.sh('one', 'unshare --user --map-root-user true'), /failed/i);
  refused(await plane.sh('one', 'unshare --net true'), /not permitted/i);
  refused(await plane.sh('one', 'mount -t tmpfs none /mnt'), /permission denied|must be superuser|not permitted/i);
  refused(await plane.sh('one', 'mount -o remount,rw,bind /usr'), /permission denied|must be superuser|not permitted/i);
  refused(await plane.sh('one', 'umount /proc'), /not permitted|must be superuser/i);
  refused(await plane.sh('one', 'nsenter --net=/proc/1/ns/net true'), /not permitted/i);
  refused(await plane.sh('one', 'chroot / true'), /not permitted/i);
  refused(await plane.sh('one', 'mknod /tmp/disk b 8 0'), /not permitted/i);
  refused(await plane.sh('one', 'echo 1 > /proc/sys/net/ipv4/ip_forward'), /read-only|permission/i);
  refused(await plane.sh('one', 'echo 9 > /proc/sys/user/max_user_namespaces'), /permission/i);
  refused(await plane.exec('one', python('import os; os.setuid(1)')), /Errno/);
});

test('it can neither see nor change the capture rules', async ({ plane }) => {
  const nft = plane.node.tools.nft;
  refused(await plane.sh('one', `${nft} flush ruleset`), /not permitted|root/i);
  refused(await plane.sh('one', `${nft} list ruleset`), /not permitted|root/i);
  refused(await plane.sh('one', `${plane.node.tools.ip} addr add 10.244.9.9/16 dev eth0`), /not permitted/i);
  refused(
    await plane.exec('one', python('import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)')),
    /PermissionError/,
  );
  refused(
    await plane.exec('one', python('import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)')),
    /PermissionError/,
  );
});

test('the programs of the machine cannot be changed', async ({ plane }) => {
  for (const path of ['/usr/bin/planted', '/bin/planted', '/lib/planted', '/sbin/planted']) {
    refused(await plane.sh('one', `echo x > ${path}`), /read-only|permission/i);
  }
  refused(await plane.sh('one', 'mv /bin /gone || mv /lib64 /gone'), /busy|permission|read-only/i);
  const { code } = await plane.sh(
    'one',
    'echo data > /root/file && echo data > /tmp/file && mkdir /work && test -s /root/file',
  );
  assert.is(code, 0);
});

test('the terminal of whoever started the plane is out of reach', async ({ plane }) => {
  refused(await plane.sh('one', 'echo x > /dev/tty'), /No such device|cannot create/i);
});

test('a volume may not cover what containers are started from', async ({ plane }) => {
  const forbidden = [
    '/',
    '/usr',
    '/usr/bin',
    '/lib64',
    '/etc',
    '/etc/ld.so.conf.d',
    '/proc/sys',
    '/opt/sandgate',
    '/a/../usr/bin',
    'rel',
  ];
  const allowed = ['/data', '/usr/local/lib/x', '/etc/app', '/home', '/dev/shm', '/var/lib/app/'];
  const spec = (mountPath: string) => ({
    containers: [{ name: 'main', volumeMounts: [{ name: 'v', mountPath }] }],
    volumes: [{ name: 'v', emptyDir: {} }],
  });
  for (const mountPath of forbidden) {
    assert.is(podProblems(spec(mountPath))[0]?.path, 'spec.containers[0].volumeMounts[0]', mountPath);
  }
  for (const mountPath of allowed) {
    assert.equal(podProblems(spec(mountPath)), [], mountPath);
  }
  await plane.createPod('cover', spec('/usr/bin'));
  const pod = await plane.until('cover', ({ status }) => status?.phase === 'Failed');
  assert.match(pod.status!.message!, 'spec.containers[0].volumeMounts[0]: mountPath covers or lies in /usr');
});

if (shouldRepeat) {
  test('all of it holds for an ordinary user too', async () => {
    const { code, output } = await repeatAsUser(import.meta.url);
    assert.is(code, 0, output);
  });
}

test.run();
