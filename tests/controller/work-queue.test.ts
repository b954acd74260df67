import * as assert from 'node:assert/strict';
import { test } from 'uvu';
import { WorkQueue, type WorkResult } from '../../controller/work-queue.ts';

const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

test('a key is never worked on twice at once, and what is added meanwhile is done once more', async () => {
  let running = 0;
  let passes = 0;
  const queue = new WorkQueue(async () => {
    running += 1;
    assert.equal(running, 1);
    await sleep(5);
    running -= 1;
    passes += 1;
    return undefined;
  });
  for (let index = 0; index < 5; index += 1) {
    queue.add('a');
  }
  await sleep(1);
  for (let index = 0; index < 5; index += 1) {
    queue.add('a');
  }
  await queue.settled();
  assert.equal(passes, 2);
  await queue.close();
});

test('different keys are worked on side by side, up to the limit', async () => {
  let running = 0;
  let most = 0;
  const queue = new WorkQueue(
    async () => {
      running += 1;
      most = Math.max(most, running);
      await sleep(5);
      running -= 1;
      return undefined;
    },
    { concurrency: 3 },
  );
  for (let index = 0; index < 10; index += 1) {
    queue.add(String(index));
  }
  await queue.settled();
  assert.equal(most, 3);
  await queue.close();
});

test('work that fails comes again with a growing pause, and others do not wait for it', async () => {
  const times: number[] = [];
  let good = 0;
  const queue = new WorkQueue(
    async (key) => {
      if (key === 'good') {
        good += 1;
        return undefined;
      }
      times.push(performance.now());
      if (times.length < 4) {
        throw new Error('not yet');
      }
      return undefined;
    },
    { backoffMs: [20, 60], concurrency: 1 },
  );
  queue.add('bad');
  queue.add('good');
  await sleep(10);
  assert.equal(good, 1);
  const deadline = performance.now() + 3000;
  while (times.length < 4 && performance.now() < deadline) {
    await sleep(10);
  }
  const pauses = times.slice(1).map((time, index) => time - times[index]!);
  assert.equal(pauses.length, 3);
  for (const [index, least] of [20, 40, 60].entries()) {
    assert.ok(pauses[index]! >= least - 2, `${pauses}`);
  }
  await queue.close();
});

test('of several times the soonest counts, also beyond what a timer holds', async () => {
  let passes = 0;
  const queue = new WorkQueue(async () => {
    passes += 1;
    return undefined;
  });
  queue.addAfter('a', 10 ** 12);
  queue.addAfter('a', 20);
  queue.addAfter('a', 5000);
  await sleep(60);
  assert.equal(passes, 1);
  queue.addAfter('b', 10 ** 12);
  await sleep(20);
  assert.equal(passes, 1);
  await queue.close();
});

test('work may ask for another pass', async () => {
  const answers: WorkResult[] = [{ againAfterMs: 1 }, { againAfterMs: 0 }, undefined];
  let passes = 0;
  const queue = new WorkQueue(async () => answers[passes++]);
  queue.add('a');
  await sleep(60);
  assert.equal(passes, 3);
  await queue.close();
});

test('closing waits for the work under way and starts no other', async () => {
  let done = 0;
  const queue = new WorkQueue(
    async () => {
      await sleep(20);
      done += 1;
      throw new Error('too late');
    },
    { concurrency: 1 },
  );
  queue.add('a');
  queue.add('b');
  await queue.close();
  assert.equal(done, 1);
  queue.add('c');
  queue.addAfter('d', 1);
  await sleep(30);
  assert.equal(done, 1);
});

test.run();
