import { EventEmitter } from 'node:events';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ManualClock } from '../../base/clock.ts';
import { silentLogger } from '../../base/logger.ts';
import { accessLogService } from '../../control-plane/access-log.ts';
import { DecisionLog, type DecisionRecord } from '../../control-plane/decision-log.ts';
import { encodeDetails } from '../../extproc/details.ts';
import { roleId, sandboxId } from '../../identity/spiffe.ts';
import { LOG_INGRESS } from '../../policy-compiler/ingress-listener.ts';
import { LOG_L4, LOG_L7, LOG_TUNNEL } from '../../policy-compiler/output.ts';

/** What the Envoys' access logs become. */
const logs = suite('access logs');

const START = { seconds: '1800000000', nanos: 250_000_000 };
const PROFILE = { kind: 'SecurityProfile', namespace: 'default', name: 'p' };

class Sender {
  readonly log = new DecisionLog();
  readonly warnings: string[] = [];
  readonly asked: unknown[] = [];
  readonly #call: EventEmitter;

  constructor(spiffeId: string) {
    const subjectaltname = `URI:${spiffeId}`;
    this.#call = Object.assign(new EventEmitter(), {
      getAuthContext: () => ({ sslPeerCertificate: { subjectaltname } }),
    });
    const { handlers } = accessLogService({
      log: this.log,
      clock: new ManualClock(1_800_000_001_000),
      logger: { ...silentLogger, warn: (_fields, message) => void this.warnings.push(message) },
      meaning: (...args) => {
        this.asked.push(args);
        return { policy: 'TrafficPolicy default/t', rule: '2', action: 'allow', reason: 'rule' };
      },
    });
    const open = handlers['StreamAccessLogs'] as unknown as (call: EventEmitter, done: () => void) => void;
    open(this.#call, () => {});
  }

  send(logName: string | null, message: object): void {
    this.#call.emit('data', { ...(logName === null ? {} : { identifier: { logName } }), ...message });
  }

  http(logName: string, entry: object): void {
    this.send(logName, { httpLogs: { logEntry: [entry] } });
  }
}

const gateway = () => new Sender(roleId('egress'));
const sidecar = (uid: string) => new Sender(sandboxId({ namespace: 'default', uid }));

const request = (more: object = {}, response: object = {}, tags: object = {}) => ({
  commonProperties: {
    startTime: START,
    timeToLastDownstreamTxByte: { seconds: '1', nanos: 499_600_000 },
    customTags: { sandbox: 'uid-1', 'destination.ip': '240.0.1.0', 'destination.port': '443', ...tags },
  },
  request: { requestMethod: 'GET', authority: 'api.test', path: '/v1/items?key=secret', ...more },
  response: { responseCode: { value: 200 }, responseCodeDetails: 'via_upstream', ...response },
});

const only = (log: DecisionLog, uid: string): DecisionRecord => {
  assert.is(log.of(uid).length, 1);
  return log.of(uid)[0]!;
};

logs('a request that Envoy forwarded; its query is not kept', () => {
  const sender = gateway();
  sender.http(
    LOG_L7,
    request({}, {}, { action: 'forward', rules: 'SecurityProfile default/p/first, SecurityProfile default/p/last' }),
  );
  assert.equal(only(sender.log, 'uid-1'), {
    time: '2027-01-15T08:00:00.250Z',
    direction: 'egress',
    sandbox: 'uid-1',
    action: 'forward',
    method: 'GET',
    authority: 'api.test',
    path: '/v1/items',
    status: 200,
    policy: 'SecurityProfile default/p',
    rule: 'last',
    reason: 'via_upstream',
    executor: 'envoy',
    destination: '240.0.1.0:443',
    durationMs: 1500,
  });
});

logs('a denial of the processor tells its reason and rule', () => {
  const sender = gateway();
  const details = encodeDetails('mcp-denied', {
    profile: PROFILE,
    rule: 'tools',
    actions: ['mcpToolPolicy'],
    terminal: true,
  });
  sender.http(
    LOG_L7,
    request({}, { responseCode: { value: 403 }, responseCodeDetails: details }, { action: 'processor' }),
  );
  const { action, executor, policy, rule, reason, status } = only(sender.log, 'uid-1');
  assert.equal(
    [action, executor, policy, rule, reason, status],
    ['deny', 'ext_proc', 'SecurityProfile default/p', 'tools', 'mcp-denied', 403],
  );
});

