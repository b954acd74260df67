import { parseDuration } from './duration.ts';

/** A rule of the CRDs: its CEL text and message as the API server knows them, and the same test in code. */
export interface CelRule {
  readonly rule: string;
  readonly message: string;
  /** Whether the value, which already fits its schema, obeys the rule. */
  readonly holds: (self: never) => boolean;
}

const PEER_KINDS = ['cidr', 'fqdn', 'service', 'workload'];

function rule<T>(text: string, message: string, holds: (self: T) => boolean): CelRule {
  return { rule: text, message, holds };
}

interface PortRange {
  readonly port?: number;
  readonly endPort?: number;
}

/** Every rule by a short name (crds §10.1, §11.5). */
export const CEL_RULES: Readonly<Record<string, CelRule>> = {
  direction: rule<object>(
    'has(self.ingress) || has(self.egress)',
    'at least one of ingress or egress must be specified',
    (self) => 'ingress' in self || 'egress' in self,
  ),
  onePeer: rule<object>(
    '[has(self.cidr), has(self.fqdn), has(self.service), has(self.workload)].filter(x, x).size() == 1',
    'exactly one of cidr, fqdn, service, or workload must be set',
    (self) => PEER_KINDS.filter((kind) => kind in self).length === 1,
  ),
  endPortNeedsPort: rule<PortRange>(
    '!has(self.endPort) || has(self.port)',
    'endPort requires port to be set',
    (self) => self.endPort === undefined || self.port !== undefined,
  ),
  endPortOrder: rule<PortRange>(
    '!has(self.endPort) || self.endPort >= self.port',
    'endPort must be greater than or equal to port',
    (self) => self.endPort === undefined || self.port === undefined || self.endPort >= self.port,
  ),
  auditTimeout: rule<string>(
    "duration(self) >= duration('500ms') && duration(self) <= duration('30s')",
    'timeout must be between 500ms and 30s',
    (self) => {
      const milliseconds = parseDuration(self);
      return milliseconds !== null && milliseconds >= 500 && milliseconds <= 30_000;
    },
  ),
};

const BY_TEXT = new Map(Object.values(CEL_RULES).map((entry) => [entry.rule, entry]));

/** `x-kubernetes-validations` for these rules. */
export function celValidations(names: readonly string[]): readonly { rule: string; message: string }[] {
  return names.map((name) => {
    const { rule: text, message } = CEL_RULES[name]!;
    return { rule: text, message };
  });
}

/** The rule with this CEL text. */
export function celRule(text: string): CelRule {
  return BY_TEXT.get(text)!;
}
