/** Identities do not leak between the streams of a gateway, and the test that says so would notice if they did. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { findEnvoy } from '../../envoy/find.ts';

const envoy = await findEnvoy();

function play(damage: string): { sets: number; right: number; crossed: number; failed: readonly string[] } {
  const output = execFileSync(
    'unshare',
    ['--user', '--map-root-user', '--net', process.execPath, join(import.meta.dirname, 'stage', 'leak.ts')],
    {
      encoding: 'utf8',
      timeout: 60_000,
      stdio: ['ignore', 'pipe', 'ignore'],
      env: {
        ...process.env,
        PATH: `${process.env['PATH']}:/usr/sbin:/sbin`,
        SANDGATE_ENVOY: envoy,
        SANDGATE_DAMAGE: damage,
      },
    },
  );
  return JSON.parse(output) as ReturnType<typeof play>;
}

test('two sandboxes in one set, the same authority, 500 streams at once: every request has its own identity', () => {
  assert.equal(play(''), { sets: 1, right: 500, crossed: 0, failed: [] });
});

test('with filter state that cannot be hashed, requests get the identity of the other sandbox', () => {
  const { sets, crossed } = play('unhashable');
  assert.is(sets, 1);
  assert.ok(crossed > 0, `${crossed} crossed`);
});

test.run();
