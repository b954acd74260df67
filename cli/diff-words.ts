import { refText } from '../api/object.ts';
import type { DecisionChange, L4Entry, L7Entry } from './decision-diff.ts';
import type { Difference } from './difference.ts';
import type { ListChange } from './list-diff.ts';
import type { FieldChange, ObjectChange } from './object-diff.ts';
import type { ResourceChange, ResourceChanges } from './resource-diff.ts';

/** A difference for a person: `+` comes, `~` changes, `-` goes. */
export function diffWords({ objects, decisions, resources }: Difference): string {
  const changed = objects.filter(({ change }) => change !== 'unchanged');
  const lines = [
    `objects: ${counted(objects)}`,
    ...changed.flatMap(objectLines),
    `decisions: ${decisions.length === 0 ? 'the policy of no sandbox changes' : sandboxes(decisions.length)}`,
    ...decisions.flatMap(decisionLines),
    ...resourceLines(resources),
  ];
  return `${lines.join('\n')}\n`;
}

function counted(objects: readonly ObjectChange[]): string {
  const count = (change: ObjectChange['change']) => objects.filter((object) => object.change === change).length;
  return `${count('created')} new, ${count('configured')} changed, ${count('unchanged')} unchanged`;
}

function sandboxes(count: number): string {
  return `the policy of ${count} ${count === 1 ? 'sandbox' : 'sandboxes'} changes`;
}

function objectLines(object: ObjectChange): string[] {
  return [`  ${object.change === 'created' ? '+' : '~'} ${refText(object)}`, ...object.fields.map(fieldLine)];
}

function fieldLine({ path, before, after }: FieldChange): string {
  const [mark, what] =
    before === undefined
      ? ['+', short(after)]
      : after === undefined
        ? ['-', short(before)]
        : ['~', `${short(before)} → ${short(after)}`];
  return `      ${mark} ${path}: ${what}`;
}

const MAX = 160;

/** A value on one line. */
function short(value: unknown): string {
  const text = JSON.stringify(value) ?? '';
  return text.length > MAX ? `${text.slice(0, MAX)}…` : text;
}

function decisionLines({ sandbox, isNew, policySet, defaultDeny, invalid, l4, l7 }: DecisionChange): string[] {
  const set =
    policySet.before === policySet.after
      ? `policy set ${policySet.after} as before`
      : `policy set ${policySet.before ?? 'none'} → ${policySet.after}`;
  const deny = (denies: boolean) => (denies ? 'denied' : 'allowed');
  return [
    `  ${isNew ? '+' : '~'} ${sandbox}: ${set}`,
    ...(invalid.after === null ? [] : [`      everything is denied because of ${refText(invalid.after)}`]),
    ...(invalid.before === null || invalid.after !== null
      ? []
      : [`      no longer denied because of ${refText(invalid.before)}`]),
    ...(defaultDeny.before === defaultDeny.after && !isNew
      ? []
      : [
          `      connections that no rule matches: ${isNew ? '' : `${deny(defaultDeny.before)} → `}${deny(defaultDeny.after)}`,
        ]),
    ...listLines('connection', l4, ({ policy, priority, index, rule }: L4Entry) => [
      `${refText(policy)} rule ${index}`,
      `${priority === DEFAULT_PRIORITY ? '' : `priority ${priority}, `}${short(rule)}`,
    ]),
    ...listLines('request', l7, ({ profile, rule, actions, spec }: L7Entry) => [
      `${refText(profile)} rule ${rule} (${actions.join(', ') || 'no action'})`,
      short(spec),
    ]),
  ];
}

const DEFAULT_PRIORITY = 1000;

function listLines<T>(
  what: string,
  { added, removed, changed, reordered }: ListChange<T>,
  words: (entry: T) => readonly [name: string, content: string],
): string[] {
  return [
    ...removed.map((entry) => `      - ${what}: ${words(entry).join(': ')}`),
    ...changed.flatMap(({ before, after }) => [
      `      ~ ${what}: ${words(after)[0]}`,
      `          was ${words(before)[1]}`,
      `          now ${words(after)[1]}`,
    ]),
    ...added.map((entry) => `      + ${what}: ${words(entry).join(': ')}`),
    ...(reordered ? [`      ~ the ${what} rules that stay come in another order`] : []),
  ];
}

function resourceLines({ egress, ingress, sidecars }: ResourceChanges): string[] {
  const parts: readonly (readonly [string, ResourceChange])[] = [
    ['egress', egress],
    ['ingress', ingress],
    ...sidecars.map((change) => [sidecarName(change.sandboxes), change] as const),
  ];
  const changing = parts.filter(
    ([, { added, changed, removed }]) => added.length + changed.length + removed.length > 0,
  );
  if (changing.length === 0) {
    return ['xDS resources: none changes'];
  }
  return [
    'xDS resources:',
    ...changing.flatMap(([role, { added, changed, removed }]) => [
      `  ${role}: ${added.length} added, ${changed.length} changed, ${removed.length} removed`,
      ...removed.map((resource) => `    - ${resourceName(resource)}`),
      ...changed.map((resource) => `    ~ ${resourceName(resource)}`),
      ...added.map((resource) => `    + ${resourceName(resource)}`),
    ]),
  ];
}

function sidecarName([first = '', ...others]: readonly string[]): string {
  return `sidecar of ${first}${others.length === 0 ? '' : ` and ${others.length} more`}`;
}

function resourceName({ type, name }: { readonly type: string; readonly name: string }): string {
  return `${type.slice(type.lastIndexOf('.') + 1)} ${name}`;
}
