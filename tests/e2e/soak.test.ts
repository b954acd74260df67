import { readdirSync, readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { API, sandbox, settings, yaml } from './manifests.ts';
import { TestPlane, until } from './plane.ts';
import { type ProcessInfo, tree } from './processes.ts';
import { Traffic, workerPolicies } from './traffic.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** A plane that is used for a while: policies are edited again and again, and nothing is answered wrong or grows. */
const soak = suite('soak');

const IS_LONG = process.env['SANDGATE_LONG'] === '1';
const SOAK_MS = IS_LONG ? 15 * 60_000 : 8000;
const EDIT_MS = 1000;
/** What a process may have more at the end than after the first third. */
const MORE_DESCRIPTORS = 20;
const MORE_MEMORY = 1.5;

let plane: TestPlane;
let upstream: Upstream;
let traffic: Traffic;

soak.before(async () => {
  upstream = await startUpstream(API);
  plane = await TestPlane.start({
    files: {
      'sandgate.yaml': settings(),
      'ca.pem': upstream.caPem,
      'sandboxes.yaml': yaml(sandbox('worker')),
      'policy.yaml': workerPolicies('/blocked'),
    },
  });
  await plane.phase('worker', 'Running');
  traffic = await Traffic.start(plane, upstream.httpPort);
  await until('traffic', 15_000, () => traffic.isRunning);
});

soak.after(async () => {
  traffic?.stop();
  await plane?.stop();
  await upstream?.close();
});

interface Usage {
  readonly descriptors: number;
  readonly memoryMb: number;
}

function usage({ pid }: ProcessInfo): Usage {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return {
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    memoryMb: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024,
  };
}

/** The plane's own processes: `up`, its roles and the Envoys. */
function parts(): ProcessInfo[] {
  return tree(plane.process.pid!).filter(({ command }) => /cli\/main\.ts|envoy-[a-z]+\.json/.test(command));
}

soak(`${SOAK_MS / 1000} s of traffic and edits: every answer is right, no process ends or grows`, async () => {
  const start = Date.now();
  const before = parts();
  assert.ok(before.length >= 8, JSON.stringify(before.map(({ command }) => command)));
  let early: Map<number, Usage> | null = null;
  for (let edits = 1; Date.now() - start < SOAK_MS; edits += 1) {
    // A path that nobody asks for: the table changes, the answers do not.
    const file = join(plane.dir, 'extra.yaml');
    await writeFile(`${file}.tmp`, extra(edits), { mode: 0o600 });
    await rename(`${file}.tmp`, file);
    await sleep(EDIT_MS);
    if (early === null && Date.now() - start > SOAK_MS / 3) {
      early = new Map(parts().map((info) => [info.pid, usage(info)]));
    }
  }
  assert.equal(traffic.wrong(start), []);
  assert.equal(traffic.idle, ['open']);
  assert.equal(
    parts()
      .map(({ pid }) => pid)
      .sort(),
    before.map(({ pid }) => pid).sort(),
  );
  const grown = parts().flatMap((info) => {
    const [was, is] = [early!.get(info.pid)!, usage(info)];
    const isMore = is.descriptors > was.descriptors + MORE_DESCRIPTORS || is.memoryMb > was.memoryMb * MORE_MEMORY;
    return isMore ? [{ command: info.command, was, is }] : [];
  });
  assert.equal(grown, []);
});

/** A rule of its own that differs with every edit. */
function extra(edit: number): string {
  return yaml({
    apiVersion: 'agents.kruise.io/v1alpha1',
    kind: 'SecurityProfile',
    metadata: { name: 'extra' },
    spec: {
      selector: { matchLabels: { app: 'worker' } },
      rules: [
        {
          name: 'extra',
          match: [{ domains: [API], paths: [{ type: 'Exact', value: `/extra-${edit}` }] }],
          actions: { block: {} },
        },
      ],
    },
  });
}

soak.run();
