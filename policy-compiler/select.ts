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
  /** The policies that select a sandbox, by position; equal positions are the same list. */
  positionsOf(sandbox: SandboxFacts): Positions;
  at(positions: Positions): Selection;
  /** Another object as soon as the policies' order or a selector changes: until then a sandbox keeps its positions. */
  readonly order: object;
}

/** Positions in the order of egress-policy §1.3, ascending. */
export type Positions = readonly number[];

/** Everything about the policies that decides whom they select. What a policy says otherwise may change meanwhile. */
class Order {
  #candidates: readonly Candidate[];
  /** Positions by namespace, or by namespace and one label that the selector asks for. */
  readonly #index = new Map<string, number[]>();
  /** Label keys of the index: no other label of a sandbox needs a look. */
  readonly #keys = new Set<string>();
  readonly #bySandbox = new WeakMap<SandboxFacts, Positions>();
  readonly #interned = new Map<string, Positions>();

  constructor(candidates: readonly Candidate[]) {
    this.#candidates = candidates;
    for (const [position, { record, selector }] of candidates.entries()) {
      const pair = selector?.equals[0];
      const bucket = bucketKey(record.ref.namespace, pair);
      const known = this.#index.get(bucket);
      if (known === undefined) {
        this.#index.set(bucket, [position]);
      } else {
        known.push(position);
      }
      if (pair !== undefined) {
        this.#keys.add(pair[0]);
      }
    }
  }

  /** Goes on with other candidates if they stand for the same objects with the same selectors in the same order. */
  accepts(candidates: readonly Candidate[]): boolean {
    const isSame =
      candidates.length === this.#candidates.length &&
      candidates.every((candidate, at) => {
        const known = this.#candidates[at]!;
        return candidate === known || signatureOf(candidate) === signatureOf(known);
      });
    if (isSame) {
      this.#candidates = candidates;
    }
    return isSame;
  }

  positionsOf(sandbox: SandboxFacts): Positions {
    const known = this.#bySandbox.get(sandbox);
    if (known !== undefined) {
      return known;
    }
    const found = this.#find(sandbox);
    const text = found.join(',');
    const positions = this.#interned.get(text) ?? found;
    this.#interned.set(text, positions);
    this.#bySandbox.set(sandbox, positions);
    return positions;
  }

  #find({ namespace: own, labels }: SandboxFacts): Positions {
    const found: number[] = [];
    const pairs = [undefined, ...Object.entries(labels).filter(([key]) => this.#keys.has(key))];
    for (const namespace of new Set(['', own])) {
      for (const pair of pairs) {
        for (const position of this.#index.get(bucketKey(namespace, pair)) ?? []) {
          const { selector } = this.#candidates[position]!;
          if (selector === null || selects(selector, labels)) {
            found.push(position);
          }
        }
      }
    }
    return found.sort((a, b) => a - b);
  }
}

/**
 * Which policies selected a sandbox, by position, kept from one compilation to the next. It holds for a sandbox object
 * as long as the policies' order and selectors stay what they are, whatever their rules.
 */
export class KnownSelections {
  #order: Order | null = null;
  /** Where each policy of the facts stood in the order; sorting what is nearly sorted costs one look at each. */
  #sorted: readonly number[] = [];

  /** In the order of egress-policy §1.3. */
  sort(candidates: readonly Candidate[]): readonly Candidate[] {
    const start = this.#sorted.length === candidates.length ? this.#sorted : [...candidates.keys()];
    const sorted = start.toSorted((a, b) => compareCandidates(candidates[a]!, candidates[b]!));
    this.#sorted = sorted;
    return sorted.map((at) => candidates[at]!);
  }

  use(candidates: readonly Candidate[]): Order {
    if (this.#order === null || !this.#order.accepts(candidates)) {
      this.#order = new Order(candidates);
    }
    return this.#order;
  }
}

/** Indexes the policies of the facts. Policies with a `matchLabels` pair are only looked at for sandboxes that have it. */
export function createSelecting(facts: PolicyFacts, kept: KnownSelections): Selecting {
  const candidates = kept.sort(
    facts.policies
      .filter(({ inForce }) => inForce === null || inForce.spec !== undefined)
      .map((record) => candidateOf(record, facts)),
  );
  const order = kept.use(candidates);
  const known = new Map<Positions, Selection>();
  const at = (positions: Positions) => {
    const selection = known.get(positions) ?? selectionOf(positions.map((position) => candidates[position]!));
    known.set(positions, selection);
    return selection;
  };
  return {
    order,
    at,
    positionsOf: (sandbox) => order.positionsOf(sandbox),
    select: (sandbox) => at(order.positionsOf(sandbox)),
  };
}

function bucketKey(namespace: string, pair: readonly [string, string] | undefined): string {
  return pair === undefined ? namespace : `${namespace}\n${pair[0]}=${pair[1]}`;
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
