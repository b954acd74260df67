import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';

const SYSTEM_PATH = `${process.env['PATH']}:/usr/sbin:/sbin`;

test('everything that leaves a pod is captured or refused, and only its own ports are reachable', () => {
  const probe = join(import.meta.dirname, 'capture-probe.ts');
  const output = execFileSync('unshare', ['--user', '--map-root-user', '--net', process.execPath, probe], {
    encoding: 'utf8',
    timeout: 40_000,
    env: { ...process.env, PATH: SYSTEM_PATH },
  });
  assert.equal(JSON.parse(output), {
    'tcp 203.0.113.9:80': 'outbound',
    'tcp 10.244.0.1:22': 'outbound',
    'tcp 203.0.113.9:53': 'outbound',
    'tcp 240.0.0.7:443': 'outbound',
    'tcp [2001:db8::9]:443': 'outbound',
    'tcp 127.0.0.1:8000': 'app',
    'tcp 10.244.0.2:8000': 'app',
    'tcp [::1]:8000': 'app',
    'udp 203.0.113.9:53': 'dns',
    'udp [2001:db8::9]:53': 'dns',
    'udp 203.0.113.9:443': 'EPERM',
    'udp [2001:db8::9]:443': 'EPERM',
    'udp 127.0.0.1:8000': 'app',
    'in tcp app': 'app',
    'in tcp app v6': 'app',
    'in tcp outbound': 'no answer',
    'in tcp tunnel': 'no answer',
    'in udp dns': 'no answer',
    'in udp app': 'no answer',
  });
});

test.run();
