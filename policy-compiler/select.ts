import type { LabelSelector } from '../api/common.ts';
import type { PolicyFacts, PolicyObject, PolicyRecord, SandboxFacts } from '../api/facts.ts';
import { refText } from '../api/object.ts';
import { selectorErrors } from '../api/selector.ts';
import { canonicalJson, compareText } from '../base/canonical.ts';

interface Expression {
  readonly key: string;
  readonly operator: string;
  readonly values: readonly string[];
}

/** A LabelSelector in a form that is quick to test (egress-policy §1.2, crds B8). */
export interface Selector {
  readonly equals: readonly (readonly [key: string, value: string])[];
  readonly expressions: readonly Expression[];
}

const OPERATORS = new Set(['In', 'NotIn', 'Exists', 'DoesNotExist']);

/** Reads a selector of a stored object that need not be valid; null when it cannot be read (D2). */
export function readSelector(raw: unknown): Selector | null {
  if (!isMap(raw) || Object.keys(raw).some((key) => key !== 'matchLabels' && key !== 'matchExpressions')) {
    return null;
  }
  const labels = raw['matchLabels'] ?? {};
  const list = raw['matchExpressions'] ?? [];
  if (!isMap(labels) || !Array.isArray(list)) {
    return null;
  }
  const equals = Object.entries(labels);
  const expressions = list.map(readExpression);
  if (equals.some(([, value]) => typeof value !== 'string') || expressions.includes(null)) {
    return null;
  }
  if (selectorErrors(raw as LabelSelector, 'selector').length > 0) {
    return null;
  }
  return {
    equals: (equals as [string, string][]).sort(([a], [b]) => compareText(a, b)),
    expressions: expressions.filter((expression) => expression !== null),
  };
}

function readExpression(raw: unknown): Expression | null {
  if (!isMap(raw) || typeof raw['key'] !== 'string' || typeof raw['operator'] !== 'string') {
    return null;
  }
  const values = raw['values'] ?? [];
  if (!OPERATORS.has(raw['operator']) || !Array.isArray(values) || values.some((value) => typeof value !== 'string')) {
    return null;
  }
  return { key: raw['key'], operator: raw['operator'], values: values as string[] };
}

