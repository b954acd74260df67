import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { Logger } from '../../base/logger.ts';
import { logRelay } from '../../envoy/log-relay.ts';

type Line = readonly [level: string, component: unknown, message: string];

function recorder(): { lines: Line[]; logger: Logger } {
  const lines: Line[] = [];
  const at =
    (level: string) =>
    (fields: object, message: string): void => {
      lines.push([level, (fields as { envoy?: unknown }).envoy, message]);
    };
  const logger: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => logger,
  };
  return { lines, logger };
}

function relayed(...chunks: (string | Buffer)[]): Line[] {
  const { lines, logger } = recorder();
  const relay = logRelay(logger);
  for (const chunk of chunks) {
    relay.write(Buffer.from(chunk));
  }
  relay.end();
  return lines;
}

test('levels and components are kept, lines may come in pieces', () => {
  assert.equal(relayed('[[I main]] star', 'ting\n[[W upst', 'ream]] slow\n[[E config]] bad\n[[C assert]] broken'), [
    ['debug', 'main', 'starting'],
    ['warn', 'upstream', 'slow'],
    ['error', 'config', 'bad'],
    ['error', 'assert', 'broken'],
  ]);
});

test('a character that is cut in two stays whole', () => {
  const bytes = Buffer.from('[[W main]] é\n');
  assert.equal(relayed(bytes.subarray(0, 12), bytes.subarray(12)), [['warn', 'main', 'é']]);
});

test('further lines belong to the line before; lines without one are dropped', () => {
  assert.equal(relayed('stray\n[[C main]] first\nsecond\n\n[[W main]] third\n'), [
    ['error', 'main', 'first'],
    ['error', 'main', 'second'],
    ['warn', 'main', 'third'],
  ]);
});

test('a refused resource is not quoted, in any of the forms in which Envoy prints it', () => {
  const resource =
    'tls_certificate {\n  private_key {\n    inline_string: "MARKER"\n  }\n}\n: Proto constraint failed\n';
  const forms = [
    `[[W config]] Filesystem config update rejected: goo.gle/debugproto  \nname: "own"\n${resource}`,
    `[[W config]] delta config for type.googleapis.com/x rejected: goo.gle/debugstr \n${resource}`,
    `[[W upstream]] lds: listener 'l1' config rejected: goo.gle/debugproto  \n${resource}`,
    `[[E main]] Unable to unpack as x: goo.gle/debugonly   \ntype_url: "x" value: "MARKER"\n${resource}`,
    `[[E main]] Unable to parse JSON as proto (x): {"inline_string":"MARKER"}\n`,
    `[[W config]] oops goo.gle/debugonly name: "MARKER"\n${resource}`,
  ];
  for (const form of forms) {
    const lines = relayed(`${form}[[I main]] after\n`);
    assert.is(lines.length, 2, form);
    assert.not.match(JSON.stringify(lines), /MARKER|private_key/);
    assert.equal(lines[1], ['debug', 'main', 'after']);
  }
});

test.run();
