import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { asJson, asTable, keepsLimit, LIMITS, measured, median, metric, unmeasured } from '../../bench/report.ts';
import { firstBurst } from '../../bench/wire.ts';
import { parseWrk } from '../../bench/wrk.ts';

/** How figures are read and reported. */
const figures = suite('figures of the benchmarks');

const WRK = `Running 5s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.20ms    1.10ms  41.10ms   92.01%
    Req/Sec    20.30k     1.02k   22.10k    80.00%
  Latency Distribution
     50%  985.00us
     75%    3.40ms
     90%    4.10ms
     99%    1.02s
  101500 requests in 5.01s, 11.03MB read
  Socket errors: connect 1, read 2, write 0, timeout 3
  Non-2xx or 3xx responses: 40
Requests/sec:  20259.48
Transfer/sec:      2.20MB
`;

figures('what wrk prints is read in milliseconds, and every failure counts', () => {
  assert.equal(parseWrk(WRK), { requests: 101_500, perSecond: 20_259.48, p50Ms: 0.985, p99Ms: 1020, errors: 46 });
  const clean = WRK.replace(/ {2}Socket.*\n.*\n/, '');
  assert.is(parseWrk(clean).errors, 0);
  assert.throws(() => parseWrk('unable to connect to 127.0.0.1:8080 Connection refused\n'), /Connection refused/);
});

figures('a burst ends at the first silence', () => {
  const at = (...times: readonly number[]) => times.map((time) => ({ at: time, bytes: 1 }));
  assert.equal(firstBurst(at(10, 30, 350, 1400)), at(10, 30, 350));
  assert.equal(firstBurst(at(10)), at(10));
  assert.equal(firstBurst([]), []);
});

figures('the median of an even number is between the middle two', () => {
  assert.is(median([9, 1, 5]), 5);
  assert.is(median([1, 9, 5, 7]), 6);
});

figures('a report groups by suite and says which limit is missed', () => {
  const metrics = {
    'egress.native_ratio': metric(0.69, 'ratio', 'bare'),
    'egress.extproc_ratio': metric(0.31234, 'ratio', 'bare'),
    'memory.local_pss_mb': metric(480, 'MB', '9 processes'),
  };
  assert.equal(JSON.parse(asJson(metrics)), {
    egress: {
      native_ratio: { value: 0.69, unit: 'ratio', against: 'bare' },
      extproc_ratio: { value: 0.312, unit: 'ratio', against: 'bare' },
    },
    memory: { local_pss_mb: { value: 480, unit: 'MB', against: '9 processes' } },
  });
  const kept = Object.entries(metrics).map(([name, entry]) => keepsLimit(name, entry));
  assert.equal(kept, [false, true, true]);
  const [missed, held] = asTable(metrics).split('\n');
  assert.match(missed!, /at least 0.7: MISSED/);
  assert.match(held!, /at least 0.22: kept/);
  assert.equal(unmeasured('egress', metrics), []);
  assert.equal(unmeasured('xds', metrics), ['xds.policy_change_ms']);
  assert.equal(Object.keys(measured({ ...metrics, 'egress.tunnel_ratio': metric(median([]), 'ratio', '') })), [
    ...Object.keys(metrics),
  ]);
  assert.ok(Object.keys(LIMITS).includes('xds.policy_change_ms'));
});

figures.run();
