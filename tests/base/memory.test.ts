import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';

const test = suite('memory');
const MEMORY = join(import.meta.dirname, '..', '..', 'base', 'memory.ts');
const KEEP_SMALL = `(await import(${JSON.stringify(MEMORY)})).keepSmall({ everyMs: 200 });`;
const BUSY = 'setInterval(() => { const end = performance.now() + 8; while (performance.now() < end); }, 10);';

/** Sizes in MB, every 50 ms, of a process that has filled some 200 MB and keeps little of it. */
async function* sizes(more: string): AsyncGenerator<number> {
  const script = `
    let all = Array.from({ length: 2e6 }, (_, index) => ({ index, text: 'x' + index }));
    globalThis.kept = all.filter(({ index }) => index % 50 === 0);
    all = null;
    ${more}
    setInterval(() => console.log(process.memoryUsage.rss() / 1e6), 50);`;
  const argv = ['--input-type=module', '-e', script];
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      yield Number(line);
    }
    throw new Error('the process ended');
  } finally {
    child.kill('SIGKILL');
  }
}

test('an idle process gives back what it needed to start', async () => {
  let first = 0;
  for await (const size of sizes(KEEP_SMALL)) {
    first ||= size;
    if (size < first / 2) {
      break;
    }
  }
  assert.ok(first > 150, `${first} MB at the start`);
});

test('a busy process is left alone', async () => {
  let [first, count] = [0, 0];
  for await (const size of sizes(KEEP_SMALL + BUSY)) {
    first ||= size;
    assert.ok(size > first * 0.7, `${size} MB after ${first} MB`);
    count += 1;
    if (count === 40) {
      break;
    }
  }
});

test.run();
