import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPE, SECRET } from '../../xds/types.ts';
import type { ResourceKey } from '../../xds/view.ts';
import { made, names, Recorded } from './support.ts';

const key = (typeUrl: string, name: string): ResourceKey => ({ typeUrl, name });
const cluster = (name: string, content = name) => made(CLUSTER, name, content);

test('answers the first wildcard request at once, with everything or with nothing', () => {
  const empty = new Recorded().publish().subscribe(CLUSTER);
  assert.equal(empty.take().map(names), ['']);
  const full = new Recorded().publish(cluster('a'), cluster('b')).subscribe(CLUSTER);
  assert.equal(full.take().map(names), ['+a +b']);
});

test('says nothing before the first view, and nothing twice', () => {
  const client = new Recorded().subscribe(CLUSTER);
  client.request(CLUSTER);
  assert.equal(client.take(), []);
  client.publish(cluster('a'));
  const [first] = client.take();
  assert.is(names(first), '+a');
  client.ack(first!);
  client.publish(cluster('a'));
  assert.equal(client.take(), []);
  assert.equal(client.settled, [1, 2]);
});

test('keeps one response a type under way and then goes to the latest view', () => {
  const client = new Recorded().publish(cluster('a', '1')).subscribe(CLUSTER);
  const [first] = client.take();
  for (let version = 2; version < 50; version += 1) {
    client.publish(cluster('a', String(version)));
  }
  assert.equal(client.take(), []);
  client.ack(first!);
  const [second, ...more] = client.take();
  assert.is(Buffer.from(second!.resources[0]!.resource.value).toString(), '49');
  assert.equal(more, []);
  assert.equal(client.settled, []);
  client.ack(second!);
  assert.equal(client.settled, [49]);
});

test('a stale nonce acknowledges nothing, yet its names count', () => {
  const client = new Recorded().publish(made(SECRET, 'a', '1'), made(SECRET, 'b', '1')).subscribe(SECRET, 'a');
  const [a] = client.take();
  client.request(SECRET, { responseNonce: 'old', resourceNamesSubscribe: ['b'] });
  assert.equal(client.take(), []);
  client.ack(a!);
  assert.equal(client.take().map(names), ['+b']);
});

test('a name that is asked for again is sent again; a plain later request is not answered', () => {
  const client = new Recorded().publish(made(SECRET, 'a', '1')).subscribe(SECRET, 'a');
  client.ack(client.take()[0]!);
  client.request(SECRET);
  assert.equal(client.take(), []);
  client.request(SECRET, { resourceNamesUnsubscribe: ['a'] });
  assert.equal(client.take(), []);
  client.subscribe(SECRET, 'a');
  assert.equal(client.take().map(names), ['+a']);
});

test('a name outside the view is answered as removed, once, and sent when it comes', () => {
  const client = new Recorded().publish().subscribe(SECRET, 'a');
  const [gone] = client.take();
  assert.is(names(gone), '-a');
  client.ack(gone!).publish().publish();
  assert.equal(client.take(), []);
  client.publish(made(SECRET, 'a', '1'));
  assert.equal(client.take().map(names), ['+a']);
});

test('nothing is said about a table that is not in the view', () => {
  const client = new Recorded().publish().subscribe(ROUTES, 't');
  assert.equal(client.take(), []);
  client.publish(made(ROUTES, 't', '1'));
  client.ack(client.take()[0]!).publish();
  assert.equal(client.take(), []);
});

test('an update that is queued when the client unsubscribes is not sent', () => {
  const client = new Recorded().publish(made(SECRET, 'a', '1')).subscribe(SECRET, 'a');
  const [first] = client.take();
  client.publish(made(SECRET, 'a', '2'));
  client.ack(first!, { resourceNamesUnsubscribe: ['a'] });
  assert.equal(client.take(), []);
});

test('a reconnect resends what differs, removes what has gone, and nothing else', () => {
  const view = [cluster('same'), cluster('changed', 'new'), cluster('added')];
  const client = new Recorded().publish(...view);
  client.request(CLUSTER, {
    initialResourceVersions: { same: cluster('same').version, changed: 'old', vanished: 'x' },
  });
  const [upserts] = client.take();
  assert.is(names(upserts), '+added +changed');
  client.ack(upserts!);
  assert.equal(client.take().map(names), ['-vanished']);
  const equal = new Recorded().publish(cluster('same'));
  equal.request(CLUSTER, { initialResourceVersions: { same: cluster('same').version } });
  assert.equal(equal.take(), []);
  assert.equal(equal.settled, [1]);
});

