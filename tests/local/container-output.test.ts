import { appendFile, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { containerOutput } from '../../local/container-output.ts';

test('follows a log over its being cut, until it is removed', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'sg-output-'));
  const file = join(dir, 'web.log');
  await writeFile(file, 'one\ntwo\n');
  const chunks = containerOutput(file, { tail: 1, follow: true })[Symbol.asyncIterator]();
  const next = async () => String((await chunks.next()).value);
  assert.is(await next(), 'two\n');
  await appendFile(file, 'three\n');
  assert.is(await next(), 'three\n');
  await truncate(file, 0);
  await appendFile(file, 'four\n');
  assert.is(await next(), 'four\n');
  await rm(dir, { recursive: true });
  assert.is((await chunks.next()).done, true);
});

test('without a log there is nothing', async () => {
  const chunks = [];
  for await (const chunk of containerOutput('/nowhere/web.log', {})) {
    chunks.push(String(chunk));
  }
  assert.is(chunks.join(''), '');
});

test.run();