logs('what the processor let through is a forward of the processor', () => {
  const sender = gateway();
  sender.http(LOG_L7, request({}, {}, { action: 'processor' }));
  const { action, executor } = only(sender.log, 'uid-1');
  assert.equal([action, executor], ['forward', 'ext_proc']);
});

logs('an entry of the ingress gateway; Envoy writes - for what it does not have', () => {
  const sender = new Sender(roleId('ingress'));
  const tags = { sandbox: '-', 'processor.sandbox': 'uid-2', rules: '-', action: '-', 'destination.ip': '-' };
  sender.http(LOG_INGRESS, request({}, {}, tags));
  const { direction, executor, policy, rule, destination } = only(sender.log, 'uid-2');
  assert.equal([direction, executor, policy, rule, destination], ['ingress', 'ext_proc', '', '', '']);
});

logs('an opened tunnel is no decision, a refused one is', () => {
  const sender = gateway();
  sender.http(LOG_TUNNEL, request());
  assert.is(sender.log.of('uid-1').length, 0);
  sender.http(LOG_TUNNEL, request({}, { responseCode: { value: 403 }, responseCodeDetails: 'rbac' }));
  assert.is(only(sender.log, 'uid-1').action, 'deny');
});

const connection = (tags: object = {}) => ({
  tcpLogs: {
    logEntry: [
      {
        commonProperties: {
          startTime: START,
          customTags: tags,
          downstreamLocalAddress: { socketAddress: { address: '2001:db8::1', portValue: 443 } },
        },
      },
    ],
  },
});

logs('a connection of a sidecar is that of its certificate, whatever its tags say', () => {
  const sender = sidecar('uid-1');
  sender.send(LOG_L4, connection({ sandbox: 'uid-2' }));
  const record = only(sender.log, 'uid-1');
  assert.equal(
    [record.direction, record.destination, record.policy, record.rule, record.action],
    ['connection', '[2001:db8::1]:443', 'TrafficPolicy default/t', '2', 'allow'],
  );
  assert.equal(sender.asked, [['uid-1', '2001:db8::1', 443]]);
  sender.http(LOG_L7, request({}, {}, { sandbox: 'uid-2' }));
  assert.is(sender.log.of('uid-2').length, 0);
});

logs('the name of the log holds for the messages after the first', () => {
  const sender = gateway();
  sender.http(LOG_TUNNEL, request());
  sender.send(null, { httpLogs: { logEntry: [request()] } });
  assert.is(sender.log.of('uid-1').length, 0);
});

logs("an entry without a sandbox is nobody's; one without anything else still has a time", () => {
  const sender = gateway();
  sender.http(LOG_L7, request({}, {}, { sandbox: '-' }));
  sender.send(LOG_L4, connection());
  sender.send(LOG_L4, { tcpLogs: {}, httpLogs: {} });
  sender.http(LOG_L7, { commonProperties: { customTags: { sandbox: 'uid-9' } } });
  assert.is(sender.log.of('').length, 0);
  assert.is(only(sender.log, 'uid-9').time, '2027-01-15T08:00:01.000Z');
});

logs('what is not understood is said and stops nothing', () => {
  const sender = gateway();
  sender.http(LOG_L7, { commonProperties: { customTags: { sandbox: 'uid-1' }, startTime: { seconds: 'x' } } });
  sender.http(LOG_L7, request());
  assert.is(sender.log.of('uid-1').length, 1);
  assert.equal(sender.warnings, ['an access log message was not understood']);
});

logs('a caller without an identity is not listened to', () => {
  const sender = new Sender('spiffe://elsewhere/role/egress');
  sender.http(LOG_L7, request());
  assert.is(sender.log.of('uid-1').length, 0);
});

logs.run();
