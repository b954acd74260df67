import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { DecisionLog, type DecisionRecord } from '../../control-plane/decision-log.ts';

const decisions = suite('decision log');

const record = (path: string): DecisionRecord => ({
  time: '2026-01-01T00:00:00.000Z',
  direction: 'egress',
  ...{ sandbox: 'uid', action: 'deny', method: 'GET', authority: 'api.test', path, status: 403 },
  ...{ policy: '', rule: '', reason: '', executor: 'envoy' as const, destination: '', durationMs: 0 },
});

const paths = (log: DecisionLog, uid: string) => log.of(uid).map(({ path }) => path);

decisions('keeps the latest of each sandbox, oldest first', () => {
  const log = new DecisionLog(3);
  for (const path of ['1', '2', '3', '4', '5']) {
    log.add('a', record(path));
  }
  log.add('b', record('x'));
  assert.equal(paths(log, 'a'), ['3', '4', '5']);
  assert.equal(paths(log, 'b'), ['x']);
  assert.equal(paths(log, 'nobody'), []);
});

decisions('forgets the sandbox that has been quiet for longest', () => {
  const log = new DecisionLog(10, 2);
  log.add('a', record('1'));
  log.add('b', record('2'));
  log.add('a', record('3'));
  log.add('c', record('4'));
  assert.equal(
    ['a', 'b', 'c'].map((uid) => paths(log, uid)),
    [['1', '3'], [], ['4']],
  );
});

decisions('stays bounded under many sandboxes and many decisions', () => {
  const log = new DecisionLog(5, 10);
  for (let index = 0; index < 10_000; index += 1) {
    log.add(`uid-${index % 100}`, record(String(index)));
  }
  const all = Array.from({ length: 100 }, (_, index) => log.of(`uid-${index}`).length);
  assert.is(all.filter((count) => count > 0).length, 10);
  assert.ok(Math.max(...all) <= 5);
});

decisions('tells followers of their sandbox, until they stop', () => {
  const log = new DecisionLog();
  const seen: string[] = [];
  log.add('a', record('before'));
  const stop = log.follow('a', ({ path }) => seen.push(path));
  const stopOther = log.follow('a', ({ path }) => seen.push(`other ${path}`));
  log.add('a', record('1'));
  log.add('b', record('2'));
  stop();
  log.add('a', record('3'));
  stopOther();
  log.add('a', record('4'));
  assert.equal(seen, ['1', 'other 1', 'other 3']);
});

decisions.run();
