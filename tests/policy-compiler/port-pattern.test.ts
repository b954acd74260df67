import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { portPattern } from '../../policy-compiler/port-pattern.ts';

const RANGES = [
  [0, 65535],
  [1, 65535],
  [80, 80],
  [8000, 8100],
  [999, 1001],
  [15001, 15054],
  [12345, 54321],
  [1024, 49151],
  [0, 9],
  [65535, 65535],
] as const;

test('a pattern matches exactly the ports of its range', () => {
  for (const [from, to] of RANGES) {
    const regex = new RegExp(`^(?:${portPattern([{ from, to }])})$`);
    for (let port = 0; port <= 70_000; port += 1) {
      if (regex.test(String(port)) !== (port >= from && port <= to)) {
        assert.unreachable(`${from}-${to}: ${port}`);
      }
    }
  }
});

test('several ranges are alternatives', () => {
  const regex = new RegExp(
    `^(?:${portPattern([
      { from: 80, to: 80 },
      { from: 443, to: 444 },
    ])})$`,
  );
  assert.equal(
    ['80', '443', '444', '8', '445', '080'].map((text) => regex.test(text)),
    [true, true, true, false, false, false],
  );
});

test.run();
