import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { contentHash } from '../../base/canonical.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { DESCRIPTORS_SHA256 } from '../../proto/descriptor-files.ts';
import { extractDescriptors } from '../../proto/extract.ts';

test('the committed descriptors are those of the pinned binary', async () => {
  assert.is(contentHash(extractDescriptors(readFileSync(await findEnvoy())), 64), DESCRIPTORS_SHA256);
});

test.run();
