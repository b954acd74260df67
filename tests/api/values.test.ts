import * as assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'uvu';
import {
  conditionReason,
  cutMessage,
  findCondition,
  isConditionTrue,
  setCondition,
  withoutConditions,
} from '../../api/conditions.ts';
import { parseDuration } from '../../api/duration.ts';
import { isDnsSubdomain, isLabelValue, isQualifiedName } from '../../api/names.ts';
import { parseStaticTemplate, renderStaticTemplate } from '../../api/static-template.ts';

test('durations as Go reads them', () => {
  const table: [string, number | null][] = [
    ['300ms', 300],
    ['1.5h', 5_400_000],
    ['2h45m', 9_900_000],
    ['0', 0],
    ['-1s', -1000],
    ['+1s', 1000],
    ['.5s', 500],
    ['1us', 0.001],
    ['1d', null],
    ['5', null],
    ['', null],
    ['s', null],
    ['1s ', null],
    ['1e3s', null],
    ['--1s', null],
    ['9999999h', null],
  ];
  for (const [text, expected] of table) {
    assert.equal(parseDuration(text), expected, text);
  }
});

test('static templates', () => {
  assert.deepEqual(parseStaticTemplate('Bearer {{ .Token }}'), [{ literal: 'Bearer ' }, { token: true }]);
  assert.deepEqual(parseStaticTemplate('{{.Token}}:{{.Token}}'), [{ token: true }, { literal: ':' }, { token: true }]);
  assert.deepEqual(parseStaticTemplate(''), []);
  assert.deepEqual(parseStaticTemplate('a } b { c'), [{ literal: 'a } b { c' }]);
  for (const bad of [
    '{{',
    '{{ .Token',
    '{{- .Token }}',
    '{{ .Tokens }}',
    '{{ . }}',
    '{{ "x" }}',
    '{{ .Token | trim }}',
  ]) {
    assert.equal(parseStaticTemplate(bad), null, bad);
  }
});

test('a template renders to its text with the token in place, whatever the token is', () => {
  const literal = fc.string().filter((text) => !text.includes('{'));
  fc.assert(
    fc.property(literal, literal, fc.string(), (before, after, token) => {
      const parts = parseStaticTemplate(`${before}{{ .Token }}${after}`);
      assert.equal(renderStaticTemplate(parts!, token), `${before}${token}${after}`);
    }),
  );
});

test('names, keys and values', () => {
  assert.ok(isDnsSubdomain('a.b-c') && !isDnsSubdomain('a..b') && !isDnsSubdomain('A') && !isDnsSubdomain('-a'));
  assert.ok(
    isQualifiedName('a.b/c_D') && !isQualifiedName('a/b/c') && !isQualifiedName('a/') && !isQualifiedName('A.b/c'),
  );
  assert.ok(isLabelValue('') && isLabelValue('a_b.c') && !isLabelValue('a-') && !isLabelValue('x'.repeat(64)));
});

const at = (now: string, generation = 1) => ({ now, generation });
const ready = (status: 'True' | 'False', message = '') => ({ type: 'Ready', status, reason: 'PodReady', message });

test('a condition keeps its time until its status changes', () => {
  const first = setCondition(undefined, ready('False'), at('t1'));
  assert.deepEqual(first, [{ ...ready('False'), lastTransitionTime: 't1', observedGeneration: 1 }]);
  assert.equal(setCondition(first, ready('False'), at('t2')), first);
  const reworded = setCondition(first, ready('False', 'why'), at('t2'));
  assert.equal(findCondition(reworded, 'Ready')!.lastTransitionTime, 't1');
  const turned = setCondition(reworded, ready('True'), at('t3'));
  assert.equal(findCondition(turned, 'Ready')!.lastTransitionTime, 't3');
  assert.ok(isConditionTrue(turned, 'Ready') && !isConditionTrue(turned, 'Other'));
  const seen = setCondition(turned, ready('True'), at('t4', 2));
  assert.deepEqual(seen, [{ ...ready('True'), lastTransitionTime: 't3', observedGeneration: 2 }]);
});

test('other conditions stay, and a list that is none is empty', () => {
  const two = setCondition(setCondition([], ready('True'), at('t')), { ...ready('True'), type: 'B' }, at('t'));
  assert.deepEqual(
    withoutConditions(two, 'Ready').map(({ type }) => type),
    ['B'],
  );
  assert.equal(withoutConditions(two, 'X'), two);
  assert.deepEqual(withoutConditions('odd' as never, 'X'), []);
  assert.equal(setCondition('odd' as never, ready('True'), at('t')).length, 1);
});

test('reasons fit their pattern and messages their length', () => {
  assert.equal(conditionReason('PodReady'), 'PodReady');
  assert.equal(conditionReason('back-off 5s'), 'back_off_5s');
  assert.equal(conditionReason('123'), 'Unknown');
  assert.equal(conditionReason(''), 'Unknown');
  fc.assert(
    fc.property(fc.string({ maxLength: 2000 }), (text) => {
      assert.match(conditionReason(text), /^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/);
      assert.ok(conditionReason(text).length <= 1024);
    }),
  );
  assert.equal(cutMessage('ä'.repeat(512)), 'ä'.repeat(512));
  assert.equal(cutMessage(`x${'ä'.repeat(512)}`), `x${'ä'.repeat(511)}...`);
});

test.run();