function isMap(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/** Whether the selector selects these labels; the empty selector selects everything. */
export function selects(selector: Selector, labels: Readonly<Record<string, string>>): boolean {
  return (
    selector.equals.every(([key, value]) => labelOf(labels, key) === value) &&
    selector.expressions.every((expression) => expressionHolds(expression, labelOf(labels, expression.key)))
  );
}

function labelOf(labels: Readonly<Record<string, string>>, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}

function expressionHolds(expression: Expression, value: string | undefined): boolean {
  switch (expression.operator) {
    case 'In':
      return value !== undefined && expression.values.includes(value);
    case 'NotIn':
      return value === undefined || !expression.values.includes(value);
    case 'Exists':
      return value !== undefined;
    default:
      return value === undefined;
  }
}

/** A policy as it takes part in selection. */
export interface Candidate {
  readonly record: PolicyRecord;
  /** `TrafficPolicy` and `GlobalTrafficPolicy` decide connections, the others requests. */
  readonly layer: 'l4' | 'l7';
  /** null: the selector cannot be read, so the whole scope of the object is selected (D2). */
  readonly selector: Selector | null;
}

/** The policies that select one sandbox, in the order of egress-policy §1.3. */
export interface Selection {
  readonly l4: readonly Candidate[];
  readonly l7: readonly Candidate[];
  /** The first object, by its text, that has no form in force: the sandbox is denied entirely (D2); null: none. */
  readonly invalid: PolicyRecord | null;
}

/** Answers which policies select a sandbox; equal selections are the same object, so that callers can memoise by it. */
export interface Selecting {
  select(sandbox: SandboxFacts): Selection;
}

/**
 * Which policies selected a sandbox, by position, kept from one compilation to the next. It holds for a sandbox object
 * as long as the policies' order and selectors stay what they are, whatever their rules.
 */
export class KnownSelections {
  #signature = '';
  #bySandbox = new WeakMap<SandboxFacts, readonly number[]>();

  /** Forgets what another list of selectors selected. */
  use(signature: string): void {
    if (signature !== this.#signature) {
      this.#signature = signature;
      this.#bySandbox = new WeakMap();
    }
  }

  get(sandbox: SandboxFacts, find: () => readonly number[]): readonly number[] {
    let positions = this.#bySandbox.get(sandbox);
    if (positions === undefined) {
      positions = find();
      this.#bySandbox.set(sandbox, positions);
    }
    return positions;
  }
}

/** Indexes the policies of the facts. Policies with a `matchLabels` pair are only looked at for sandboxes that have it. */
export function createSelecting(facts: PolicyFacts, kept: KnownSelections): Selecting {
  const candidates = facts.policies
    .filter(({ inForce }) => inForce === null || inForce.spec !== undefined)
    .map((record) => candidateOf(record, facts))
    .sort(compareCandidates);
  const order = new Map(candidates.map((candidate, index) => [candidate, index]));
  const index = new Map<string, Candidate[]>();
  for (const candidate of candidates) {
    const pair = candidate.selector?.equals[0];
    const bucket = bucketKey(candidate.record.ref.namespace, pair);
    index.set(bucket, [...(index.get(bucket) ?? []), candidate]);
  }
  const keys = new Set(candidates.flatMap(({ selector }) => selector?.equals.slice(0, 1).map(([key]) => key) ?? []));
  kept.use(candidates.map((candidate) => signatureOf(candidate)).join('\n'));
  const known = new Map<string, Selection>();
  return {
    select(sandbox) {
      const found = kept.get(sandbox, () =>
        lookup(index, keys, sandbox)
          .map((candidate) => order.get(candidate)!)
          .sort((a, b) => a - b),
      );
      const key = found.join(',');
      const selection = known.get(key) ?? selectionOf(found.map((position) => candidates[position]!));
      known.set(key, selection);
      return selection;
    },
  };
}

function bucketKey(namespace: string, pair: readonly [string, string] | undefined): string {
  return pair === undefined ? namespace : `${namespace}\n${pair[0]}=${pair[1]}`;
}

/** `keys` are the label keys of the index: no other label of the sandbox needs a look. */
function lookup(
  index: ReadonlyMap<string, readonly Candidate[]>,
  keys: ReadonlySet<string>,
  sandbox: SandboxFacts,
): Candidate[] {
  const found: Candidate[] = [];
  const pairs = [undefined, ...Object.entries(sandbox.labels).filter(([key]) => keys.has(key))];
  for (const namespace of new Set(['', sandbox.namespace])) {
    for (const pair of pairs) {
      for (const candidate of index.get(bucketKey(namespace, pair)) ?? []) {
        if (candidate.selector === null || selects(candidate.selector, sandbox.labels)) {
          found.push(candidate);
        }
      }
    }
  }
  return found;
}

function selectionOf(candidates: readonly Candidate[]): Selection {
  const invalid = candidates.filter(({ record }) => record.inForce === null).map(({ record }) => record);
  invalid.sort(({ ref: a }, { ref: b }) => {
    return compareText(a.kind, b.kind) || compareText(a.namespace, b.namespace) || compareText(a.name, b.name);
  });
  const inForce = candidates.filter(({ record }) => record.inForce !== null);
  return {
    l4: inForce.filter(({ layer }) => layer === 'l4'),
    l7: inForce.filter(({ layer }) => layer === 'l7'),
    invalid: invalid[0] ?? null,
  };
}

const signatures = new WeakMap<Candidate, string>();

/** Identifies a candidate's object and selector. */
function signatureOf(candidate: Candidate): string {
  let signature = signatures.get(candidate);
  if (signature === undefined) {
    signature = canonicalJson([candidate.record.ref, candidate.selector]);
    signatures.set(candidate, signature);
  }
  return signature;
}

const inForceCandidates = new WeakMap<PolicyRecord, Candidate>();

/** Of an unchanged record with a form in force it is the same object. */
function candidateOf(record: PolicyRecord, facts: PolicyFacts): Candidate {
  const known = inForceCandidates.get(record);
  if (known !== undefined) {
    return known;
  }
  const candidate = readCandidate(record, facts);
  if (record.inForce !== null) {
    inForceCandidates.set(record, candidate);
  }
  return candidate;
}

function readCandidate(record: PolicyRecord, facts: PolicyFacts): Candidate {
  const spec: unknown = record.inForce?.spec ?? facts.invalidSpecs[refText(record.ref)];
  return {
    record,
    layer: record.ref.kind.endsWith('TrafficPolicy') ? 'l4' : 'l7',
    selector: readSelector(isMap(spec) ? spec['selector'] : undefined),
  };
}

function priorityOf(policy: PolicyObject | null): number {
  return policy?.spec?.priority ?? 1000;
}

/**
 * egress-policy §1.3: priority ascending, older first, then for profiles name and namespace, for traffic policies
 * namespace and name (a Global object has the empty namespace). The kind comes last, to make the order total.
 */
function compareCandidates(a: Candidate, b: Candidate): number {
  const byLayer = compareText(a.layer, b.layer);
  const byPriority = priorityOf(a.record.inForce) - priorityOf(b.record.inForce);
  const byAge = compareText(a.record.created, b.record.created);
  const [x, y] = [a.record.ref, b.record.ref];
  const byName = compareText(x.name, y.name);
  const byNamespace = compareText(x.namespace, y.namespace);
  const byText = a.layer === 'l7' ? byName || byNamespace : byNamespace || byName;
  return byLayer || byPriority || byAge || byText || compareText(x.kind, y.kind);
}