test('a reconnect before the first view learns what the versions refer to', () => {
  const table = made(ROUTES, 't', '1');
  const scope = made(SCOPE, 's', '1', [key(ROUTES, 't')]);
  const client = new Recorded();
  client.request(CLUSTER, { initialResourceVersions: { old: 'x' } });
  client.request(SCOPE, { initialResourceVersions: { s: scope.version } });
  client.request(ROUTES, { resourceNamesSubscribe: ['t'], initialResourceVersions: { t: table.version } });
  client.publish(table, scope);
  assert.equal(client.take().map(names), ['-old']);
});

test('after a reconnect a removal waits for versions of unknown content that could refer to it', () => {
  const client = new Recorded().publish(made(ROUTES, 't', 'new'));
  client.request(CLUSTER, { initialResourceVersions: { old: 'x' } });
  // The removal is under way before the table is known: that is what the delay of removals is for.
  assert.equal(client.take().map(names), ['-old']);
  const patient = new Recorded(1000).publish(made(ROUTES, 't', 'new'));
  patient.request(CLUSTER, { initialResourceVersions: { old: 'x' } });
  patient.request(ROUTES, { resourceNamesSubscribe: ['t'], initialResourceVersions: { t: 'old' } });
  const [table] = patient.take();
  patient.clock.advance(5000);
  patient.stream.pump();
  assert.equal(patient.take(), []);
  patient.ack(table!);
  patient.clock.advance(1000);
  patient.stream.pump();
  assert.equal(patient.take().map(names), ['-old']);
});

test('a scope waits for its table, which waits for its cluster', () => {
  const view = [
    cluster('c'),
    made(ROUTES, 't', '1', [key(CLUSTER, 'c')]),
    made(SCOPE, '!pin-t', 'pin'),
    made(SCOPE, 's', '1', [key(ROUTES, 't')]),
  ];
  const client = new Recorded().publish(...view).subscribe(SCOPE);
  const [pin] = client.take();
  assert.is(names(pin), '+!pin-t');
  client.subscribe(ROUTES, 't').ack(pin!);
  assert.equal(client.take(), []);
  client.subscribe(CLUSTER);
  const [c] = client.take();
  assert.is(names(c), '+c');
  client.ack(c!);
  const [t] = client.take();
  assert.is(names(t), '+t');
  assert.equal(client.settled, []);
  client.ack(t!);
  const [s] = client.take();
  assert.is(names(s), '+s');
  client.ack(s!);
  assert.equal(client.settled, [1]);
});

test('a table waits until the listener behind its cluster has its certificate', () => {
  const view = [
    made(SECRET, 'leaf', '1'),
    made(LISTENER, 'l', '1', [key(SECRET, 'leaf')]),
    made(CLUSTER, 'c', '1', [key(LISTENER, 'l')]),
    made(ROUTES, 't', '1', [key(CLUSTER, 'c')]),
  ];
  const client = new Recorded()
    .publish(...view)
    .subscribe(CLUSTER)
    .subscribe(LISTENER)
    .subscribe(ROUTES, 't');
  const [l] = client.take();
  assert.is(names(l), '+l');
  client.ack(l!);
  const [c] = client.take();
  assert.is(names(c), 'nothing');
  client.subscribe(SECRET, 'leaf');
  const [leaf] = client.take();
  assert.is(names(leaf), '+leaf');
  client.ack(leaf!);
  const [later] = client.take();
  assert.is(names(later), '+c');
  client.ack(later!);
  assert.equal(client.take().map(names), ['+t']);
});

test('removal goes the other way round and lingers', () => {
  const c1 = cluster('c1');
  const t1 = made(ROUTES, 't1', '1', [key(CLUSTER, 'c1')]);
  const s1 = made(SCOPE, 's', '1', [key(ROUTES, 't1')]);
  const client = new Recorded(1000).publish(c1, t1, s1).subscribe(CLUSTER).subscribe(ROUTES, 't1').subscribe(SCOPE);
  for (let response = client.sent.shift(); response !== undefined; response = client.sent.shift()) {
    client.ack(response);
  }
  assert.equal(client.settled, [1]);
  client.publish();
  const [scope] = client.take();
  assert.is(names(scope), '-s');
  client.clock.advance(5000);
  client.ack(scope!);
  client.stream.pump();
  assert.equal(client.take(), [], 'the table still refers to the cluster');
  client.request(ROUTES, { resourceNamesUnsubscribe: ['t1'] });
  assert.equal(client.take(), [], 'requests may be in flight');
  assert.is(client.wakes.at(-1), 1000);
  client.clock.advance(1000);
  client.stream.pump();
  assert.equal(client.take().map(names), ['-c1']);
});

