/**
 * Generated policy sets and requests through real Envoys, compared with `decide()` (D28): sidecar, tunnel, gateway,
 * interception and external processor, in namespaces of their own.
 */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { findEnvoy } from '../../envoy/find.ts';
import { newSeed } from './generate.ts';

interface Counts {
  readonly pairs: number;
  readonly tls: number;
  readonly processor: number;
  readonly forwarded: number;
  readonly denied: number;
  readonly closed: number;
  readonly disagreements: number;
}

const seed = newSeed();
console.log(`seed ${seed} (SANDGATE_SEED=${seed} repeats it)`);

const output = execFileSync(
  'unshare',
  ['--user', '--map-root-user', '--net', process.execPath, join(import.meta.dirname, 'envoys-stage.ts')],
  {
    encoding: 'utf8',
    timeout: 240_000,
    maxBuffer: 64 * 1024 * 1024,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {
      ...process.env,
      PATH: `${process.env['PATH']}:/usr/sbin:/sbin`,
      SANDGATE_SEED: String(seed),
      SANDGATE_ENVOY: await findEnvoy(),
    },
  },
);
const { counts, failures, rejections } = JSON.parse(output) as {
  counts: Counts;
  failures: readonly unknown[];
  rejections: readonly string[];
};

test('no resource is refused', () => {
  assert.equal(rejections, []);
});

test('every pair ends as decide() says', () => {
  assert.is(failures.length, 0, JSON.stringify(failures.slice(0, 2), null, 1));
});

test('explain agrees on every pair', () => {
  assert.is(counts.disagreements, 0);
});

test('there are enough pairs of every kind', () => {
  console.log(JSON.stringify(counts));
  assert.ok(counts.pairs >= 2000, `${counts.pairs} pairs`);
  assert.ok(counts.tls >= 300, `${counts.tls} over intercepted TLS`);
  assert.ok(counts.processor >= 300, `${counts.processor} answered by the processor`);
  for (const kind of ['forwarded', 'denied', 'closed'] as const) {
    assert.ok(counts[kind] >= counts.pairs / 20, `${counts[kind]} ${kind}`);
  }
});

test.run();
