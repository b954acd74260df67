import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { NOTHING, Subscription, type SubscriptionStep } from '../../xds/subscription.ts';

interface Row {
  readonly what: string;
  /** First request, then later ones: names subscribed, then names after `-` unsubscribed. */
  readonly requests: readonly string[];
  readonly legacy?: boolean;
  /** Of the last request. */
  readonly wildcard: boolean;
  readonly names: string;
  readonly renewed?: string;
  readonly dropped?: string;
  readonly ended?: boolean;
}

const ROWS: readonly Row[] = [
  { what: 'empty first request', requests: [''], wildcard: true, names: '' },
  {
    what: 'empty first request of a type without the old wildcard',
    requests: [''],
    legacy: false,
    wildcard: false,
    names: '',
  },
  { what: 'explicit wildcard', requests: ['*'], legacy: false, wildcard: true, names: '' },
  { what: 'explicit wildcard with a name', requests: ['* a'], wildcard: true, names: 'a', renewed: 'a' },
  { what: 'names', requests: ['b a'], wildcard: false, names: 'a b', renewed: 'a b' },
  { what: 'a later empty request changes nothing', requests: ['a', ''], wildcard: false, names: 'a' },
  {
    what: 'an empty request after everything was unsubscribed is no wildcard',
    requests: ['a', '-a', ''],
    wildcard: false,
    names: '',
  },
  { what: 'a name does not end the old wildcard', requests: ['', 'a'], wildcard: true, names: 'a', renewed: 'a' },
  { what: 'a name asked for again is answered again', requests: ['a', 'a'], wildcard: false, names: 'a', renewed: 'a' },
  { what: 'unsubscribe', requests: ['a b', '-a'], wildcard: false, names: 'b', dropped: 'a' },
  { what: 'unsubscribe an unknown name', requests: ['a', '-x'], wildcard: false, names: 'a' },
  {
    what: 'unsubscribe and subscribe in later requests',
    requests: ['a', '-a', 'a'],
    wildcard: false,
    names: 'a',
    renewed: 'a',
  },
  { what: 'both in one request', requests: ['a', 'b -a'], wildcard: false, names: 'b', renewed: 'b', dropped: 'a' },
  {
    what: 'the same name in both lists ends unsubscribed',
    requests: ['', 'a -a'],
    legacy: false,
    wildcard: false,
    names: '',
    dropped: 'a',
  },
  {
    what: 'a name unsubscribed under a wildcard is answered, not dropped',
    requests: ['* a', '-a'],
    wildcard: true,
    names: '',
    renewed: 'a',
  },
  { what: 'the wildcard ends', requests: ['* a', '-*'], wildcard: false, names: 'a', ended: true },
  { what: 'the old wildcard ends', requests: ['', '-*'], wildcard: false, names: '', ended: true },
  {
    what: 'the wildcard ends with a name',
    requests: ['* a', '-* -a'],
    wildcard: false,
    names: '',
    dropped: 'a',
    ended: true,
  },
  { what: 'the wildcard returns', requests: ['', '-*', '*'], wildcard: true, names: '' },
  { what: 'unsubscribing alone in a first request is no wildcard', requests: ['-a'], wildcard: false, names: '' },
];

function run(row: Row): SubscriptionStep {
  let step: SubscriptionStep | undefined;
  for (const text of row.requests) {
    const words = text.split(' ').filter((word) => word !== '');
    const change = {
      subscribe: words.filter((word) => !word.startsWith('-')),
      unsubscribe: words.filter((word) => word.startsWith('-')).map((word) => word.slice(1)),
    };
    step = step === undefined ? Subscription.open(change, row.legacy ?? true) : step.subscription.change(change);
  }
  return step!;
}

for (const row of ROWS) {
  test(row.what, () => {
    const step = run(row);
    assert.equal(
      {
        wildcard: step.subscription.wildcard,
        names: [...step.subscription.names].sort().join(' '),
        renewed: [...step.renewed].sort().join(' '),
        dropped: [...step.dropped].sort().join(' '),
        ended: step.wildcardEnded,
      },
      {
        wildcard: row.wildcard,
        names: row.names,
        renewed: row.renewed ?? '',
        dropped: row.dropped ?? '',
        ended: row.ended ?? false,
      },
    );
    for (const name of ['a', 'zzz']) {
      assert.is(step.subscription.covers(name), row.wildcard || row.names.split(' ').includes(name));
    }
  });
}

test('a change leaves the earlier value as it was', () => {
  const { subscription } = Subscription.open({ subscribe: ['a'], unsubscribe: [] }, true);
  subscription.change({ subscribe: ['b'], unsubscribe: ['a'] });
  assert.equal([...subscription.names], ['a']);
  assert.not.ok(NOTHING.covers('a'));
});

test.run();