test('a removal that is taken back while it lingers is never sent', () => {
  const client = new Recorded(1000).publish(cluster('c')).subscribe(CLUSTER);
  client.ack(client.take()[0]!).publish();
  client.publish(cluster('c')).clock.advance(2000);
  client.stream.pump();
  client.publish();
  client.clock.advance(500);
  client.stream.pump();
  assert.equal(client.take(), []);
  client.clock.advance(500);
  client.stream.pump();
  assert.equal(client.take().map(names), ['-c']);
});

test('endpoints follow a changed cluster at once, whatever version is known, and without its ACK', () => {
  const cla = made(ENDPOINTS, 'e', 'same');
  const client = new Recorded()
    .publish(made(CLUSTER, 'e', '1'), cla)
    .subscribe(CLUSTER)
    .subscribe(ENDPOINTS, 'e');
  for (const response of client.take()) {
    client.ack(response);
  }
  client.publish(made(CLUSTER, 'e', '2'), cla);
  assert.equal(client.take().map(names), ['+e', '+e']);
  const again = new Recorded().publish(made(CLUSTER, 'e', '2'), cla);
  again.request(CLUSTER, { initialResourceVersions: { e: 'old' } });
  assert.equal(again.take().map(names), ['+e']);
  again.request(ENDPOINTS, { resourceNamesSubscribe: ['e'], initialResourceVersions: { e: cla.version } });
  assert.equal(again.take().map(names), ['+e']);
});

test('tables and secrets go one by one, clusters together', () => {
  const view = [made(ROUTES, 't1', '1'), made(ROUTES, 't2', '1'), cluster('a'), cluster('b')];
  const client = new Recorded()
    .publish(...view)
    .subscribe(CLUSTER)
    .subscribe(ROUTES, 't1', 't2');
  assert.equal(client.take().map(names), ['+a +b', '+t1']);
});

test('a rejected batch is traced to its culprit, which is offered again only when it changes', () => {
  const view = (bad: string) => ['a', 'b', 'c', 'd', 'e'].map((name) => cluster(name, name === 'd' ? bad : name));
  const client = new Recorded().publish(...view('bad')).subscribe(CLUSTER);
  const offered: string[] = [];
  for (let response = client.sent.shift(); response !== undefined; response = client.sent.shift()) {
    offered.push(names(response));
    const bad = response.resources.some(({ resource }) => Buffer.from(resource.value).toString() === 'bad');
    bad ? client.nack(response, 'has unknown fields') : client.ack(response);
  }
  assert.equal(offered, ['+a +b +c +d +e', '+a +b', '+c +d +e', '+c', '+d +e', '+d', '+e']);
  assert.equal(
    client.rejections.map(({ name, detail }) => [name, detail]),
    [['d', 'has unknown fields']],
  );
  assert.equal(client.rejections[0]!.origins, [{ kind: 'Test', namespace: 'a', name: 'd' }]);
  assert.equal(client.settled, [1], 'a refusal is not waited for');
  client.publish(...view('bad'));
  client.publish(...view('bad'), cluster('f'));
  const [f] = client.take();
  assert.is(names(f), '+f');
  client.ack(f!).publish(...view('good'), cluster('f'));
  const [d] = client.take();
  assert.is(names(d), '+d');
  assert.equal(client.cleared, [key(CLUSTER, 'd')]);
  client.ack(d!);
  assert.equal(client.take(), []);
});

test('a stream that ends in the middle of a trace leaves in doubt what may have been applied', () => {
  const old = cluster('a', 'old');
  const client = new Recorded().publish(old).subscribe(CLUSTER);
  client.ack(client.take()[0]!).publish(cluster('a', 'new'), cluster('b'));
  const [batch] = client.take();
  assert.equal([...client.stream.doubts()], [[CLUSTER, new Set(['a', 'b'])]], 'its answer may be lost');
  client.nack(batch!, 'no');
  // Envoy may have applied both and reports neither; the view has gone back to what it reports.
  const next = new Recorded(0, client.stream.doubts()).publish(old);
  next.request(CLUSTER, { initialResourceVersions: { a: old.version } });
  const [again] = next.take();
  assert.is(names(again), '+a');
  next.ack(again!);
  const [gone] = next.take();
  assert.is(names(gone), '-b');
  next.ack(gone!);
  assert.equal([...next.stream.doubts()], []);
});

