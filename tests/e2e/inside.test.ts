import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { layoutOf } from '../../local/layout.ts';
import { API, credentialRule, sandbox, secret, securityProfile, settings, trafficPolicy, yaml } from './manifests.ts';
import { TestPlane } from './plane.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** What a process of a sandbox, as uid 0, can find of secrets that are not its own. */
const inside = suite('secrets from inside a sandbox');
let plane: TestPlane;
let upstream: Upstream;

inside.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'all.yaml': yaml(
        sandbox('seeker'),
        sandbox('other'),
        trafficPolicy('seeker-egress', 'seeker', [{ action: 'allow', to: [{ fqdn: API }] }]),
        securityProfile('seeker-requests', 'seeker', [credentialRule('seeker-key', '/')]),
        secret('seeker-key', 'needle-credential-5512'),
      ),
    },
  });
  await Promise.all([plane.phase('seeker', 'Running'), plane.phase('other', 'Running')]);
});

inside.after(async () => {
  await plane?.stop();
  await upstream?.close();
});

const find = (script: string) => plane.exec('seeker', 'sh', '-c', script);

inside('no readable file and no environment holds a secret, a CA key or a token of another', async () => {
  const { pki } = layoutOf(plane.dir);
  const keyLine = (await readFile(join(pki, 'ca.key'), 'utf8')).split('\n')[1]!;
  const mitmLine = (await readFile(join(pki, 'mitm-ca.key'), 'utf8')).split('\n')[1]!;
  const other = await plane.store.get('Sandbox', { namespace: 'default', name: 'other' });
  const token = other.metadata.annotations?.['agents.kruise.io/runtime-access-token'] ?? '';
  assert.ok(token.length > 20);
  // The pattern is split in the script, so that the script does not find itself.
  const needles = ['needle-credential-5512', keyLine, mitmLine, token].map(
    (text) => `${text.slice(0, 6)}''${text.slice(6)}`,
  );
  const patterns = needles.map((text) => `-e '${text}'`).join(' ');
  const places =
    '/etc /opt /run /tmp /var /home /root /srv /mnt /dev/shm /usr/local /proc/[0-9]*/environ /proc/[0-9]*/cmdline';
  const found = await find(`grep -rlaF ${patterns} ${places} 2>/dev/null; test -e /proc/1/environ && echo searched`);
  assert.is(found.stdout, 'searched\n');
});

inside('no process of the machine and no UNIX socket is in sight', async () => {
  const processes = await find('cat /proc/[0-9]*/comm | sort -u | tr "\\n" " "');
  assert.not.match(processes.stdout, /envoy|systemd|sshd|npm/);
  const sockets = await find('find / -xdev -type s 2>/dev/null; tail -n +2 /proc/net/unix | wc -l');
  assert.match(sockets.stdout.trim(), /^\d+$/);
});

inside('the plane and the home directories are not there', async () => {
  const listed = await find(
    `ls ${plane.dir} /root /home 2>&1 | grep -v '^/' ; ls /root/.ssh ${plane.dir}/.sandgate 2>&1`,
  );
  assert.not.match(listed.stdout, /sandgate\.yaml|pki|authorized_keys/);
});

inside('capabilities are gone, and the network cannot be changed', async () => {
  const status = await find('grep -E "^Cap(Eff|Prm|Bnd|Amb)" /proc/self/status | cut -f2 | sort -u');
  assert.is(status.stdout.trim(), '0000000000000000');
  const tries = await find(
    'ip link add x type dummy; nft flush ruleset; nft list ruleset; mount -t tmpfs x /mnt; true',
  );
  assert.is(tries.stdout, '');
});

inside.run();