test('a blamed name is tried alone at once', () => {
  const client = new Recorded().publish(cluster('a'), cluster('b'), cluster('c')).subscribe(CLUSTER);
  client.nack(client.take()[0]!, "Error adding/updating cluster(s) b: Didn't find a registered implementation");
  const [rest] = client.take();
  assert.is(names(rest), '+a +c');
  client.ack(rest!);
  const [b] = client.take();
  assert.is(names(b), '+b');
  client.nack(b!, 'Error adding/updating cluster(s) b: no');
  assert.equal(client.take(), []);
  assert.equal(
    client.rejections.map(({ name }) => name),
    ['b'],
  );
});

test('a refused update keeps the accepted version, and going back to it sends nothing', () => {
  const client = new Recorded().publish(cluster('a', '1')).subscribe(CLUSTER);
  client.ack(client.take()[0]!).publish(cluster('a', '2'));
  client.nack(client.take()[0]!, 'no').publish(cluster('a', '1'));
  assert.equal(client.take(), []);
  assert.equal(client.cleared, [key(CLUSTER, 'a')]);
  assert.equal(client.settled, [1, 2, 3]);
});

test('a refused table holds up the scopes that need it and nothing else', () => {
  const scope = (name: string, table: string) => made(SCOPE, name, name, [key(ROUTES, table)]);
  const view = [made(ROUTES, 'bad', '1'), made(ROUTES, 'ok', '1'), scope('s-bad', 'bad'), scope('s-ok', 'ok')];
  const client = new Recorded()
    .publish(...view)
    .subscribe(ROUTES, 'bad', 'ok')
    .subscribe(SCOPE);
  const [bad] = client.take();
  client.nack(bad!, 'missing ]: [');
  const [ok] = client.take();
  client.ack(ok!);
  const [s] = client.take();
  assert.is(names(s), '+s-ok');
  client.ack(s!);
  assert.equal(client.take(), []);
  assert.equal(client.settled, [1]);
});

test('a refused secret says nothing about why', () => {
  const client = new Recorded().publish(made(SECRET, 'a', 'x', [], true)).subscribe(SECRET, 'a');
  client.nack(client.take()[0]!, 'Failed to load private key MARKER');
  assert.is(client.rejections[0]!.detail, null);
});

test('no answer loops: ACK, NACK and empty requests of unknown names and types', () => {
  const client = new Recorded().publish().subscribe(SECRET, 'x').subscribe('type.googleapis.com/foo.Bar', 'y');
  client.subscribe('type.googleapis.com/foo.Bar', 'y');
  const [gone] = client.take();
  client.nack(gone!, 'odd').request(SECRET).request(SECRET, { responseNonce: gone!.nonce });
  assert.equal(client.take(), []);
  assert.is(client.notices.filter((text) => text.includes('not served')).length, 1);
});

test('is not settled before every wildcard type of the view has been asked for', () => {
  const client = new Recorded().publish(cluster('c'), made(SCOPE, 's', '1')).subscribe(CLUSTER);
  client.ack(client.take()[0]!);
  assert.equal(client.settled, []);
  client.subscribe(SCOPE);
  client.ack(client.take()[0]!);
  assert.equal(client.settled, [1]);
});

test('one change among 10,000 scopes costs milliseconds and one resource', () => {
  const table = made(ROUTES, 't', '1');
  const scopes = Array.from({ length: 10_000 }, (_, index) => made(SCOPE, `s-${index}`, 'x', [key(ROUTES, 't')]));
  const client = new Recorded()
    .publish(table, ...scopes)
    .subscribe(ROUTES, 't')
    .subscribe(SCOPE);
  for (let response = client.sent.shift(); response !== undefined; response = client.sent.shift()) {
    client.ack(response);
  }
  const times: number[] = [];
  for (let round = 0; round < 5; round += 1) {
    const changed = [table, ...scopes.slice(1), made(SCOPE, 's-0', `changed ${round}`, [key(ROUTES, 't')])];
    const recorded = client.sent.length;
    const before = performance.now();
    client.publish(...changed);
    times.push(performance.now() - before);
    assert.is(client.sent.length, recorded + 1);
    const [response] = client.take();
    assert.is(names(response), '+s-0');
    client.ack(response!);
  }
  const best = Math.min(...times);
  console.log(`  one of 10,000 scopes: ${best.toFixed(1)} ms (with building the view)`);
  assert.ok(best < 100, `${best} ms`);
});

test.run();
